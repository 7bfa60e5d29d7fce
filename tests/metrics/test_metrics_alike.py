"""Arms that asked for different things and were the same server, by their own account."""

import dataclasses

import pytest
from metrics_cells import make_effective
from test_metrics_compare import cells_of, measured

from bench.metrics.alike import alike_arms, alike_findings, find_alike, mark_alike
from bench.metrics.compare import compare
from bench.model import FindingKind, ServerConfig, Severity

MODEL = ("--model-path", "m")
EAGLE3 = (*MODEL, "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
FOUR = ("--speculative-num-draft-tokens", "4")
EIGHT = ("--speculative-num-draft-tokens", "8")


def effective(algorithm="EAGLE3", draft_tokens=4, **changes):
    speculative = {
        "algorithm": algorithm,
        "num_steps": algorithm and 3,
        "eagle_topk": algorithm and 1,
        "num_draft_tokens": algorithm and draft_tokens,
    }
    changed = {"speculative": tuple(speculative.items())} | changes
    return dataclasses.replace(make_effective(), **changed)


def server(*arguments, **changes):
    return ServerConfig(arguments=arguments, **changes)


TWO = {"narrow": server(*EAGLE3, *FOUR), "wide": server(*EAGLE3, *EIGHT)}


def alike(servers=TWO, **configs):
    return find_alike(servers, {arm: [config] for arm, config in configs.items()})


def test_what_was_asked_and_what_became_of_it_is_told():
    [pair] = alike(narrow=effective(), wide=effective())
    assert pair.arms == ("narrow", "wide")
    assert pair.told == (
        "arms narrow and wide ask for different things (narrow: --speculative-num-draft-tokens 4; "
        "wide: --speculative-num-draft-tokens 8) and are the same server: EAGLE3, num_steps 3, "
        "eagle_topk 1, num_draft_tokens 4"
    )


def test_speculation_that_was_not_taken_up_is_the_baseline():
    servers = {"baseline": server(*MODEL), "eagle3": server(*MODEL, *EAGLE3[2:4])}
    off = effective(algorithm=None)
    [pair] = alike(servers, baseline=off, eagle3=off)
    assert "baseline: no --speculative-algorithm; eagle3: --speculative-algorithm EAGLE3" in (
        pair.told
    )
    assert pair.told.endswith("the same server: no speculation")


@pytest.mark.parametrize(
    "changes",
    [
        {"draft_tokens": 8},
        {"other": (("attention_backend", "triton"), ("max_running_requests", "64"))},
        {"decode_graph_batch_sizes": (1, 2)},
        {"version": "0.5.24"},
    ],
)
def test_arms_that_became_different_servers_are_none(changes):
    assert alike(narrow=effective(), wide=effective(**changes)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"max_total_num_tokens": 99_000},
        {"other": (*effective().other[:2], ("random_seed", "8"), ("max_req_input_len", "9"))},
    ],
)
def test_what_varies_between_starts_of_one_server_tells_no_two_apart(changes):
    assert alike(narrow=effective(), wide=effective(**changes))


def test_arms_that_ask_for_the_same_are_not_told_off():
    again = {"narrow": TWO["narrow"], "again": server(*EAGLE3, *FOUR, url="http://b:1")}
    assert alike(again, narrow=effective(), again=effective()) == ()


@pytest.mark.parametrize(
    "changes", [{"environment": (("NCCL_ALGO", "Ring"),)}, {"launcher": "template"}]
)
def test_arms_that_differ_in_more_than_arguments_are_what_they_were_meant_to_be(changes):
    servers = {**TWO, "wide": server(*EAGLE3, *EIGHT, **changes)}
    assert alike(servers, narrow=effective(), wide=effective()) == ()


def test_of_an_argument_that_no_account_has_nothing_is_said():
    servers = {**TWO, "wide": server(*EAGLE3, *FOUR, "--log-level", "debug")}
    assert alike(servers, narrow=effective(), wide=effective()) == ()
    logs = [
        effective(other=(*effective().other, ("log_level", level))) for level in ("info", "debug")
    ]
    assert alike(servers, narrow=logs[0], wide=logs[1]) == ()


def test_one_launch_that_was_another_server_keeps_arms_apart():
    configs = {"narrow": [effective()], "wide": [effective(), effective(draft_tokens=8)]}
    assert find_alike(TWO, configs) == ()


# --------------------------------------------------------------------------------------- in a run


def in_a_run(*arms):
    cells = [measured(arm, pair, 100 + pair) for arm in arms for pair in (0, 1)]
    configs = {m.launch_id: effective() for _, m in cells}
    return cells, configs


def test_the_finding_is_the_run_s_and_says_that_the_difference_is_noise():
    cells, configs = in_a_run("narrow", "wide")
    [finding] = alike_findings(alike_arms(cells, configs, TWO), TWO)
    assert finding.kind is FindingKind.ARMS_ALIKE
    assert (finding.severity, finding.arm, finding.cell_id) == (Severity.SUSPECT, "wide", None)
    assert "the same server" in finding.message
    assert "noise" in finding.advice


def test_two_running_servers_may_differ_for_being_two():
    attached = {
        arm: dataclasses.replace(one, launcher="attached", url=f"http://{arm}:1")
        for arm, one in TWO.items()
    }
    cells, configs = in_a_run("narrow", "wide")
    [finding] = alike_findings(alike_arms(cells, configs, attached), attached)
    assert "they are two servers" in finding.message


def test_verdicts_with_such_an_arm_are_marked():
    servers = {
        "baseline": server(*MODEL),
        "eagle3": TWO["narrow"],
        "wide": TWO["wide"],
    }
    cells = [*cells_of([100, 100], [110, 111]), *(measured("wide", i, 112) for i in (0, 1))]
    off = effective(algorithm=None)
    configs = {m.launch_id: off if m.arm == "baseline" else effective() for _, m in cells}
    pairs = alike_arms(cells, configs, servers)
    made = mark_alike(compare(cells, configs, margin=0.02, pairs_planned=2), pairs)
    assert {c.arm: c.same_server_as for c in made} == {"eagle3": ("wide",), "wide": ("eagle3",)}
    configs |= {f"eagle3-{i}": effective(draft_tokens=8) for i in (0, 1)}
    made = mark_alike(made, alike_arms(cells, configs, servers))
    assert {c.same_server_as for c in made} == {()}
