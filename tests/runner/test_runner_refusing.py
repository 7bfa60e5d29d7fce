"""What SGLang itself refuses is told before anything is launched, with a stand-in for it."""

import json
import sys
from functools import partial

import bench_stand_ins
import pytest
from bench_stand_ins import begin as begin_simulated

from bench.errors import InputError, ScenarioError
from bench.model import EffectiveConfig, FindingKind
from bench.runner import (
    Asked,
    open_bench,
    own_answer,
    plan_of,
    publish,
    resume_run,
    run,
    start_run,
)
from bench.store import load_run

PACKAGE = """
import os, pathlib, time, types
folder = pathlib.Path(__file__).parent
def prepare_server_args(argv):
    (folder / f"asking-{os.getpid()}").touch()
    at_once = len(list(folder.glob("asking-*")))
    time.sleep(0.05)
    with (folder / "asked").open("a") as asked:
        asked.write(f"{at_once}\\n")
    (folder / f"asking-{os.getpid()}").unlink()
    given = dict(zip(argv, [*argv[1:], ""]))
    drafts = given.get("--speculative-num-draft-tokens")
    if given.get("--page-size") == "3":
        raise ValueError("page_size 3 is odd")
    if drafts == "7":
        raise ValueError("argument --speculative-num-draft-tokens: seven")
    resolved = {
        "speculative_algorithm": given.get("--speculative-algorithm"),
        "speculative_num_draft_tokens": drafts and 4,
        "speculative_num_steps": drafts and 3,
        "page_size": int(given.get("--page-size", 1)),
        "random_seed": os.getpid(),
    }
    return types.SimpleNamespace(resolved_dict=lambda: resolved)
"""
SPECULATIVE = {"algorithm": "NGRAM", "num_draft_tokens": 4}
ARMS = {"baseline": {}, "eagle3": {"speculative": SPECULATIVE}}


@pytest.fixture
def sglang(tmp_path):
    """The stand-in's folder, in which it keeps count of who asks."""
    srt = tmp_path / "sglang" / "srt"
    srt.mkdir(parents=True)
    (tmp_path / "sglang" / "version.py").write_text("__version__ = '0.5.24'")
    (srt / "server_args.py").write_text(PACKAGE)
    return srt


@pytest.fixture
def asked(tmp_path, sglang):
    """Makes the options of a run with these arms; its scenario has a line for every key."""

    def make(arms, *, arguments=(), resolve=(sys.executable,), **options):
        scenario = {
            "name": "refused",
            "question": "What would SGLang take?",
            "target": {"path": "org/model", "revision": "main"},
            "server": {
                "gpus": 0,
                "arguments": ["--max-running-requests 8", *arguments],
                "environment": {"PYTHONPATH": str(tmp_path)},
                "launcher": {"command": ["serve"], "resolve": list(resolve)},
            },
            "arms": arms,
            "workloads": {"chat": {"max_output_tok": 16, "sampling": {"temperature": 0}}},
            "loads": {"concurrency": [1]},
            "measure": {"steady_s": 1, "requests_per_slot": 2, "pairs": 2},
        }
        path = tmp_path / "refused.yaml"
        path.write_text(json.dumps(scenario, indent=1))
        return Asked(scenario=path, **options)

    return make


