"""What the rules of bench.sglang.arguments rest on, held against the real SGLang."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import ScenarioError, ServerError
from bench.model import ServerConfig, Timeouts
from bench.runner import Asked, own_answer, plan_of, run, start_run
from bench.server import start_server
from bench.sglang.arguments import (
    SUPPORTED,
    Known,
    effective_speculative,
    parse_arguments,
)
from bench.sglang.own_resolution import ask_sglang, judge
from bench.sglang.server_info import differences

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "sglang"))

from rule_cases import CASES, CONFIGS, command_line, name_of  # noqa: E402

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(300)]

LAB = ROOT / "tests" / "lab"
ON_A_CPU = ["--grammar-backend", "none", "--sampling-backend", "pytorch"]


@pytest.fixture(scope="module")
def answers(lab, tmp_path_factory):
    """What SGLang makes of every case."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    asked = "".join(
        json.dumps({"argv": [*command_line(case, f"{folder}/"), *ON_A_CPU], **case}) + "\n"
        for case in CASES
    )
    done = subprocess.run(
        [sys.executable, LAB / "python.py", LAB / "resolve_many.py"],
        input=asked,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    lines = done.stdout.replace(f"{folder}/", "").splitlines()
    return dict(zip([*map(name_of, CASES), "options"], map(json.loads, lines), strict=True))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_case(case, answers):
    answer = answers[name_of(case)]
    if "refused" in case:
        assert "error" in answer
        assert answer["error"] != "the process died"
        return
    assert "error" not in answer, answer
    becomes = case.get("becomes", {})
    assert {dest: answer["resolved"][dest] for dest in becomes} == becomes


def test_the_options_are_those_of_its_parser(answers):
    listed = ROOT / "bench" / "sglang" / "arguments" / "options.txt"
    assert answers["options"]["options"] == listed.read_text().splitlines()


def test_every_option_is_read_under_its_name(answers):
    resolved = next(answer["resolved"] for answer in answers.values() if "resolved" in answer)
    for case in CASES:
        if "resolved" in answers[name_of(case)]:
            assert set(parse_arguments(command_line(case))) <= set(resolved)


# ------------------------------------------------------------------------------ through the bench

MODELS = LAB / "models"
ARGUMENTS = (
    *("--model-path", str(MODELS / "tiny-llama"), "--device", "cpu", "--dtype", "float32"),
    *("--context-length", "2048", "--max-total-tokens", "8192", "--max-running-requests", "4"),
    *("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"),
    *ON_A_CPU,
    *("--skip-server-warmup", "--disable-cuda-graph", "--mem-fraction-static", "0.3"),
    *("--speculative-algorithm", "EAGLE3"),
    *("--speculative-draft-model-path", str(MODELS / "tiny-eagle3")),
)


def numbers(steps, topk, draft_tokens):
    return (
        *("--speculative-num-steps", steps, "--speculative-eagle-topk", topk),
        *("--speculative-num-draft-tokens", draft_tokens),
    )


async def test_what_it_refuses_is_told_in_its_words_and_ours(lab):
    arguments = (*ARGUMENTS, "--speculative-num-steps", "3")
    python = (sys.executable, str(LAB / "python.py"))
    own = await ask_sglang(python, arguments, environment=os.environ, gpus=0)
    assert own.version == SUPPORTED
    told = judge(arguments, own, environment={})
    assert "TypeError: '>' not supported between instances of 'NoneType' and 'int'" in told.refusal
    assert "rule C1" in told.refusal


def lab_arms(folder, **arms):
    """The lab's scenario with arms more."""
    text = (ROOT / "scenarios" / "lab.yaml").read_text().replace("../tests/lab", str(LAB))
    folder.mkdir(exist_ok=True)
    added = "".join(f"  {name}: {json.dumps(arm)}\n" for name, arm in arms.items())
    path = folder / "lab.yaml"
    path.write_text(text.replace("\nworkloads:", f"{added}\nworkloads:"))
    return Asked(scenario=path)


def test_what_it_refuses_in_any_arm_ends_a_run_before_it_launches(lab, tmp_path):
    odd = {"arguments": "--schedule-policy by-chance"}
    default = {"arguments": "--schedule-policy fcfs"}
    asked = lab_arms(tmp_path, odd=odd, default=default)
    plan, writer = start_run(asked, tmp_path / "results", command_line=["bench", "run"])
    with writer, pytest.raises(ScenarioError) as caught:
        asyncio.run(run(plan, writer))
    refused, alike = str(caught.value).splitlines()
    assert "arms.odd.arguments: arm odd" in refused
    assert f"SGLang {SUPPORTED} refuses its arguments" in refused
    assert "arms.default.arguments: arms baseline and default ask for different things" in alike
    assert "--schedule-policy fcfs) and are the same server: no speculation" in alike
    assert not writer.folder.exists()


def test_what_it_takes_is_said_before_a_run(lab, tmp_path):
    _, told = own_answer(*plan_of(lab_arms(tmp_path)))
    assert told == f"Arguments: SGLang {SUPPORTED} itself takes those of baseline, eagle3-3-1-4."


def without(option, arguments=ARGUMENTS):
    """The arguments less one option, and its value where it has one."""
    at = arguments.index(option)
    values = 0 if arguments[at + 1].startswith("--") else 1
    return (*arguments[:at], *arguments[at + 1 + values :])


async def start(arguments, folder):
    config = ServerConfig(
        arguments=tuple(arguments), command=(sys.executable, str(LAB / "serve.py")), gpus=0
    )
    return await start_server(config, log_path=folder / "log", timeouts=Timeouts(ready_s=200))


@pytest.mark.parametrize(
    ("rule", "drafting", "said"),
    [
        ("C1", ("--speculative-num-steps", "3"), "TypeError"),
        ("C2", ("--speculative-eagle-topk", "1"), "AssertionError"),
        ("tree", numbers("2", "2", "8"), "selected index k out of range"),
    ],
)
async def test_what_the_rules_reject_does_not_start(lab, tmp_path, rule, drafting, said):
    arguments = (*ARGUMENTS, *drafting)
    rejection = effective_speculative(parse_arguments(arguments))
    assert rejection.rule == rule
    with pytest.raises(ServerError, match=said):
        await start(arguments, tmp_path)


async def test_adaptive_speculation_with_graphs_does_not_start_on_a_cpu(lab, tmp_path):
    arguments = (*without("--disable-cuda-graph"), "--speculative-adaptive")
    rejection = effective_speculative(parse_arguments(arguments), Known(version=SUPPORTED))
    assert rejection.rule == "adaptive-cpu"
    with pytest.raises(ServerError, match="NotImplementedError"):
        await start(arguments, tmp_path)


async def test_what_the_rules_change_is_what_runs(lab, tmp_path):
    """C3 and C10, by the settings that a started server reports."""
    arguments = (*without("--max-running-requests"), *numbers("3", "1", "8"))
    expected = effective_speculative(parse_arguments(arguments), Known(version=SUPPORTED))
    assert {"C3", "C10"} <= {change.rule for change in expected.changes}
    server = await start(arguments, tmp_path)
    try:
        effective = server.effective
    finally:
        await server.stop()
    settings = dict(effective.speculative)
    triple = (expected.num_steps, expected.eagle_topk, expected.num_draft_tokens)
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    assert tuple(settings[name] for name in names) == triple == (3, 1, 4)
    reported = dict(effective.other)["max_running_requests"]
    assert reported == str(expected.max_running_requests) == "48"
    different = {(d.name, d.asked, d.effective) for d in differences(arguments, effective)}
    assert ("speculative_num_draft_tokens", "8", "4") in different
