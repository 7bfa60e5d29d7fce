"""Configs that say anything at all: findings or a clear error, never a crash."""

import json

from draft_checkpoints import TINY_DRAFT, TINY_TARGET, reduced_draft, tiny_draft, tiny_target
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.draft import as_json, examine, launch_arguments
from bench.draft.capture import SHIFTS, captured_states, ids_for
from bench.draft.case import case_of
from bench.draft.checkpoint import read_checkpoint
from bench.draft.draft import draft_of
from bench.draft.examining import examine_case
from bench.draft.target import read_target
from bench.errors import InputError

KEYS = [
    *("architectures", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim"),
    *("vocab_size", "draft_vocab_size", "eagle_config", "eagle_aux_hidden_state_layer_ids"),
    *("target_hidden_size", "num_aux_hidden_states", "rope_parameters", "rope_scaling"),
    *("rope_theta", "tie_word_embeddings", "fc_norm", "norm_before_fc", "norm_output", "bias"),
    *("transformer_layer_config", "speculators_model_type", "speculators_config", "text_config"),
    *("max_position_embeddings", "norm_before_residual", "quantization_config", "sliding_window"),
    *("num_nextn_predict_layers", "intermediate_size", "attention_bias"),
]
NESTED = ["eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state", "trained_before_layers"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.sampled_from([0, 1, 2, 3, 8, -1])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["yarn", "LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS + NESTED) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(
    draft=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
    target=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
    reduced=st.booleans(),
)
def test_no_config_crashes_the_doctor(draft, target, reduced, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    files = reduced_draft() if reduced else tiny_draft()
    files.config |= draft
    theirs = tiny_target()
    theirs.config |= target
    theirs.tensors = {}
    launch = launch_arguments("--speculative-algorithm EAGLE3 --context-length 4096")
    try:
        found = examine(
            files.write(folder / "d"), target=theirs.write(folder / "t"), launch=launch
        )
    except InputError:
        return
    assert isinstance(json.dumps(as_json(found), allow_nan=False), str)
    assert all(line.isprintable() for line in found.flow)


def sglang_layers(ids, shift, layers):
    """What `set_eagle3_layers_to_capture` of SGLang 0.5.23 does, written again from its table."""
    if ids is None:
        ids = [2, layers // 2, layers - 3]
        return [i + 1 for i in ids] if shift == "plus-one-always" else ids
    if shift == "plus-one-from-1":
        return [i + 1 for i in ids] if ids[0] == 1 else ids
    if shift == "plus-one-unless-last" and max(ids) == layers:
        return ids
    return [i + 1 for i in ids]


@settings(deadline=None, max_examples=100)
@given(
    architecture=st.sampled_from(sorted(SHIFTS)),
    layers=st.integers(6, 100),
    ids=st.none() | st.lists(st.integers(-2, 101), min_size=1, max_size=6).map(tuple),
)
def test_what_is_captured_is_what_sglang_captures(architecture, layers, ids):
    found = captured_states(ids, architecture=architecture, layers=layers)
    wanted = sglang_layers(ids and list(ids), found.shift, layers)
    end = layers + (architecture == "GptOssForCausalLM")
    assert list(found.states) == [state for state in range(end) if state in wanted]
    assert set(found.lost) == {state for state in wanted if not 0 <= state < end}


@settings(deadline=None, max_examples=100)
@given(
    architecture=st.sampled_from(sorted(SHIFTS)),
    states=st.sets(st.integers(0, 40), min_size=2, max_size=5).map(sorted).map(tuple),
)
def test_the_ids_that_are_proposed_capture_what_is_wanted(architecture, states):
    ids = ids_for(states, shift=SHIFTS[architecture], layers=41)
    assert captured_states(ids, architecture=architecture, layers=41).states == states


def test_a_fix_that_is_followed_heals(tmp_path):
    files = tiny_draft()
    files.config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    sick = examine(files.write(tmp_path / "sick"), target=str(TINY_TARGET))
    proposed = sick.findings[0].fix.partition("write ")[2].rstrip(".")
    files.config |= json.loads("{" + proposed + "}")
    assert examine(files.write(tmp_path / "healed"), target=str(TINY_TARGET)).findings == ()


def test_a_draft_is_held_against_the_layers_it_declares(tmp_path):
    plain = read_checkpoint(str(TINY_DRAFT))
    target = read_target(str(TINY_TARGET))
    for declared, rules in (([2, 4, 5], set()), ([1, 3, 4], {"M1"})):
        config = {**plain.config, "eagle_config": {"trained_before_layers": declared}}
        case = case_of(
            draft_of(type(plain)(source=plain.source, config=config, tensors=plain.tensors)),
            target=target,
        )
        assert {f.rule for f in examine_case(case).findings} == rules
