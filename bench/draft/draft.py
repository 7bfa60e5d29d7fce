"""A draft's settings as SGLang 0.5.23 reads them from its config.json.

Sources: SGLang 0.5.23 `models/llama_eagle3.py`, `models/kimi_k25_eagle3.py`,
`speculative/eagle_utils.py`; speculators 0.9 `models/eagle3/config.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from bench.draft.config_values import architecture_of, block, layer_ids, text_of, whole
from bench.draft.rope import Rope, rope_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.draft.checkpoint import Checkpoint

Form = Literal["llama-eagle3", "mla-eagle3", "speculators", "mtp", "other"]
"""Which of SGLang's classes reads it, or that none of those known here does."""

LLAMA_EAGLE3: Final = "LlamaForCausalLMEagle3"
MLA_EAGLE3: Final = "Eagle3DeepseekV2ForCausalLM"
IDS: Final = "eagle_aux_hidden_state_layer_ids"
DECLARED: Final = "trained_before_layers"
"""A key of `eagle_config` that `bench doctor convert` writes and SGLang does not read: the layers
before which the draft's training took hidden states, so that serving can be held against it."""

LAYER_DEFAULTS: Final[Mapping[str, Any]] = {
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "rms_norm_eps": 1e-06,
}
"""What transformers' LlamaConfig takes for keys that are not given: speculators leaves out those
that are at their defaults."""

