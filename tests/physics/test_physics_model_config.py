"""Cards made from config.json."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import InputError
from bench.physics import load_draft, load_target
from bench.physics.card_text import card_yaml
from bench.physics.model_config import draft_from_config, target_from_config

CONFIGS = Path(__file__).parent / "configs"
TARGETS = ("kimi-k2.5", "deepseek-v3", "llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b")
DRAFTS = (
    "llama-3.1-8b-eagle3",
    "llama-3.1-8b-eagle",
    "llama-3.3-70b-eagle3",
    "qwen3-30b-a3b-eagle3",
    "deepseek-v3-eagle3",
    "kimi-k2.5-eagle3",
)


def config(name: str) -> dict:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def made(found: dict, **changes):
    return target_from_config(found | changes, name="made", source="test")


@pytest.mark.parametrize("name", TARGETS)
def test_shipped_targets_are_what_their_config_makes(name):
    shipped = load_target(name)
    card = target_from_config(config(name), name=name, draft=shipped.draft, source=shipped.source)
    by_hand = {"fixed_ms": shipped.fixed_ms, "cycle_fixed_ms": shipped.cycle_fixed_ms}
    if name == "kimi-k2.5":  # its card has the vision tower
        by_hand["idle_parameters"] = shipped.idle_parameters
        assert shipped.idle_parameters - card.idle_parameters == 400_000_000
    assert replace(card, **by_hand) == shipped


@pytest.mark.parametrize("name", DRAFTS)
def test_shipped_drafts_are_what_their_config_makes(name):
    shipped = load_draft(name)
    assert draft_from_config(config(name), name=name, source=shipped.source) == shipped


@pytest.mark.parametrize("name", [*TARGETS, *DRAFTS])
def test_a_written_card_reads_back_the_same(name, tmp_path):
    path = tmp_path / f"{name}.yaml"
    if name in TARGETS:
        card = target_from_config(config(name), name=name, source="a test: with a colon")
        path.write_text(card_yaml(card, comment="two\nlines"))
        assert load_target(str(path)) == replace(
            card, draft=replace(card.draft, name=f"{name}-draft")
        )
    else:
        card = draft_from_config(config(name), name=name, source="a test")
        path.write_text(card_yaml(card))
        assert load_draft(str(path)) == card


def test_tied_embeddings_are_read_as_the_head_and_held_once():
    free, tied = (made(config("llama-3.1-8b"), tie_word_embeddings=tied) for tied in (False, True))
    assert free.total_parameters - tied.total_parameters == 128256 * 4096
    assert free.active_parameters == tied.active_parameters


@pytest.mark.parametrize(
    ("quantised", "bits", "compute"),
    [
        ({"quant_method": "fp8"}, 8, 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128, 16),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, 16),
        ({"quant_method": "mxfp4"}, 4.25, 16),
        ({"quant_method": "w4afp8"}, 4.125, 8),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "input_activations": {"num_bits": 4},
                    }
                },
            },
            4.5,
            4,
        ),
        ({"quant_algo": "NVFP4", "quant_method": "modelopt"}, 4.5, 4),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "group_size": None},
                        "input_activations": {"num_bits": 8},
                    }
                },
                "ignore": ["lm_head"],
            },
            8,
            8,
        ),
    ],
)
def test_quantised_checkpoints(quantised, bits, compute):
    card = made(config("llama-3.1-8b"), quantization_config=quantised)
    parts = {part.name: part for part in card.parts}
    assert (parts["MLP"].bits, parts["MLP"].compute_bits) == (pytest.approx(bits), compute)
    assert parts["lm_head"].bits == 16


def test_modules_left_out_of_the_quantisation_keep_16_bits():
    quantised = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.3.self_attn"]}
    card = made(config("qwen3-30b-a3b"), quantization_config=quantised)
    assert {part.bits for part in card.parts} == {16}
    assert card.expert_bits == 8


@pytest.mark.parametrize(
    ("changes", "moe_layers"),
    [
        ({}, 48),
        ({"mlp_only_layers": [0, 1]}, 46),
        ({"decoder_sparse_step": 2}, 24),
        ({"first_k_dense_replace": 3}, 45),
        ({"num_experts": None}, 0),
    ],
)
def test_layers_with_experts(changes, moe_layers):
    card = made(config("qwen3-30b-a3b"), **changes)
    assert card.moe_layers == moe_layers
    assert (card.experts > 0) == (moe_layers > 0)
    if moe_layers < 48:
        assert any(part.name in {"dense layers", "MLP"} for part in card.parts)


def test_shared_experts_by_their_own_width():
    plain = made(config("qwen3-30b-a3b"))
    shared = made(config("qwen3-30b-a3b"), shared_expert_intermediate_size=512)
    assert shared.active_parameters - plain.active_parameters == 48 * 3 * 2048 * 512


def test_a_models_own_draft_takes_the_place_of_the_usual_one():
    usual = made(config("llama-3.1-8b")).draft
    assert usual.parts == load_draft("llama-3.1-8b-eagle3").parts
    own = load_draft("llama-3.1-8b-eagle")
    card = target_from_config(config("llama-3.1-8b"), name="x", draft=own, source="s")
    assert card.draft is own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"index_topk": 2048}, "sparse attention"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
        ({"quantization_config": "fp8"}, "quantization_config"),
    ],
)
def test_what_is_not_understood_is_refused(changes, said):
    with pytest.raises(InputError, match=said) as caught:
        made(config("llama-3.1-8b"), **changes)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"moe_num_experts": 64, "moe_k": 6}, "moe_num_experts"),
        ({"moe_top_k": 2}, "moe_top_k"),
        ({"interleave_moe_layer_step": 1, "num_local_experts": 16}, "Llama 4"),
        ({"attn_type_list": [0, 1]}, "linear attention"),
        ({"num_experts": [64]}, "num_experts"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"hidden_size": -4096}, "hidden_size"),
        ({"vocab_size": 10**5000}, "vocab_size"),
        ({"architectures": 5}, "architectures"),
        ({"architectures": "Llama"}, "architectures"),
        ({"layer_types": 5}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"mlp_only_layers": [{}]}, "mlp_only_layers"),
        ({"moe_layer_freq": [1, 0]}, "moe_layer_freq"),
        ({"eos_token_id": -1}, "eos_token_id"),
    ],
)
def test_what_no_model_has_is_refused_by_its_key(changes, said):
    with pytest.raises(InputError, match=said) as caught:
        made(config("llama-3.1-8b"), **changes)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("quantised", "said"),
    [
        ({"quant_method": "awq", "bits": "four"}, "bits"),
        ({"quant_method": "awq", "bits": -4}, "bits"),
        ({"quant_method": "awq", "bits": 10**5000}, "bits"),
        ({"quant_method": "gptq", "group_size": "x"}, "group_size"),
        ({"quant_method": "fp8", "ignore": 5}, "ignore"),
        ({"quant_method": "fp8", "ignore": ["re:*["]}, "ignore"),
        ({"quant_method": "compressed-tensors", "config_groups": [1]}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": 5}}, r"config_groups\.g"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "mix of data types"),
    ],
)
def test_a_wrong_quantisation_is_refused_by_its_key(quantised, said):
    with pytest.raises(InputError, match=said):
        made(config("llama-3.1-8b"), quantization_config=quantised)


def test_layers_with_experts_listed_one_by_one():
    card = made(config("qwen3-30b-a3b"), moe_layer_freq=[0, 0, *[1] * 46])
    assert card.moe_layers == 46


def test_a_latent_draft_is_refused():
    with pytest.raises(InputError, match="latent attention"):
        draft_from_config(config("deepseek-v3"), name="x", source="s")