def line_of(tmp_path, text):
    lines = (tmp_path / "refused.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def begin(asked, tmp_path):
    return start_run(asked, tmp_path / "results", command_line=["bench", "run"])


def times_asked(sglang):
    asked = sglang / "asked"
    return len(asked.read_text().splitlines()) if asked.exists() else 0


# ------------------------------------------------------------------------------------- in a run


async def test_all_that_it_refuses_is_told_at_once_with_lines(
    world, asked, sglang, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    arms = {
        **ARMS,
        "seven": {"speculative": {**SPECULATIVE, "num_draft_tokens": 7}},
        "odd": {"arguments": "--page-size 3"},
    }
    plan, writer = begin(asked(arms), tmp_path)
    with writer, pytest.raises(ScenarioError) as caught:
        await run(plan, writer)
    seven, odd = str(caught.value).splitlines()
    drafts = line_of(tmp_path, '"num_draft_tokens": 7')
    assert seven.startswith(f"refused.yaml:{drafts} arms.seven.speculative.num_draft_tokens: ")
    assert "arm seven: SGLang 0.5.24 refuses its arguments: ValueError: argument" in seven
    page = line_of(tmp_path, "--page-size 3")
    assert odd.startswith(f"refused.yaml:{page} arms.odd.arguments: arm odd: SGLang 0.5.24")
    assert "page_size 3 is odd" in odd
    assert odd.endswith(
        "(rule C35, docs/arguments.md). Give --chunked-prefill-size a multiple of 3."
    )
    assert caught.value.exit_code == 2
    assert world.journal == []
    assert not writer.folder.exists()


async def test_what_all_arms_have_is_told_once(world, asked, tmp_path):
    plan, writer = begin(asked(ARMS, arguments=["--page-size 3"]), tmp_path)
    with writer, pytest.raises(ScenarioError) as caught:
        await run(plan, writer)
    told = str(caught.value)
    assert "server.arguments.1: arms baseline, eagle3: SGLang 0.5.24 refuses" in told
    assert len(told.splitlines()) == 1


async def test_every_server_is_asked_for_once_and_two_at_a_time(world, asked, sglang, tmp_path):
    arms = ARMS | {f"p{size}": {"arguments": f"--page-size {size}"} for size in (4, 8, 16)}
    plan, writer = begin(asked(arms), tmp_path)
    with writer:
        await run(plan, writer)
    at_once = [int(line) for line in (sglang / "asked").read_text().splitlines()]
    assert len(at_once) == len(arms)
    assert max(at_once) <= 2
    assert [step for step in world.journal if step.startswith("start")] != []


async def test_arms_that_it_makes_the_same_are_refused(world, asked, tmp_path):
    arms = {**ARMS, "wide": {"speculative": {**SPECULATIVE, "num_draft_tokens": 9}}}
    plan, writer = begin(asked(arms), tmp_path)
    with writer, pytest.raises(ScenarioError) as caught:
        await run(plan, writer)
    told = str(caught.value)
    assert "arms.wide.speculative.num_draft_tokens: arms eagle3 and wide ask for different" in told
    assert "wide: --speculative-num-draft-tokens 9) and are the same server: NGRAM" in told
    assert "num_draft_tokens 4, as SGLang itself resolves them. Remove one of them, or" in told
    assert world.journal == []


@pytest.mark.parametrize(
    "other",
    [{"speculative": SPECULATIVE}, {"arguments": "--page-size 2"}, {"environment": {"A": "1"}}],
)
async def test_arms_that_are_the_same_on_purpose_or_differ_are_measured(
    world, asked, tmp_path, other
):
    plan, writer = begin(asked({**ARMS, "other": other}), tmp_path)
    with writer:
        stored = load_run(await run(plan, writer))
    assert {m.arm for m in stored.measurements} == {"baseline", "eagle3", "other"}


async def test_a_run_taken_up_asks_for_what_is_left_and_keeps_what_it_has(
    world, asked, sglang, tmp_path
):
    plan, writer = begin(asked(ARMS), tmp_path)
    with writer:
        one = plan.launches[0]
        async with open_bench(writer, gpus=0, cells_total=4) as bench:
            await bench.measure(one)
    before = times_asked(sglang)
    text = (sglang / "server_args.py").read_text()
    (sglang / "server_args.py").write_text(text.replace('== "3"', "is None"))
    plan, writer = resume_run(writer.run_id, tmp_path / "results", command_line=["bench"])
    with writer, pytest.raises(ScenarioError):
        await run(plan, writer)
    assert times_asked(sglang) > before
    assert load_run(writer.folder).measurements


async def test_a_scenario_that_was_taken_away_meanwhile_is_told_without_lines(
    world, asked, tmp_path
):
    plan, writer = begin(asked(ARMS, arguments=["--page-size 3"]), tmp_path)
    (tmp_path / "refused.yaml").unlink()
    with writer, pytest.raises(InputError, match=r"arms baseline, eagle3: SGLang 0\.5\.24"):
        await run(plan, writer)


async def test_simulated_servers_ask_nobody(world, sglang, tmp_path):
    plan, writer = begin_simulated(tmp_path)
    with writer:
        await run(plan, writer)
    assert times_asked(sglang) == 0


# ---------------------------------------------------------------------------------- for --dry-run


def test_a_dry_run_says_who_takes_the_arguments(asked):
    plan, told = own_answer(*plan_of(asked(ARMS)))
    assert told == "Arguments: SGLang 0.5.24 itself takes those of baseline, eagle3."
    [finding] = [f for f in plan.findings if f.kind is FindingKind.ARGUMENTS_DISAGREE]
    assert finding.arm == "eagle3"


def test_a_dry_run_refuses_as_the_run_would(asked):
    with pytest.raises(ScenarioError, match=r"server\.arguments\.1: arms baseline, eagle3"):
        own_answer(*plan_of(asked(ARMS, arguments=["--page-size 3"])))


@pytest.mark.parametrize(
    ("resolve", "said"),
    [
        ((), "is not asked"),
        (("no-such-python",), "could not be asked (no-such-python)"),
    ],
)
def test_a_dry_run_says_that_nobody_was_asked(asked, resolve, said):
    plan, told = own_answer(*plan_of(asked(ARMS, resolve=resolve)))
    assert told.startswith("Arguments: by bench's rules for SGLang 0.5.23; SGLang itself ")
    assert said in told
    assert plan.findings == ()


def test_nobody_needs_to_be_asked_for_running_servers(asked, sglang):
    options = asked(ARMS, attach=(("baseline", "http://a:1"),))
    assert own_answer(*plan_of(options))[1] is None
    assert times_asked(sglang) == 0


# ----------------------------------------------------------------------------- the rules overruled

NO_STEPS = {"baseline": {}, "eagle3": {"speculative": {"algorithm": "EAGLE3", "eagle_topk": 2}}}


def test_what_the_rules_reject_and_it_takes_is_noted(asked):
    plan, _ = plan_of(asked(NO_STEPS))
    [finding] = [f for f in plan.findings if f.kind is FindingKind.ARGUMENTS_DISAGREE]
    assert finding.message.startswith("the rules reject what SGLang 0.5.24 takes: ")
    assert "rule C2" in finding.message


def test_what_fails_after_loading_is_rejected_whatever_it_says(asked, sglang):
    deep = {"algorithm": "EAGLE3", "num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 8}
    with pytest.raises(ScenarioError, match="rule tree"):
        plan_of(asked({"baseline": {}, "eagle3": {"speculative": deep}}))
    assert times_asked(sglang) == 0


def test_what_both_reject_is_told_by_the_rules(asked, sglang):
    (sglang / "server_args.py").write_text("def prepare_server_args(argv): raise ValueError")
    with pytest.raises(ScenarioError, match="rule C2"):
        plan_of(asked(NO_STEPS))


# ----------------------------------------------------------------------- what was read back counts


@pytest.fixture
def no_speculation(world, monkeypatch):
    """Every server says that it does not speculate."""
    off = EffectiveConfig(
        speculative=(("algorithm", None), ("num_draft_tokens", None)), other=(), version="0.5.24"
    )
    monkeypatch.setattr(bench_stand_ins, "Server", partial(bench_stand_ins.Server, effective=off))


async def test_arms_that_turn_out_to_be_one_server_are_told_and_their_verdict_marked(
    no_speculation, asked, tmp_path
):
    plan, writer = begin(asked(ARMS, resolve=()), tmp_path)
    with writer:
        stored = load_run(await run(plan, writer))
    [finding] = [f for f in stored.findings if f.kind is FindingKind.ARMS_ALIKE]
    assert "arms baseline and eagle3 ask for different things" in finding.message
    assert "--speculative-algorithm NGRAM" in finding.message
    [comparison] = stored.comparisons
    assert comparison.same_server_as == ("baseline",)


async def test_launches_that_are_not_compared_are_not_told_to_be_alike(
    no_speculation, asked, tmp_path
):
    plan, writer = begin(asked(ARMS, resolve=()), tmp_path)
    with writer:
        async with open_bench(writer, gpus=0, cells_total=4) as bench:
            for launch in plan.launches:
                await bench.measure(launch)
        stored = load_run(publish(plan, writer, compared=False))
    assert FindingKind.ARMS_ALIKE not in {f.kind for f in stored.findings}