_LAYERS: Final = "transformer_layer_config"
_SPECULATORS_KEYS: Final = (
    *("speculators_model_type", "speculators_config", "speculators_version", _LAYERS),
    *("norm_before_residual", "embed_requires_grad"),
)
# Not kept: the block's own names for what the whole draft has.
_NOT_OF_LAYERS: Final = frozenset({"architectures", "model_type"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft checkpoint and its settings; None is not given.

    Attributes:
        checkpoint: Its files.
        form: Which class reads it.
        architecture: `architectures[0]`.
        settings: Its config, flat: of speculators' form with the layer's block merged in.
        hidden: Width of its own hidden states.
        layers: Its transformer layers.
        vocab_size: Rows of the embedding that it uses.
        draft_vocab_size: Rows of its own head; None: as many as `vocab_size`.
        has_draft_vocab: Whether the config has that key at all.
        target_hidden: `target_hidden_size`.
        nested_ids: The layer ids in `eagle_config`, the only ones the target's capture reads.
        top_ids: Layer ids beside it, which it does not read.
        uses_aux: `eagle_config.use_aux_hidden_state`.
        num_aux: How many hidden states `fc` is built for.
        norm_before_fc: Whether their concatenation is normalised.
        fc_norm: Whether each of them is.
        norm_output: Whether the next step is fed the normalised output.
        is_tied: `tie_word_embeddings`.
        max_positions: `max_position_embeddings`.
        rope: Its rotary positions.
        from_speculators: Whether its config has keys that only speculators write.
        declared: What `DECLARED` says.
    """

    checkpoint: Checkpoint
    form: Form
    architecture: str | None
    settings: Mapping[str, Any]
    hidden: int | None
    layers: int
    vocab_size: int | None
    draft_vocab_size: int | None
    has_draft_vocab: bool
    target_hidden: int | None
    nested_ids: tuple[int, ...] | None
    top_ids: tuple[int, ...] | None
    uses_aux: bool
    num_aux: int
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    is_tied: bool
    max_positions: int | None
    rope: Rope
    from_speculators: bool
    declared: tuple[int, ...] | None

    @property
    def name(self) -> str:
        """What the user called it."""
        return self.checkpoint.name

    @property
    def is_eagle3(self) -> bool:
        """Whether it is an EAGLE-3 head, in whatever form."""
        return self.form in {"llama-eagle3", "mla-eagle3", "speculators"}

    @property
    def head_rows(self) -> int | None:
        """Rows that its head has, by its config."""
        return self.draft_vocab_size or self.vocab_size

    @property
    def input_width(self) -> int | None:
        """Width of one of the target's hidden states, as the draft expects it."""
        return self.target_hidden or self.hidden

    @property
    def shares_embedding(self) -> bool:
        """Whether SGLang puts the target's embedding in place of the draft's."""
        if self.form == "llama-eagle3" and "target_hidden_size" in self.settings:
            return self.target_hidden == self.hidden
        return self.target_hidden is None or self.target_hidden == self.hidden


def draft_of(checkpoint: Checkpoint) -> Draft:
    """The draft in a checkpoint."""
    config = checkpoint.config
    settings = _flat(config)
    eagle = block(settings, "eagle_config")
    nested, top = layer_ids(eagle, IDS), layer_ids(settings, IDS)
    form = _form(checkpoint)
    return Draft(
        checkpoint=checkpoint,
        form=form,
        architecture=architecture_of(config),
        settings=settings,
        hidden=whole(settings, "hidden_size"),
        layers=whole(settings, "num_hidden_layers") or 1,
        vocab_size=whole(settings, "vocab_size"),
        draft_vocab_size=whole(settings, "draft_vocab_size"),
        has_draft_vocab="draft_vocab_size" in settings,
        target_hidden=whole(settings, "target_hidden_size"),
        nested_ids=nested,
        top_ids=top,
        uses_aux=eagle.get("use_aux_hidden_state", True) is not False,
        num_aux=_num_aux(settings, form, nested, top),
        norm_before_fc=_norm_before_fc(settings, eagle, form),
        fc_norm=bool(settings.get("fc_norm") or settings.get("use_aux_norm")),
        norm_output=bool(settings.get("norm_output")),
        is_tied=settings.get("tie_word_embeddings") is True,
        max_positions=whole(settings, "max_position_embeddings"),
        rope=rope_of(settings),
        from_speculators=any(key in config for key in _SPECULATORS_KEYS),
        declared=layer_ids(eagle, DECLARED),
    )


def _flat(config: Mapping[str, Any]) -> Mapping[str, Any]:
    layer = block(config, _LAYERS)
    if not layer:
        return text_of(config)
    kept = {key: value for key, value in layer.items() if key not in _NOT_OF_LAYERS}
    return {**LAYER_DEFAULTS, **kept, **config}


def _form(checkpoint: Checkpoint) -> Form:
    config = checkpoint.config
    architecture = architecture_of(config) or ""
    if "speculators_model_type" in config or _LAYERS in config:
        is_eagle3 = config.get("speculators_model_type", "eagle3") == "eagle3"
        return "speculators" if is_eagle3 else "other"
    if architecture == MLA_EAGLE3:
        return "mla-eagle3"
    if "eagle3" in architecture.lower() or _has_fc_and_layer(checkpoint):
        return "llama-eagle3"
    is_mtp = any(".eh_proj." in name or name.startswith("mtp.") for name in checkpoint.tensors)
    return "mtp" if is_mtp or architecture.endswith(("NextN", "MTP")) else "other"


def _has_fc_and_layer(checkpoint: Checkpoint) -> bool:
    """Whether the weights are an EAGLE-3 head's, whatever the config calls them."""
    names = checkpoint.tensors
    return any(name.endswith("hidden_norm.weight") for name in names) and any(
        name.split(".")[-2:] == ["fc", "weight"] for name in names
    )


def _num_aux(
    settings: Mapping[str, Any],
    form: Form,
    nested: tuple[int, ...] | None,
    top: tuple[int, ...] | None,
) -> int:
    if form in {"mla-eagle3", "speculators"}:
        return len(nested or top or (0, 0, 0))
    return whole(settings, "num_aux_hidden_states") or len(nested or (0, 0, 0))


def _norm_before_fc(settings: Mapping[str, Any], eagle: Mapping[str, Any], form: Form) -> bool:
    if form == "mla-eagle3":
        return False  # its class has no such norm
    return bool(eagle.get("norm_before_fc", settings.get("norm_before_fc", False)))
