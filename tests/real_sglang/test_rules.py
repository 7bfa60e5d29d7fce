"""What the rules of bench.sglang.arguments rest on, held against the real SGLang."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import ServerError
from bench.model import ServerConfig, Timeouts
from bench.server import start_server
from bench.sglang.arguments import (
    SUPPORTED,
    effective_speculative,
    parse_arguments,
    tree_capacity_tok,
)
from bench.sglang.own_resolution import ask_sglang, judge

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


async def test_a_tree_beyond_its_capacity_fails_at_its_first_draft(lab, tmp_path):
    arguments = (*ARGUMENTS, *numbers("2", "2", "8"))
    rejection = effective_speculative(parse_arguments(arguments))
    assert (rejection.rule, tree_capacity_tok(2, 2)) == ("tree", 7)
    config = ServerConfig(
        arguments=arguments, command=(sys.executable, str(LAB / "serve.py")), gpus=0
    )
    with pytest.raises(ServerError, match="selected index k out of range"):
        await start_server(config, log_path=tmp_path / "log", timeouts=Timeouts(ready_s=200))
