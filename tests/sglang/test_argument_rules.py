"""Every rule of bench.sglang.arguments, held against what SGLang is known to do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rule_cases import CASES, CONFIGS, command_line, name_of

from bench.sglang.arguments import (
    RULES,
    RULES_BY_ID,
    SUPPORTED,
    EffectiveSpeculative,
    Known,
    Rejection,
    effective_speculative,
    known_graph_batch_sizes,
    likeness,
    model_facts,
    parse_arguments,
)
from bench.sglang.arguments.outcome import as_text

MODELS = {name: model_facts(config) for name, config in CONFIGS.items()}


def known_of(case):
    return Known(
        version=SUPPORTED,
        target=MODELS[case.get("target", "llama")],
        draft=MODELS.get(case.get("draft")),
        gpu=case.get("gpu", "cpu"),
        gpu_memory_gib=141,
        temperatures=tuple(case.get("temperatures", ())),
    )


def outcome(case, **changes):
    return effective_speculative(
        parse_arguments(command_line(case)), replace(known_of(case), **changes)
    )


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_known_of_sglang(case):
    found = outcome(case)
    if case.get("but_we") == "advise" or "advised" in case:
        assert isinstance(found, EffectiveSpeculative), found
        assert case["rule"] in {advice.rule for advice in found.advice}
    elif "becomes" in case:
        assert isinstance(found, EffectiveSpeculative), found
        values = {dest: as_text(value) for dest, value in found.values}
        values["max_running_requests"] = as_text(found.max_running_requests)
        for dest, value in case["becomes"].items():
            asked = parse_arguments(command_line(case)).get(dest)
            assert values.get(dest, asked) == as_text(value), dest
    else:
        assert isinstance(found, Rejection), found
        assert found.rule == case["rule"]
        assert found.reason.endswith(".")
        assert found.fix.endswith(".")
        assert found.late == ("late" in case)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "refused" in case or "late" in case], ids=name_of
)
def test_on_another_version_only_lasting_rules_reject(case):
    found = outcome(case, version="0.7.0")
    if isinstance(found, Rejection):
        assert RULES_BY_ID[found.rule].always
    else:
        assert not RULES_BY_ID[case["rule"]].always
        assert case["rule"] in {advice.rule for advice in found.advice}


def proofs_of(rule, cases):
    """What names a rule: cases of its name in which it is this rule that speaks, tests below.

    A case in which the rule keeps silent, or another speaks, shows nothing of it.
    """
    beginning = f"test_{rule.lower().replace('-', '_')}_"
    own = [name for name, found in globals().items() if name.startswith(beginning) and found]
    return own + [name_of(c) for c in cases if c["rule"] == rule and rule in spoken(outcome(c))]


def spoken(found):
    return {found.rule} if isinstance(found, Rejection) else rules_told(found)


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule_is_named_by_a_test(rule):
    """By a case of rule_cases.yaml, or by a test below: `test_c39_…`."""
    assert proofs_of(rule, CASES)


def test_a_rule_without_a_test_is_noticed():
    assert proofs_of("C45", CASES) == []
    without = [rule.id for rule in RULES if not proofs_of(rule.id, [])]
    assert len(without) > 40  # nearly all rest on cases alone
    silent = [case for case in CASES if case["rule"] not in spoken(outcome(case))]
    assert all(proofs_of(case["rule"], silent) == proofs_of(case["rule"], []) for case in silent)


def test_the_numbered_rules_are_all_there():
    assert [rule.id for rule in RULES][:44] == [f"C{number}" for number in range(1, 45)]
    assert len(RULES_BY_ID) == len(RULES)


# ----------------------------------------------------- rules that resolving alone does not show


def effective(arguments, known=None):
    known = known or Known(version=SUPPORTED)
    found = effective_speculative(parse_arguments(arguments.split()), known)
    assert isinstance(found, EffectiveSpeculative), found
    return found


def rules_told(found):
    return {advice.rule for advice in found.advice} | {change.rule for change in found.changes}


EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"
CHAIN = f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 1"


def test_c12_more_running_requests_than_half_the_cache_are_told():
    asked = "--max-running-requests 64 --max-total-tokens"
    [advice] = effective(f"{asked} 100").advice
    assert "only 50 will run" in advice.text
    assert effective(f"{asked} 128").advice == ()
    [advice] = effective(
        "--max-running-requests 128 --max-total-tokens 100 --attn-dp-size 2"
    ).advice
    assert "only 100 will run" in advice.text


def test_c13_eagles_chains_keep_mixed_chunk():
    assert "C13" not in rules_told(effective(f"{CHAIN} --enable-mixed-chunk"))
    assert "C13" in rules_told(effective("--speculative-algorithm NGRAM --enable-mixed-chunk"))


def test_c24_whether_a_target_brings_a_dspark_draft_may_not_be_known():
    [advice] = [a for a in effective("--speculative-algorithm DSPARK").advice if a.rule == "C24"]
    assert "unless the target has one beside it" in advice.text
    assert not advice.refused


def test_c42_hisparse_does_not_adapt():
    line = f"{CHAIN} --enable-hisparse --speculative-adaptive"
    found = effective_speculative(parse_arguments(line.split()), Known(version=SUPPORTED))
    assert isinstance(found, Rejection)
    assert (found.rule, "adaptive" in found.reason) == ("C42", True)


@pytest.mark.parametrize(
    ("version", "backend", "rejected"),
    [
        ("0.5.5", "fa3", True),
        ("0.4.9.post2", "triton", True),
        ("0.5.5", "flashinfer", False),
        (SUPPORTED, "fa3", False),
        (None, "fa3", False),
        ("main", "fa3", False),
    ],
)
def test_c5_older_versions_draft_trees_over_pages_on_flashinfer_alone(version, backend, rejected):
    tree = f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 4 "
    tree += f"--speculative-num-draft-tokens 8 --page-size 64 --attention-backend {backend}"
    found = effective_speculative(parse_arguments(tree.split()), Known(version=version))
    assert (isinstance(found, Rejection) and found.rule == "C5") is rejected


@pytest.mark.parametrize("gpu", ["hopper", "sm100", "sm120", "other"])
def test_c8_a_chain_has_the_baselines_backend(gpu):
    known = Known(version=SUPPORTED, gpu=gpu, target=MODELS["llama"])
    chain, plain = (dict(effective(a, known).values) for a in (CHAIN, ""))
    assert chain["attention_backend"] == plain["attention_backend"]
    assert "C8" not in rules_told(effective(CHAIN, known))


def test_c8_and_c9_advise_to_pin_the_backend():
    known = Known(version=SUPPORTED, gpu="sm100", target=MODELS["llama"])
    tree = f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 4 "
    tree += "--speculative-num-draft-tokens 8"
    assert "C8" in rules_told(effective(tree, known))
    assert "C9" in rules_told(effective(EAGLE3, known))
    assert not {"C8", "C9"} & rules_told(effective(f"{tree} --attention-backend triton", known))


@pytest.mark.parametrize("architecture", ["Gemma4AssistantForCausalLM"])
@pytest.mark.parametrize("algorithm", ["NEXTN", "EAGLE", "EAGLE3"])
def test_algorithm_of_a_gemma_4_assistant(architecture, algorithm):
    known = Known(version=SUPPORTED, draft=model_facts({"architectures": [architecture]}))
    line = CHAIN.replace("EAGLE3", algorithm)
    if algorithm == "EAGLE3":
        found = effective_speculative(parse_arguments(line.split()), known)
        assert isinstance(found, Rejection)
        assert (found.rule, found.fix) == ("algorithm", "Take NEXTN.")
        return
    found = effective(f"{line} --enable-mixed-chunk", known)
    assert found.algorithm == "FROZEN_KV_MTP"
    assert {"algorithm", "C10", "C13"} <= rules_told(found)


def test_c39_deepseek_v4_takes_chains_that_are_asked_for():
    known = Known(
        version=SUPPORTED, target=model_facts({"architectures": ["DeepseekV4ForCausalLM"]})
    )
    for arguments in ("EAGLE", "EAGLE3", "NEXTN"):
        asked = parse_arguments(["--speculative-algorithm", arguments])
        found = effective_speculative(asked, known)
        assert isinstance(found, Rejection)
        assert found.rule == "C39"
    found = effective("--speculative-algorithm NEXTN --speculative-num-steps 3 "
                      "--speculative-eagle-topk 1", known)  # fmt: skip
    assert found.max_running_requests == 256
    assert dict(found.values).get("speculative_num_draft_tokens") == 4


def test_c44_sizes_are_finer_with_speculation_and_end_at_the_running_limit():
    known = Known(version=SUPPORTED, gpu="hopper", gpu_memory_gib=141)
    sizes = []
    for arguments in ("", CHAIN):
        text = f"--max-running-requests 24 {arguments}"
        asked = parse_arguments(text.split())
        sizes.append(known_graph_batch_sizes(asked, effective(text, known), known))
    assert sizes == [(1, 2, 4, 8, 12, 16, 24), (*range(1, 9), *range(10, 25, 2))]


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ("--disable-cuda-graph", ()),
        ("--cuda-graph-bs-decode 4 1 8", (1, 4, 8)),
        ("--cuda-graph-max-bs-decode 3", (1, 2, 3)),
        ("--cuda-graph-max-bs-decode 3 --disable-cuda-graph-padding", (1, 2, 3)),
        ('--cuda-graph-config {"decode":{"bs":[2,6]}} --cuda-graph-max-bs-decode 3', (2, 6)),
        ('--cuda-graph-config {"decode":{"backend":"disabled"}}', ()),
        ("", None),
        ("--device cpu", None),
    ],
)
def test_c44_sizes_that_the_command_line_tells(arguments, sizes):
    asked = parse_arguments(arguments.split())
    assert known_graph_batch_sizes(asked, effective(arguments), Known()) == sizes


def test_c44_sizes_by_memory():
    for memory_gib, tp, most in (
        (16, 1, 8),
        (24, 1, 48),
        (48, 4, 160),
        (80, 1, 256),
        (192, 1, 512),
    ):
        known = Known(gpu="other", gpu_memory_gib=memory_gib)
        text = f"--tp-size {tp}"
        sizes = known_graph_batch_sizes(parse_arguments(text.split()), effective(text), known)
        assert sizes[-1] == most


def test_context_is_kept_for_the_drafts_of_eagle_alone():
    tree = f"{EAGLE3} --speculative-num-steps 5 --speculative-eagle-topk 4 "
    assert effective(f"{tree} --speculative-num-draft-tokens 8").reserved_tok == 20
    assert effective(CHAIN).reserved_tok == 4
    assert (
        effective(f"{CHAIN} --speculative-adaptive").reserved_tok == 8
    )  # it may go up to 7 steps
    assert effective("").reserved_tok == 0
    assert effective("--speculative-algorithm NGRAM").reserved_tok == 0
    assert effective(EAGLE3).reserved_tok is None  # the server chooses


def test_spec_v2_is_a_variable_of_older_versions():
    tree = f"{EAGLE3} --speculative-num-steps 5 --speculative-eagle-topk 4 "
    tree += "--speculative-num-draft-tokens 8"
    known = Known(version="0.5.5", environment={"SGLANG_ENABLE_SPEC_V2": "1"})
    found = effective_speculative(parse_arguments(tree.split()), known)
    assert isinstance(found, Rejection)
    assert found.rule == "spec-v2"
    assert effective(CHAIN, known).num_draft_tokens == 4
    assert "spec-v2" in rules_told(effective(tree, replace(known, version=SUPPORTED)))
    assert "spec-v2" not in rules_told(effective(tree, replace(known, environment={})))


def test_adaptive_candidates_are_read_from_their_file(tmp_path):
    path = tmp_path / "adaptive.json"
    path.write_text(
        json.dumps({"1": {"candidate_steps": [2, 4]}, "8": {"candidate_steps": [2, 6]}})
    )
    found = effective(f"{EAGLE3} --speculative-adaptive --speculative-adaptive-config {path}")
    assert (found.num_steps, found.num_draft_tokens, found.most_draft_tokens) == (4, 5, 7)
    found = effective(f"{EAGLE3} --speculative-adaptive --speculative-adaptive-config nowhere")
    assert (found.num_steps, found.eagle_topk) == (None, 1)


def alike(first, second, known=None):
    asked = [parse_arguments(text.split()) for text in (first, second)]
    one, other = (
        likeness(a, effective(t, known)) for a, t in zip(asked, (first, second), strict=True)
    )
    return one == other


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (f"{CHAIN} --speculative-num-draft-tokens 9", CHAIN, True),
        (CHAIN, CHAIN.replace("EAGLE3", "eagle3"), True),
        (CHAIN, CHAIN.replace("steps 3", "steps 4"), False),
        (CHAIN, CHAIN.replace("--speculative-num-steps 3", "--speculative-num-steps=3"), True),
        (CHAIN, f"{CHAIN} --speculative-attention-mode prefill", True),
        (CHAIN, f"{CHAIN} --speculative-attention-mode decode", False),
        (CHAIN, f"{CHAIN} --speculative-ngram-capacity 5", True),
        (CHAIN, f"{CHAIN} --page-size 2", False),
        (f"{CHAIN} --speculative-adaptive", CHAIN, False),
        (
            "--speculative-algorithm NGRAM --speculative-eagle-topk 4",
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 12",
            True,
        ),
        ("--speculative-num-steps 3", "", True),
        ("--max-total-tokens 4k", "--max-total-tokens 4000", True),
    ],
)
def test_command_lines_that_make_the_same_server(first, second, same):
    assert alike(first, second) is same


def test_c43_at_temperature_0_rejection_sampling_makes_the_same_server():
    with_it = f"{CHAIN} --speculative-use-rejection-sampling"
    greedy = Known(version=SUPPORTED, temperatures=(0.0, 0.0))
    assert alike(CHAIN, with_it, greedy)
    assert not alike(CHAIN, with_it, replace(greedy, temperatures=(0.0, 0.7)))


def test_the_docs_show_every_rule():
    text = (Path(__file__).parents[2] / "docs" / "arguments.md").read_text(encoding="utf-8")
    for rule in RULES:
        row = (rule.id, rule.asked, rule.server, rule.ours, rule.source)
        assert f"| {' | '.join(row)} |" in text
    always = ", ".join(rule.id for rule in RULES if rule.always)
    assert f'"always": {always}.' in text
