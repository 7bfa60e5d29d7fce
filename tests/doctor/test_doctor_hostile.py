"""Configs and captures of any kind: an answer or a clear refusal, never a crash."""

from contextlib import suppress

import numpy as np
import pytest
from draft_checkpoints import tiny_draft, whole_numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_target import TINY_TARGET

from bench.doctor.capturing import Captured, write_captures
from bench.doctor.wiring import as_json, examine_wiring
from bench.errors import InputError

IDS = "eagle_aux_hidden_state_layer_ids"
NUMBERS = st.integers(-3, 600) | st.sampled_from([None, "x", [], 2**60, 0.5, True])
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            (
                *("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
                *("num_hidden_layers", "intermediate_size", "vocab_size", "draft_vocab_size"),
                *("target_hidden_size", "rms_norm_eps", "max_position_embeddings"),
                *("num_aux_hidden_states", "rope_theta", "norm_output", "tie_word_embeddings"),
            ),
            NUMBERS,
        ),
        "eagle_config": st.fixed_dictionaries({IDS: st.lists(NUMBERS, max_size=5)}),
        "rope_parameters": st.fixed_dictionaries(
            {
                "rope_type": st.sampled_from(["yarn", "llama3", "linear", "dynamic", 7]),
                "rope_theta": NUMBERS,
                "factor": NUMBERS,
                "original_max_position_embeddings": NUMBERS,
                "beta_fast": NUMBERS,
                "low_freq_factor": NUMBERS,
            }
        ),
        "architectures": st.sampled_from([[], ["Eagle3DeepseekV2ForCausalLM"], ["x"], 3]),
    },
)
MAPS = st.none() | st.lists(st.integers(-9, 3000), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "captures"
    draws = np.random.default_rng(2)
    states = draws.normal(size=(10, 3, 192)).astype(np.float32)
    ids = draws.integers(0, 2048, 10)
    write_captures(folder, Captured(numbers=(2, 4, 5), sequences=((ids, states),)))
    return str(folder)


@settings(deadline=None, max_examples=20)
@given(config=CONFIGS, d2t=MAPS)
def test_no_config_crashes_the_wiring(config, d2t, captures, tmp_path_factory):
    files = tiny_draft()
    files.config |= config
    if d2t is not None:
        files.tensors["d2t"] = whole_numbers(d2t)
    folder = files.write(tmp_path_factory.mktemp("draft"))
    with suppress(InputError):
        report = examine_wiring(folder, captures, target=str(TINY_TARGET))
        assert as_json(report)["status"] in {"clean", "suspect"}
