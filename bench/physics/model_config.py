"""Target and draft cards from a model's Hugging Face config.json.

Understood are transformers of one kind of attention, plain (MHA, GQA) or latent (MLA), with dense
or routed MLPs of three matrices: Llama, Qwen2 and 3, Mistral, Mixtral, DeepSeek-V2 and V3, GLM-4,
Kimi-K2 and their like. Norms, biases and the router's correction are left out: together less than
0.1 % of the bytes. A vision tower is not counted. Layers with a sliding window count as if they
kept every token, which overstates the KV of long contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import InputError
from bench.physics.cards import DraftCard, TargetCard, WeightPart
from bench.physics.config_checks import (
    EXPERTS,
    SHARED,
    architecture_of,
    require_numbers,
    require_understood,
    wrong_whole,
)
from bench.physics.quantisation import Bits, bits_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_DRAFT_VOCABULARY = 32000  # of the EAGLE-3 drafts that SpecForge and EAGLE train
_DEFAULT_EOS = 2
_MAX_TOKEN_ID = 10**7


def target_from_config(
    config: Mapping[str, Any], *, name: str, draft: DraftCard | None = None, source: str
) -> TargetCard:
    """The card of a model.

    Args:
        config: Its config.json.
        name: The card's name.
        draft: The card of its draft; None: one of the usual EAGLE-3 shape is assumed.
        source: What to note as the origin.

    Raises:
        InputError: A key is missing, or the model has layers of a kind not understood.
    """
    text = _text_config(config)
    require_understood(text)
    hidden, layers = _whole(text, "hidden_size"), _whole(text, "num_hidden_layers")
    quantised = bits_of(config.get("quantization_config") or text.get("quantization_config"))
    experts = _first(text, *EXPERTS) or 0
    moe_layers = _moe_layers(text, layers) if experts > 1 else 0
    attention = _Latent.of(text) if text.get("kv_lora_rank") else _Plain.of(text)
    parts = attention.parts(hidden, layers, quantised)
    parts += _mlp_parts(text, hidden, layers, moe_layers, quantised)
    vocabulary = _whole(text, "vocab_size")
    # SGLang never quantises the head unless the checkpoint says so, and none of these do.
    parts.append(WeightPart(name="lm_head", parameters=vocabulary * hidden, bits=16))
    expert_bits, expert_compute = quantised.of("model.layers.9.mlp.experts.0.up_proj")
    wide = _first(text, "moe_intermediate_size", "intermediate_size") or 0
    return TargetCard(
        name=name,
        architecture=architecture_of(config, text),
        model_type=str(config.get("model_type") or text.get("model_type") or "unknown"),
        hidden=hidden,
        layers=layers,
        moe_layers=moe_layers,
        experts=experts if moe_layers else 0,
        experts_per_token=_whole(text, "num_experts_per_tok") if moe_layers else 0,
        expert_parameters=3 * hidden * wide if moe_layers else 0,
        expert_bits=expert_bits if moe_layers else 16,
        expert_compute_bits=expert_compute if moe_layers else 16,
        parts=tuple(parts),
        idle_parameters=0 if text.get("tie_word_embeddings") else vocabulary * hidden,
        idle_bits=16,
        kv_bytes_per_token_per_layer=attention.kv_bytes,
        kv_shards=attention.kv_shards,
        attention_flop_per_pair=float(layers * attention.flop_per_pair),
        decode_attention_flop_per_pair=float(layers * attention.decode_flop_per_pair),
        draft=draft or _usual_draft(text, hidden, name),
        vocab_size=vocabulary,
        context_len=_first(text, "max_position_embeddings") or 4096,
        eos_token_id=_eos(config, text),
        source=source,
    )


def draft_from_config(config: Mapping[str, Any], *, name: str, source: str) -> DraftCard:
    """The card of an EAGLE-3 or EAGLE draft.

    EAGLE-3: the layer attends to embedding and hidden state side by side (its Q, K and V take
    twice the width), fc reads three of the target's layers in the cycle's first forward, the head
    is of the draft's own vocabulary. EAGLE: fc joins embedding and hidden state in every forward,
    the head is the target's.

    Raises:
        InputError: A key is missing, or it is a draft of another kind.
    """
    text = _text_config(config)
    require_numbers(text)
    architecture = architecture_of(config, text)
    if text.get("kv_lora_rank"):
        raise InputError(
            f"{architecture}: a draft with latent attention is not understood",
            hint="Write its card by hand (docs/physics.md).",
        )
    eagle3 = "Eagle3" in architecture or "draft_vocab_size" in text
    hidden, layers = _whole(text, "hidden_size"), _whole(text, "num_hidden_layers")
    plain = _Plain.of(text)
    none = Bits(bits=16, compute=16)
    width = 2 * hidden if eagle3 else hidden
    parts = plain.parts(width, layers, none, out=hidden)
    mlp = 3 * hidden * _whole(text, "intermediate_size") * layers
    parts.append(WeightPart(name="MLP", parameters=mlp, bits=16))
    target_hidden = _first(text, "target_hidden_size") or hidden
    own = eagle3 and text.get("draft_vocab_size")
    head = _whole(text, "draft_vocab_size" if own else "vocab_size") * hidden
    parts.append(WeightPart(name="vocabulary head", parameters=head, bits=16))
    fc = 3 * target_hidden * hidden if eagle3 else 2 * hidden * hidden
    parts.append(WeightPart(name="fc", parameters=fc, bits=16, shards=1, extend_only=eagle3))
    return DraftCard(
        name=name,
        method="EAGLE3" if eagle3 else "EAGLE",
        hidden=hidden,
        layers=layers,
        parts=tuple(parts),
        kv_bytes_per_token_per_layer=plain.kv_bytes,
        kv_shards=plain.kv_shards,
        source=source,
    )


# ------------------------------------------------------------------------------------- attention


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, text: Mapping[str, Any]) -> _Plain:
        heads = _whole(text, "num_attention_heads")
        return cls(
            heads=heads,
            kv_heads=_first(text, "num_key_value_heads") or heads,
            head_dim=_first(text, "head_dim") or _whole(text, "hidden_size") // heads,
        )

    @property
    def kv_bytes(self) -> int:
        return 2 * self.kv_heads * self.head_dim * 2

    @property
    def kv_shards(self) -> int:
        return self.kv_heads

    @property
    def flop_per_pair(self) -> int:
        return self.heads * self.head_dim * 4

    @property
    def decode_flop_per_pair(self) -> int:
        return self.flop_per_pair

    def parts(
        self, width: int, layers: int, quantised: Bits, *, out: int | None = None
    ) -> list[WeightPart]:
        queries = self.heads * self.head_dim
        keys = 2 * self.kv_heads * self.head_dim
        bits, compute = quantised.of("model.layers.9.self_attn.q_proj")
        return [
            WeightPart(
                name="attention q o",
                parameters=layers * queries * (width + (out or width)),
                bits=bits,
                compute_bits=compute,
            ),
            WeightPart(
                name="attention k v",
                parameters=layers * width * keys,
                bits=bits,
                compute_bits=compute,
                shards=self.kv_heads,
            ),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latent:
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int

    @classmethod
    def of(cls, text: Mapping[str, Any]) -> _Latent:
        return cls(
            heads=_whole(text, "num_attention_heads"),
            q_rank=_first(text, "q_lora_rank"),
            kv_rank=_whole(text, "kv_lora_rank"),
            nope=_whole(text, "qk_nope_head_dim"),
            rope=_whole(text, "qk_rope_head_dim"),
            value=_whole(text, "v_head_dim"),
        )

    @property
    def kv_bytes(self) -> int:
        return (self.kv_rank + self.rope) * 2

    @property
    def kv_shards(self) -> int:
        return 1

    @property
    def flop_per_pair(self) -> int:
        return self.heads * (self.nope + self.rope + self.value) * 2

    @property
    def decode_flop_per_pair(self) -> int:
        # Decoding attends to the latent itself: scores over rank + rope, values over rank.
        return self.heads * (2 * self.kv_rank + self.rope) * 2

    def parts(self, width: int, layers: int, quantised: Bits) -> list[WeightPart]:
        bits, compute = quantised.of("model.layers.9.self_attn.q_b_proj")
        query = self.heads * (self.nope + self.rope)
        down = width * ((self.q_rank or 0) + self.kv_rank + self.rope)
        up = (self.q_rank or width) * query
        up += self.kv_rank * self.heads * (self.nope + self.value)
        up += self.heads * self.value * width
        return [
            WeightPart(
                name="attention q_a and kv_a",
                parameters=layers * down,
                bits=bits,
                compute_bits=compute,
                shards=1,
            ),
            WeightPart(
                name="attention q_b kv_b o",
                parameters=layers * up,
                bits=bits,
                compute_bits=compute,
            ),
        ]


# ------------------------------------------------------------------------------------------ MLPs


def _mlp_parts(
    text: Mapping[str, Any], hidden: int, layers: int, moe_layers: int, quantised: Bits
) -> list[WeightPart]:
    parts = []
    if moe_layers:
        wide = _whole(text, "moe_intermediate_size", "intermediate_size")
        shared = (_first(text, *SHARED) or 0) * wide
        shared = shared or (_first(text, "shared_expert_intermediate_size") or 0)
        if shared:
            bits, compute = quantised.of("model.layers.9.mlp.shared_experts.up_proj")
            parts.append(
                WeightPart(
                    name="shared experts",
                    parameters=moe_layers * 3 * hidden * shared,
                    bits=bits,
                    compute_bits=compute,
                )
            )
        experts = _whole(text, *EXPERTS)
        router = moe_layers * experts * hidden
        parts.append(WeightPart(name="router", parameters=router, bits=16, shards=1))
    if layers > moe_layers:
        bits, compute = quantised.of("model.layers.0.mlp.up_proj")
        parts.append(
            WeightPart(
                name="dense layers" if moe_layers else "MLP",
                parameters=(layers - moe_layers) * 3 * hidden * _whole(text, "intermediate_size"),
                bits=bits,
                compute_bits=compute,
            )
        )
    return parts


def _moe_layers(text: Mapping[str, Any], layers: int) -> int:
    dense = _first(text, "first_k_dense_replace") or 0
    often = text.get("moe_layer_freq")
    if isinstance(often, list):  # one of 0 and 1 a layer
        return sum(often[dense:])
    every = _first(text, "moe_layer_freq", "decoder_sparse_step") or 1
    only = text.get("mlp_only_layers")
    skipped = set(only) if isinstance(only, list) else set()
    # DeepSeek counts layers from 0 (a multiple of the step is sparse), Qwen from 1.
    offset = 1 if "decoder_sparse_step" in text else 0
    return sum(
        1
        for layer in range(dense, layers)
        if (layer + offset) % every == 0 and layer not in skipped
    )


def _usual_draft(text: Mapping[str, Any], hidden: int, name: str) -> DraftCard:
    """An EAGLE-3 draft as they are usually trained: the target's width and a dense MLP."""
    heads = max(1, hidden // 128)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": min(heads, _first(text, "num_key_value_heads") or 8, 8),
        "head_dim": 128,
        "intermediate_size": _first(text, "intermediate_size") or 3 * hidden,
        "vocab_size": _whole(text, "vocab_size"),
        "draft_vocab_size": min(_DRAFT_VOCABULARY, _whole(text, "vocab_size")),
    }
    return draft_from_config(
        config,
        name=f"{name}-draft",
        source="Assumed: an EAGLE-3 draft of the usual shape. Give yours with --draft.",
    )


# ---------------------------------------------------------------------------------------- reading


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("text_config", "language_config", "llm_config"):
        nested = config.get(key)
        if isinstance(nested, dict):
            return nested
    return config


def _first(text: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = text.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _whole(text: Mapping[str, Any], *keys: str) -> int:
    value = _first(text, *keys)
    if value is None or value < 1:
        given = next((key for key in keys if text.get(key) is not None), None)
        if given is None:
            raise InputError(
                f"the model's config has no {' or '.join(keys)}",
                hint="Give the config.json of a language model.",
            )
        raise wrong_whole(given, text[given], 1)
    return value


def _eos(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    for found in (text.get("eos_token_id"), config.get("eos_token_id")):
        first = found[0] if isinstance(found, list) and found else found
        if isinstance(first, int) and not isinstance(first, bool):
            if not 0 <= first <= _MAX_TOKEN_ID:
                raise wrong_whole("eos_token_id", first, 0, _MAX_TOKEN_ID)
            return first
    return _DEFAULT_EOS
