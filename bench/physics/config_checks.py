"""What a model's config.json must be like before a card is made from it.

A config that is read in part makes a wrong card without a word, so what is not known is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
SHARED = ("n_shared_experts", "num_shared_experts")

# The least and the most that each number can be.
_RANGES = {
    "hidden_size": (1, 2**18),
    "target_hidden_size": (1, 2**18),
    "num_hidden_layers": (1, 1000),
    "num_attention_heads": (1, 4096),
    "num_key_value_heads": (1, 4096),
    "head_dim": (1, 4096),
    "intermediate_size": (1, 2**22),
    "moe_intermediate_size": (1, 2**22),
    "shared_expert_intermediate_size": (0, 2**22),
    "vocab_size": (1, 10**7),
    "draft_vocab_size": (1, 10**7),
    "max_position_embeddings": (1, 10**9),
    "q_lora_rank": (0, 2**18),
    "kv_lora_rank": (0, 2**18),
    "qk_nope_head_dim": (0, 4096),
    "qk_rope_head_dim": (0, 4096),
    "v_head_dim": (0, 4096),
    "num_experts_per_tok": (0, 10_000),
    "first_k_dense_replace": (0, 1000),
    "decoder_sparse_step": (1, 1000),
    **dict.fromkeys((*EXPERTS, *SHARED), (0, 10_000)),
}
# Keys that tell of layers whose cost does not follow from the formulas of model_config.
_FOREIGN = {
    "linear_num_value_heads": "linear attention",
    "linear_attn_config": "linear attention",
    "mamba_d_state": "Mamba layers",
    "mamba_num_heads": "Mamba layers",
    "ssm_state_size": "Mamba layers",
    "hybrid_override_pattern": "layers of several kinds",
    "layers_block_type": "layers of several kinds",
    "index_topk": "sparse attention (DSA)",
    "compress_ratios": "compressed attention",
    "interleave_moe_layer_step": "layers with experts between wider dense ones (Llama 4)",
    "intermediate_size_mlp": "layers with experts between wider dense ones (Llama 4)",
}
_KNOWN_OF_EXPERTS = {
    *EXPERTS,
    *SHARED,
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_layer_freq",
    "shared_expert_intermediate_size",
}
_MAX_SHOWN = 60


def wrong(key: str, found: object, wanted: str, *, hint: str | None = None) -> InputError:
    """The error for one key of a config.json."""
    return InputError(
        f"{key} of the model's config is {shown(found)}, wanted {wanted}",
        hint=hint or f"Correct {key} in the file.",
    )


def wrong_whole(key: str, found: object, least: int, most: int | None = None) -> InputError:
    """The error for a key that wants a whole number."""
    quoted = isinstance(found, str) and found.strip().isdecimal() and len(found) < _MAX_SHOWN
    upto = "" if most is None else f" and at most {most}"
    return wrong(
        key,
        found,
        f"a whole number of at least {least}{upto}",
        hint=f"Write {found} without quotes." if quoted else None,
    )


def architecture_of(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """`architectures[0]`, or "unknown".

    Raises:
        InputError: It is no list of names.
    """
    found = config.get("architectures") or text.get("architectures") or ["unknown"]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise wrong("architectures", found, 'a list of names such as ["LlamaForCausalLM"]')
    return str(found[0])


def require_numbers(text: Mapping[str, Any]) -> None:
    """Refuse numbers that no model has.

    Raises:
        InputError: Of the wrong type, out of range, or two that do not go together.
    """
    for key, (least, most) in _RANGES.items():
        found = text.get(key)
        if found is None:
            continue
        if not _is_whole(found) or not least <= found <= most:
            raise wrong_whole(key, found, least, most)
    heads, kv_heads = text.get("num_attention_heads"), text.get("num_key_value_heads")
    if text.get("kv_lora_rank") or not heads:
        return
    if kv_heads and heads % kv_heads:
        raise wrong("num_key_value_heads", kv_heads, f"a divisor of the {heads} attention heads")
    hidden = text.get("hidden_size")
    if hidden and not text.get("head_dim") and hidden % heads:
        raise wrong("num_attention_heads", heads, f"a divisor of hidden_size {hidden}")


def require_understood(text: Mapping[str, Any]) -> None:
    """Refuse a target with numbers that no model has, or layers that the physics does not model.

    Raises:
        InputError: The key, what was found and what was wanted.
    """
    kinds = text.get("layer_types") or []
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise wrong("layer_types", kinds, 'a list of names such as ["full_attention"]')
    other = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    found = next((what for key, what in _FOREIGN.items() if text.get(key)), None)
    listed = text.get("attn_type_list") or []
    # MiniMax: 1 is full attention, 0 linear.
    if not isinstance(listed, list) or any(kind != 1 for kind in listed):
        found = found or "linear attention (attn_type_list)"
    if found or other:
        raise _not_modelled(found or ", ".join(other))
    require_numbers(text)
    _require_known_experts(text)


def _require_known_experts(text: Mapping[str, Any]) -> None:
    counts = [text[key] for key in EXPERTS if text.get(key) is not None]
    experts = counts[0] if counts else 0
    for key, value in text.items():
        told = str(key).lower()
        if key in _KNOWN_OF_EXPERTS or not ("expert" in told or "moe" in told):
            continue
        numbers = value if isinstance(value, list) else [value]
        most = max((number for number in numbers if _is_whole(number)), default=0)
        # Of a model with experts only what adds weights or moves the layers matters.
        adds = ("shared" in told or "layer" in told) and (most > 0 or isinstance(value, list))
        if (experts > 1 and adds) or (experts <= 1 and most > 1):
            raise _not_modelled(f"{key} {shown(value)}")
    each = text.get("num_experts_per_tok")
    if experts > 1 and each is not None and not 1 <= each <= experts:
        raise wrong("num_experts_per_tok", each, f"1 to the {experts} experts")
    layers = text.get("num_hidden_layers") or 0
    only = text.get("mlp_only_layers")
    if only is not None and not (
        isinstance(only, list) and all(_is_whole(one) and 0 <= one < layers for one in only)
    ):
        raise wrong("mlp_only_layers", only, f"a list of layers from 0 to {layers - 1}")
    often = text.get("moe_layer_freq")
    if isinstance(often, list):
        if len(often) != layers or any(one not in (0, 1) for one in often):
            raise wrong("moe_layer_freq", often, f"one of 0 and 1 for each of {layers} layers")
    elif often is not None and not (_is_whole(often) and 1 <= often <= 1000):
        raise wrong_whole("moe_layer_freq", often, 1, 1000)


def shown(value: object) -> str:
    """A value as it is quoted in a message: short."""
    try:
        told = repr(value)
    except (ValueError, RecursionError):  # more digits than Python writes out
        return "too long to show"
    return told if len(told) <= _MAX_SHOWN else f"{told[:_MAX_SHOWN]}…"


def _not_modelled(what: str) -> InputError:
    return InputError(
        f"the model has {what}, which the physics does not model",
        hint="Write a card by hand for the nearest plain model (docs/physics.md).",
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
