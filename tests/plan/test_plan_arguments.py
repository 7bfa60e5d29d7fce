"""What a plan says of arms by the rules of SGLang's arguments, before anything is started."""

from __future__ import annotations

import json

import pytest

from bench.errors import ScenarioError
from bench.model import FindingKind
from bench.plan import make_plan

ARGUMENTS = "--max-running-requests 64"
IN_DOCKER = ["docker", "run", "i", "python3"]
NUMACTL = ["numactl", "-N0", "python3"]
CHAIN = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
LLAMA = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}


def _rejected(loaded, scenario, **options) -> str:
    with pytest.raises(ScenarioError) as caught:
        make_plan(loaded(scenario), **options)
    return str(caught.value)


def _told(plan, kind=FindingKind.ARGUMENTS_ADVICE) -> list[tuple[str, str]]:
    return [(f.arm, f.message) for f in plan.findings if f.kind is kind]


@pytest.fixture
def local(small, tmp_path):
    """The scenario with a target whose config.json can be read."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(LLAMA))
    small["target"] = {"path": "./target", "revision": "main"}
    return small


# --------------------------------------------------------------------------------------- one arm


@pytest.mark.parametrize(
    ("speculative", "rule"),
    [
        ({"algorithm": "EAGLE3", "num_steps": 3}, "C1"),
        ({"algorithm": "EAGLE3", "eagle_topk": 2}, "C2"),
        ({"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 2}, "C4"),
        ({**CHAIN, "num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 8}, "tree"),
    ],
)
def test_what_no_version_starts_with_is_rejected_with_its_line(loaded, small, speculative, rule):
    small["arms"]["eagle3"]["speculative"] = speculative
    said = _rejected(loaded, small)
    assert "s.yaml:" in said
    assert "arms.eagle3.speculative" in said
    assert said.endswith(f"(rule {rule}, docs/arguments.md)")


@pytest.mark.parametrize(
    ("speculative", "arguments", "key"),
    [
        ({**CHAIN, "eagle_topk": 2, "num_draft_tokens": 99}, (), "speculative.num_draft_tokens"),
        ({**CHAIN, "eagle_topk": 2, "num_draft_tokens": None}, (), "speculative.eagle_topk"),
        ({**CHAIN, "eagle_topk": None}, (), "speculative.num_steps"),
        (CHAIN, ("--mem-fraction-static 0.8", "--page-size many"), "arguments.1"),
        ({**CHAIN, "algorithm": "STANDALONE"}, ("--attn-dp-size 2",), "arguments"),
    ],
)
def test_a_rejection_names_the_line_of_what_it_is_about(
    loaded, small, speculative, arguments, key
):
    asked = {name: value for name, value in speculative.items() if value is not None}
    small["server"]["gpus"] = 8
    small["arms"]["eagle3"] |= {"speculative": asked, "arguments": list(arguments)}
    said = _rejected(loaded, small)
    assert f" arms.eagle3.{key}: " in said


def test_what_one_version_refuses_is_advised_on_an_unknown_one(loaded, with_sim):
    with_sim["arms"]["eagle3"]["arguments"] = "--attention-backend flex_attention"
    assert "(rule C32, docs/arguments.md)" in _rejected(loaded, with_sim, simulated=True)
    [message] = [text for _, text in _told(make_plan(loaded(with_sim))) if "C32" in text]
    assert message.startswith("SGLang 0.5.23 refuses this: flex_attention cannot speculate")
    assert message.endswith("(rule C32, docs/arguments.md)")


def test_a_change_of_what_was_asked_is_told(loaded, small):
    small["arms"]["eagle3"]["speculative"] = {**CHAIN, "num_draft_tokens": 9}
    [(arm, message)] = _told(make_plan(loaded(small)))
    assert arm == "eagle3"
    assert message.startswith("num_draft_tokens was 9 and becomes 4, since topk is 1")
    assert message.endswith("(rule C3, docs/arguments.md).")


def test_nothing_is_told_of_an_arm_that_is_what_it_says(loaded, small, with_sim):
    with_sim["sim"]["speed"] = 1
    assert make_plan(loaded(small)).findings == ()
    assert make_plan(loaded(with_sim), simulated=True).findings == ()


def test_arms_that_are_left_out_are_not_told_of(loaded, small):
    small["arms"]["odd"] = {"speculative": {**CHAIN, "num_steps": 5, "num_draft_tokens": 9}}
    assert _told(make_plan(loaded(small)))[0][0] == "odd"
    assert make_plan(loaded(small), only=["arm=eagle3"]).findings == ()


def test_the_targets_config_decides(loaded, local):
    local["arms"]["eagle3"]["draft"] = None
    assert "LlamaForCausalLM has no draft layer of its own" in _rejected(loaded, local)


def test_the_hardware_card_tells_the_default_backend(loaded, with_sim, tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(LLAMA))
    with_sim["target"] = {"path": "./target", "revision": "main"}
    tree = {**CHAIN, "eagle_topk": 4, "num_draft_tokens": 8}
    with_sim["arms"]["eagle3"]["speculative"] = tree
    [(arm, message)] = _told(make_plan(loaded(with_sim)))
    assert arm == "eagle3"
    assert "attention runs on flashinfer, without speculation on fa3" in message


# -------------------------------------------------------------------------------------- the loads


def test_prompts_and_answers_must_fit_the_context(loaded, small):
    small["server"]["arguments"] = f"{ARGUMENTS} --context-length 4160"
    said = _rejected(loaded, small)
    assert "workloads.long.max_output_tok" in said
    assert "a prompt of 4096 tokens and an answer of 64, and 4 that speculation keeps" in said
    assert "the context of 4160 of arm eagle3" in said
    small["server"]["arguments"] = f"{ARGUMENTS} --context-length 4164"
    assert make_plan(loaded(small)).findings == ()
    small["server"]["arguments"] = f"{ARGUMENTS} --context-length 4k"
    assert "more than the context of 4000 of arm baseline" in _rejected(loaded, small)


def test_the_context_of_a_local_target_counts(loaded, local, tmp_path):
    config = {**LLAMA, "max_position_embeddings": 4096}
    (tmp_path / "target" / "config.json").write_text(json.dumps(config))
    assert "more than the context of 4096 of arm baseline" in _rejected(loaded, local)


def test_prompts_of_unknown_length_must_leave_room_for_the_answer(loaded, small):
    del small["workloads"]["long"]
    small["workloads"]["chat"]["input_tok"] = None
    small["server"]["arguments"] = f"{ARGUMENTS} --context-length 128"
    assert "a prompt of at least 1 tokens" in _rejected(loaded, small)


def test_a_load_beyond_the_captured_graphs_is_told(loaded, small):
    small["server"] |= {"gpus": 8, "arguments": f"{ARGUMENTS} --cuda-graph-max-bs-decode 4"}
    told = _told(make_plan(loaded(small)))
    assert [arm for arm, _ in told] == ["baseline", "eagle3"]
    assert "captured for batches up to 4, and the largest load is 8" in told[0][1]
    small["server"]["arguments"] = f"{ARGUMENTS} --cuda-graph-max-bs-decode 8"
    assert make_plan(loaded(small)).findings == ()


def test_each_attention_rank_has_its_share_of_the_load(loaded, small):
    graphs = "--cuda-graph-max-bs-decode 4 --attn-dp-size 2"
    small["server"] |= {"gpus": 8, "arguments": f"{ARGUMENTS} {graphs}"}
    assert not [m for _, m in _told(make_plan(loaded(small))) if "rule C44" in m]


# ------------------------------------------------------------------------------------- likenesses


def test_arms_that_the_server_makes_the_same_are_rejected(loaded, small):
    small["arms"]["wide"] = {"speculative": {**CHAIN, "num_draft_tokens": 16}}
    said = _rejected(loaded, small)
    assert "arms.wide.speculative" in said
    assert "arms eagle3 and wide are the same server" in said
    assert "num_draft_tokens was 16 and becomes 4" in said


def test_arms_that_ask_the_same_are_taken_for_a_check(loaded, small):
    small["arms"] |= {"again": {}, "eagle3-again": small["arms"]["eagle3"]}
    told = _told(make_plan(loaded(small)), FindingKind.ARMS_ALIKE)
    assert told == [
        ("again", "arms baseline and again are the same server."),
        ("eagle3-again", "arms eagle3 and eagle3-again are the same server."),
    ]


def test_what_makes_arms_the_same_on_one_version_alone_is_told(loaded, with_sim):
    with_sim["workloads"]["long"]["sampling"] = {"temperature": 0}
    with_sim["arms"]["lossless"] = {
        "speculative": CHAIN,
        "arguments": "--speculative-use-rejection-sampling",
    }
    [(arm, message)] = _told(make_plan(loaded(with_sim)), FindingKind.ARMS_ALIKE)
    assert arm == "lossless"
    assert message.startswith("arms eagle3 and lossless are the same server by SGLang's rules")
    assert "the same server" in _rejected(loaded, with_sim, simulated=True)


@pytest.mark.parametrize(
    "other",
    [
        {"speculative": CHAIN, "environment": {"X": "1"}},
        {"speculative": CHAIN, "draft": {"path": "org/other", "revision": "main"}},
        {"speculative": CHAIN, "arguments": "--page-size 4"},
        {"speculative": {**CHAIN, "num_steps": 5, "num_draft_tokens": 6}},
    ],
)
def test_arms_that_differ_in_anything_are_not_the_same(loaded, small, other):
    small["arms"]["other"] = other
    assert make_plan(loaded(small)).findings == ()


def test_simulated_arms_with_drafts_of_their_own_quality_are_not_the_same(loaded, with_sim):
    with_sim["sim"]["speed"] = 1
    with_sim["arms"]["better"] = {"speculative": CHAIN, "sim": {"acceptance": [0.9]}}
    assert make_plan(loaded(with_sim), simulated=True).findings == ()


# --------------------------------------------------------------------------------- who is asked


@pytest.mark.parametrize(
    ("launcher", "resolve"),
    [
        ({}, ("python3",)),
        ({"command": [*NUMACTL, "-m", "sglang.launch_server"]}, tuple(NUMACTL)),
        ({"command": ["sglang", "serve"]}, ()),
        ({"command": ["./serve"], "resolve": ["/opt/venv/bin/python"]}, ("/opt/venv/bin/python",)),
        ({"resolve": []}, ()),
        ({"kind": "docker", "image": "i"}, ()),
        ({"kind": "docker", "image": "i", "resolve": IN_DOCKER}, tuple(IN_DOCKER)),
    ],
)
def test_who_is_asked_what_it_makes_of_the_arguments(loaded, small, launcher, resolve):
    small["server"]["launcher"] = launcher
    plan = make_plan(loaded(small))
    assert {launch.server.resolve for launch in plan.launches} == {resolve}


def test_who_is_asked_changes_no_id(loaded, small):
    ids = []
    for resolve in ([], ["python3.11"]):
        small["server"]["launcher"] = {"resolve": resolve}
        launches = make_plan(loaded(small)).launches
        ids.append([(x.server_key, [cell.cell_id for cell in x.cells]) for x in launches])
    assert ids[0] == ids[1]
