"""What is known of the models, the GPUs and the server that arguments will meet."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPPORTED = "0.5.23"
"""The version of SGLang whose rules these are."""

GpuClass = Literal["hopper", "sm100", "sm120", "other", "cpu"]
"""SM 9.x, SM 10.x (B200, B300), SM 12.x (RTX PRO 6000, RTX 50), any other CUDA GPU, no GPU."""

Attention = Literal["mla", "mha"]

# configs/model_config.py: everything else is MHA (grouped queries included).
_MLA = frozenset(
    {
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV3ForCausalLMNextN",
        "DotsVLMForCausalLM",
        "Dots3NoteForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "GigaChat35ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "HYV4ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiniCPM3ForCausalLM",
        "MistralLarge3ForCausalLM",
        "MistralLarge3ForCausalLMEagle",
        "SarvamMLAForCausalLM",
    }
)
# Architectures of which only some checkpoints are MLA.
_EITHER = frozenset(
    {"DeepseekVL2ForCausalLM", "PixtralForConditionalGeneration", "BailingMoeForCausalLMNextN"}
)
# utils/hf_transformers/common.py, get_context_length
_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)

# speculative/dspark_components/dspark_config.py, checkpoint_bundles_dspark_draft
_DSPARK_KEYS = (
    *("dspark_block_size", "dspark_markov_rank"),
    *("dspark_noise_token_id", "dspark_target_layer_ids"),
)
_DSPARK_FOLDER = "dspark"
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?!\d)")
# Seen in 0.5.5; launch commands for 0.5.11 are of that time. Of what lies between that and 0.5.23
# nothing is known.
_OLDER = (0, 5, 12)
_MOST = 2**63 - 1

_GPU_NAMES: tuple[tuple[GpuClass, tuple[str, ...]], ...] = (
    ("sm120", ("RTX PRO", "RTX 50", "GB10")),
    ("sm100", ("B200", "B300", "B100")),
    ("hopper", ("H100", "H200", "H800", "H20", "GH200")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the rules ask of a model; None is not known.

    Attributes:
        architecture: `architectures[0]` of its config.json.
        attention: Whether it caches MLA's latent, or keys and values of heads.
        layers: Transformer layers.
        context_len_tok: The longest context its positions are made for, rope scaling counted.
        vocab_size: Rows of its vocabulary.
        draft_vocab_size: A draft's own, smaller vocabulary.
        block_size: The block that a DFLASH or DSPARK draft was trained for.
        has_dspark: Whether a DSPARK draft comes with it, in its own file or beside it.
    """

    architecture: str | None = None
    attention: Attention | None = None
    layers: int | None = None
    context_len_tok: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    block_size: int | None = None
    has_dspark: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of where the arguments will be used; None is not known.

    Attributes:
        version: SGLang's version. On another than `SUPPORTED`, or an unknown one, most rules
            advise instead of rejecting.
        target: The model that is served.
        draft: The draft model.
        gpu: The class of the GPUs.
        gpu_memory_gib: Memory of one.
        temperatures: Of all workloads; empty: not known.
        environment: The server's variables, as far as they are known.
    """

    version: str | None = None
    target: ModelFacts | None = None
    draft: ModelFacts | None = None
    gpu: GpuClass | None = None
    gpu_memory_gib: float | None = None
    temperatures: tuple[float, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_supported(self) -> bool:
        """Whether the server is of the version whose rules these are."""
        return self.version == SUPPORTED

    @property
    def is_older(self) -> bool:
        """Whether it is older than 0.5.12, up to which more is known of some rules."""
        found = _VERSION.match(self.version or "")
        return found is not None and tuple(map(int, found.groups())) < _OLDER

    def switched_on(self, variable: str) -> bool:
        """Whether an environment variable is set to what SGLang reads as true."""
        return self.environment.get(variable, "").strip().lower() in {"1", "true", "yes", "y"}


NOTHING = Known()


def attention_of(architecture: str | None, *, kv_lora_rank: object = None) -> Attention | None:
    """Which attention a model of this architecture has, as SGLang tells it.

    Args:
        architecture: `architectures[0]`.
        kv_lora_rank: That key of its config, which decides where checkpoints differ.
    """
    if architecture is None:
        return None
    if architecture in _EITHER:
        return None if kv_lora_rank is None else "mla"
    return "mla" if architecture in _MLA else "mha"


def gpu_class_of(name: str) -> GpuClass | None:
    """The class of a GPU by the name NVML gives it; None for a name that says nothing."""
    if not name.strip():
        return None
    for gpu_class, parts in _GPU_NAMES:
        if any(part in name for part in parts):
            return gpu_class
    return "other"


def model_facts(config: Mapping[str, object]) -> ModelFacts:
    """What a model's config.json says; the text model's own block wins where there is one."""
    nested = config.get("text_config")
    text = {**config, **nested} if isinstance(nested, dict) else dict(config)
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    architecture = first if isinstance(first, str) else None
    special = config.get("dflash_config")
    special = special if isinstance(special, dict) else {}
    return ModelFacts(
        architecture=architecture,
        attention=attention_of(architecture, kv_lora_rank=text.get("kv_lora_rank")),
        layers=_whole(text.get("num_hidden_layers")),
        context_len_tok=_context_len_tok(text),
        vocab_size=_whole(text.get("vocab_size")),
        draft_vocab_size=_whole(text.get("draft_vocab_size")),
        block_size=_whole(
            config.get("dspark_block_size", special.get("block_size", config.get("block_size")))
        ),
        has_dspark=any(config.get(key) is not None for key in _DSPARK_KEYS),
    )


def read_model_facts(path: str) -> ModelFacts | None:
    """What the config.json of a model in a local folder says; None where there is none to read."""
    path = path or "."
    config = read_json(f"{path}/config.json")
    if not isinstance(config, dict):
        return None
    facts = model_facts(config)
    in_folder = isinstance(read_json(f"{path}/{_DSPARK_FOLDER}/config.json"), dict)
    return replace(facts, has_dspark=True) if in_folder else facts


def read_json(path: str) -> object:
    """What a JSON file of this machine holds; None where there is none to read."""
    try:
        file = Path(path).expanduser()  # a RuntimeError for a user that there is not
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a RecursionError is one
        return None


def _context_len_tok(text: Mapping[str, object]) -> int | None:
    scaling = text.get("rope_scaling")
    factor = 1.0
    if (
        isinstance(scaling, dict)
        and "original_max_position_embeddings" not in scaling
        and scaling.get("rope_type") != "llama3"
        and isinstance(given := scaling.get("factor"), int | float)
    ):
        factor = float(given) if abs(given) <= _MOST else math.inf
    found = (_whole(text.get(key)) for key in _CONTEXT_KEYS)
    length = next((value for value in found if value is not None), None)
    if length is None or not math.isfinite(factor):
        return None
    return _whole(int(factor * length))


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST:
        return None
    return value
