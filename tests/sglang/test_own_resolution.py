"""SGLang asked for its own resolution, with stand-ins for the `sglang` package."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.sglang.own_resolution import Judgement, OwnResolution, ask_sglang, judge

EAGLE3 = ["--model-path", "m", "--speculative-algorithm", "EAGLE3"]
CHAIN = [*EAGLE3, "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]

NEW = """
import argparse
class Arguments:
    def __init__(self, given): self.given = given
    def resolve_once(self):
        if self.given.steps == 9: raise ValueError("nine is too many")
        assert self.given.steps != 8
        if self.given.steps == 7: raise SystemExit(1)
        self.done = True
    def check_server_args(self):
        assert self.given.steps != 6, "six after all"
    def resolved_dict(self):
        assert self.done
        return {"speculative_num_steps": self.given.steps, "path": __file__, "odd": object()}
def prepare_server_args(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    print("said on the way")
    return Arguments(parser.parse_args(argv))
"""
OLD = """
class Arguments:
    def __init__(self, argv):
        if "bad" in argv: raise ValueError("bad")
        self.argv, self._hidden = argv, 1
prepare_server_args = Arguments
"""


@pytest.fixture
def sglang(tmp_path):
    """Makes a package `sglang` and gives the environment in which it is found."""

    def make(server_args, version="0.5.23"):
        package = tmp_path / "sglang"
        (package / "srt").mkdir(parents=True)
        (package / "version.py").write_text(f"__version__ = {version!r}\n")
        (package / "srt" / "server_args.py").write_text(server_args)
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    return make


def ask(environment, *arguments, python=(sys.executable,), **options):
    options = {"environment": environment, "gpus": 0, **options}
    return asyncio.run(ask_sglang(python, arguments, **options))


def test_what_it_resolves_comes_back(sglang):
    own = ask(sglang(NEW), "--steps", "3")
    assert own.version == "0.5.23"
    assert own.resolved["speculative_num_steps"] == 3
    assert own.resolved["odd"].startswith("<object")
    assert (own.refusal, own.not_asked) == (None, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--steps 9", "ValueError: nine is too many (in resolve_once, server_args.py:"),
        ("--steps 8", "AssertionError (in resolve_once, server_args.py:"),
        ("--steps 7", "SystemExit: 1"),
        ("--steps 6", "AssertionError: six after all (in check_server_args"),
        ("--steps many", "argument --steps: invalid int value: 'many'"),
        ("--stepz 3", "unrecognized arguments: --stepz 3"),
    ],
)
def test_why_it_refuses_comes_back(sglang, words, said):
    own = ask(sglang(NEW), *words.split())
    assert own.resolved is None
    assert said in own.refusal
    assert "\n" not in own.refusal


def test_a_version_that_resolves_while_it_parses(sglang):
    environment = sglang(OLD, version="0.4.9")
    own = ask(environment, "--x", "1")
    assert own == OwnResolution(version="0.4.9", resolved={"argv": ["--x", "1"]})
    assert ask(environment, "bad").refusal.startswith("ValueError: bad")


def test_no_gpu_is_shown_to_a_server_without(sglang):
    code = "import os\ndef prepare_server_args(argv):\n raise ValueError(str(%s))"
    seen = sglang(code % "os.environ.get('CUDA_VISIBLE_DEVICES')")
    seen.pop("CUDA_VISIBLE_DEVICES", None)
    assert "ValueError (in" in ask(seen).refusal
    assert "ValueError: None" in ask(seen, gpus=1).refusal


def test_without_sglang_nobody_is_asked():
    assert "SGLang cannot be imported: ModuleNotFoundError" in ask(dict(os.environ)).not_asked


def test_a_command_that_there_is_not():
    assert "no-such-python" in ask(dict(os.environ), python=("no-such-python",)).not_asked


def test_an_end_without_an_answer(sglang):
    code = "import os, sys\ndef prepare_server_args(argv):\n print('boom', file=sys.stderr)\n"
    own = ask(sglang(code + " sys.stderr.flush()\n os._exit(9)"))
    assert own.not_asked == "exit status 9, and at the end nothing"


def test_it_is_given_up_after_a_time(sglang, tmp_path):
    pid = tmp_path / "pid"
    code = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    own = ask(sglang(code), timeout_s=1.0)
    assert own.not_asked == "no answer within 1 s"
    if pid.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


# ---------------------------------------------------------------------------- the rules beside it


def judged(arguments, own):
    return judge(arguments, own, environment={})


def test_what_both_say_is_no_disagreement():
    resolved = {"speculative_num_steps": 3, "speculative_num_draft_tokens": 4}
    own = OwnResolution(version="0.5.23", resolved=resolved)
    assert judged([*CHAIN, "--max-running-requests", "64"], own) == Judgement()


def test_what_it_resolves_otherwise_is_told():
    own = OwnResolution(version="0.6.0", resolved={"speculative_num_draft_tokens": 3})
    [told] = judged(CHAIN, own).disagreements
    assert (
        told == "speculative_num_draft_tokens is 3 in SGLang 0.6.0, not 0.5.23, and 4 by the rules"
    )


def test_its_refusal_is_told_with_our_rule():
    own = OwnResolution(version="0.5.23", refusal="TypeError")
    found = judged([*EAGLE3, "--speculative-num-steps", "3"], own)
    assert found.refusal.startswith("SGLang 0.5.23 refuses its arguments: TypeError. ")
    assert found.refusal.endswith("(rule C1, docs/arguments.md)")
    assert found.fix.startswith("Give --speculative-eagle-topk")


def test_a_refusal_of_another_version_is_told_with_our_advice():
    own = OwnResolution(version="0.6.0", refusal="AssertionError")
    arguments = [*CHAIN, "--attention-backend", "flex_attention"]
    assert judged(arguments, own).refusal.endswith("(rule C32, docs/arguments.md)")


def test_a_refusal_that_no_rule_knows_is_told_as_it_is():
    own = OwnResolution(version="0.5.23", refusal="ValueError: no")
    found = judged(CHAIN, own)
    assert found.refusal == "SGLang 0.5.23 refuses its arguments: ValueError: no"
    assert found.fix


def test_what_it_takes_and_the_rules_would_not_is_told():
    taken = OwnResolution(version="0.6.0", resolved={})
    flex = [*CHAIN, "--attention-backend", "flex_attention"]
    told = judged(flex, taken).disagreements[0]
    assert told.startswith("the rules would refuse")
    assert told.endswith("(rule C32, docs/arguments.md)")
    steps_alone = [*EAGLE3, "--speculative-num-steps", "3"]
    told = judged(steps_alone, taken).disagreements[0]
    assert told.startswith("the rules reject")
    assert told.endswith("(rule C1, docs/arguments.md)")


DRAFTING = "--speculative-num-steps 2 --speculative-eagle-topk"
LAB_MODELS = Path(__file__).parents[1] / "lab" / "models"
LAB_CHAIN = [
    *("--model-path", str(LAB_MODELS / "tiny-llama"), "--speculative-algorithm", "EAGLE3"),
    *("--speculative-draft-model-path", str(LAB_MODELS / "tiny-eagle3")),
    *("--max-running-requests", "64"),
]


@pytest.mark.parametrize(
    ("arguments", "resolved", "rule"),
    [
        (f"{DRAFTING} 2 --speculative-num-draft-tokens 8", {}, "tree"),
        ("--speculative-adaptive --device cpu", {}, "adaptive-cpu"),
        ("--speculative-adaptive", {"device": "cpu"}, "adaptive-cpu"),
        (f"{DRAFTING} 1", {"attention_backend": "torch_native"}, "C33"),
        (f"{DRAFTING} 1", {"decode_attention_backend": "trtllm_mla"}, "C33"),
    ],
)
def test_what_fails_once_it_has_loaded_is_refused_though_it_takes_it(arguments, resolved, rule):
    own = OwnResolution(version="0.5.23", resolved=resolved)
    found = judged([*LAB_CHAIN, *arguments.split()], own)
    assert found.refusal.startswith("SGLang 0.5.23 takes its arguments, and fails with them later")
    assert found.refusal.endswith(f"(rule {rule}, docs/arguments.md)")
    assert found.fix.startswith("Give ")
    assert found.disagreements == ()
    other = judged([*LAB_CHAIN, *arguments.split()], replace(own, version="0.6.0"))
    assert other.refusal is None  # nothing is known of it: the start decides
    assert all(f"(rule {rule}," in told for told in other.disagreements)
    assert len(other.disagreements) == (rule == "tree")  # which holds whatever the version


def test_what_it_settles_itself_keeps_a_launch_that_works():
    resolved = {"attention_backend": "flashinfer", "speculative_num_steps": 5, "page_size": 1}
    resolved |= {"speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
    own = OwnResolution(version="0.5.23", resolved=resolved | {"context_length": None})
    assert judged(LAB_CHAIN, own) == Judgement()


def test_nobody_asked_is_no_judgement():
    assert judged(CHAIN, OwnResolution(not_asked="no such file")) == Judgement()


def test_the_answer_of_the_recorded_server_agrees_with_the_rules(recording):
    info = json.loads((recording / "server_info.json").read_text())
    own = OwnResolution(version="0.5.23", resolved=info)
    assert judged(info["launch_command"].split(), own) == Judgement()
