"""A draft in speculators' form made into one that SGLang 0.5.23 reads; tensors stay as they are.

What the two forms say alike is renamed; what SGLang's class cannot compute is refused.
Sources: speculators 0.9 `models/eagle3`; SGLang 0.5.23 `models/llama_eagle3.py`.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.draft.capture import SHIFTS, ids_for
from bench.draft.case import case_of
from bench.draft.checkpoint import CONFIG, Checkpoint, read_checkpoint
from bench.draft.config_values import architecture_of, block
from bench.draft.draft import DECLARED, IDS, LAYER_DEFAULTS, LLAMA_EAGLE3, Draft, draft_of
from bench.draft.examining import examine_case
from bench.draft.findings import DraftFinding, Level
from bench.draft.target import Target, read_target
from bench.draft.writing import same_data, write_safetensors
from bench.errors import DiskError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHTS: Final = "model.safetensors"
_IDLE: Final = ("verifier_lm_head.weight", "verifier_norm.weight", "rotary_emb.inv_freq")
_LATER_NORM: Final = re.compile(r"^(layers\.[1-9]\d*\.)input_layernorm\.weight$")
_FLAGS: Final = ("fc_norm", "norm_before_fc", "norm_output")
# Rules of the converted draft that tell of how it is served, not of what it is.
_NOT_OF_CONVERSION: Final = frozenset({"M20", "M21", "M22", "capture"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What the new checkpoint will be.

    Attributes:
        source: The draft in speculators' form.
        converted: The new one, its tensors still in the old one's files.
        names: The new name of each tensor that is kept.
        dropped: Tensors that serving has no use for.
        notes: What is worth knowing of the new one.
    """

    source: Draft
    converted: Draft
    names: Mapping[str, str]
    dropped: tuple[str, ...]
    notes: tuple[DraftFinding, ...]


def convert(source: str, destination: str, *, target: str | None = None) -> Conversion:
    """Write the converted draft into a new folder, read it again and compare every bit.

    Args:
        source: A draft's folder or Hugging Face id, in speculators' form.
        destination: A folder that is not there yet.
        target: The target's folder or Hugging Face id; None: the class that the draft's own
            config names as its verifier's.

    Raises:
        InputError: It is in another form, or SGLang's class cannot express it: the reasons.
        DiskError: The folder cannot be written.
    """
    checkpoint = read_checkpoint(source)
    conversion = plan_conversion(
        checkpoint, target=None if target is None else read_target(target)
    )
    folder = Path(destination).expanduser()
    if folder.exists():
        raise InputError(
            f"{destination} is there already.", hint="Give a folder that is not there yet."
        )
    part = folder.with_name(f"{folder.name}.part-{secrets.token_hex(4)}")
    try:
        part.mkdir(parents=True)
        _write(conversion, part)
        require_same(conversion, read_checkpoint(str(part)))
        part.rename(folder)
    except OSError as error:
        raise DiskError(f"cannot write {destination}: {error.strerror}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return conversion


def plan_conversion(checkpoint: Checkpoint, *, target: Target | None = None) -> Conversion:
    """The new checkpoint of a draft in speculators' form.

    Raises:
        InputError: It is in another form, or SGLang's class cannot express it.
    """
    source = draft_of(checkpoint)
    if source.form != "speculators":
        raise InputError(
            f"{source.name} is not in speculators' form: its architectures[0] is "
            f"{source.architecture}, and it has no transformer_layer_config.",
            hint="SGLang reads LlamaForCausalLMEagle3 as it is; `bench doctor draft` examines it.",
        )
    kept = {name: t for name, t in checkpoint.tensors.items() if not name.endswith(_IDLE)}
    names = {name: _LATER_NORM.sub(r"\1hidden_norm.weight", name) for name in kept}
    converted = draft_of(
        Checkpoint(
            source=checkpoint.source,
            config=_config(source, target),
            tensors={names[name]: replace(t, name=names[name]) for name, t in kept.items()},
        )
    )
    findings = examine_case(case_of(converted, target=target)).findings
    _require_expressible(source, findings)
    return Conversion(
        source=source,
        converted=converted,
        names=names,
        dropped=tuple(name for name in checkpoint.tensors if name not in kept),
        notes=tuple(finding for finding in findings if finding.level is not Level.FAULT),
    )


def _require_expressible(source: Draft, findings: tuple[DraftFinding, ...]) -> None:
    layer = block(source.settings, "transformer_layer_config")
    reasons = []
    if layer.get("model_type", "llama") != "llama":
        reasons.append(
            f"M12: its layer is of the type {layer.get('model_type')!r}; SGLang's is Llama's."
        )
    if source.settings.get("norm_before_residual") is True:
        reasons.append("M11: norm_before_residual is true, which SGLang's layer does not do.")
    if source.settings.get("embed_requires_grad") is True and any(
        name.endswith("embed_tokens.weight") for name in source.checkpoint.tensors
    ):
        reasons.append(
            "M17: its embedding was trained (embed_requires_grad), and SGLang puts the target's "
            "in its place."
        )
    reasons += [
        f"{finding.rule}: {finding.what} ({'; '.join(finding.evidence)})"
        for finding in findings
        if finding.level is Level.FAULT and finding.rule not in _NOT_OF_CONVERSION
    ]
    if reasons:
        raise InputError(
            "\n".join([f"{source.name} cannot be expressed in SGLang's form:", *reasons]),
            hint="Train without these, or serve it with vLLM. Nothing was written.",
        )


def _config(source: Draft, target: Target | None) -> dict[str, Any]:
    layer = block(source.settings, "transformer_layer_config")
    config: dict[str, Any] = {
        "architectures": [LLAMA_EAGLE3],
        "model_type": "llama",
        **LAYER_DEFAULTS,
        **{key: value for key, value in layer.items() if key != "architectures"},
    }
    config |= {
        "model_type": "llama",
        "draft_vocab_size": source.draft_vocab_size,
        "num_hidden_layers": source.layers,
        "tie_word_embeddings": False,
    }
    for key in ("torch_dtype", "dtype"):
        if isinstance(source.checkpoint.config.get(key), str):
            config[key] = source.checkpoint.config[key]
    if source.target_hidden is not None:
        config["target_hidden_size"] = source.target_hidden
    config |= {key: True for key in _FLAGS if source.settings.get(key)}
    config["eagle_config"] = _eagle_config(source, target)
    return config


def _eagle_config(source: Draft, target: Target | None) -> dict[str, Any]:
    """The layers: both count states by default, and ids as the target's class counts them."""
    states = source.top_ids
    if states is None:
        return {"use_aux_hidden_state": True}
    architecture = _target_class(source) if target is None else target.architecture
    layers = None if target is None else target.layers
    shift = SHIFTS.get(architecture or "")
    if shift is None or (shift == "plus-one-unless-last" and layers is None):
        raise InputError(
            f"{source.name} takes the target's states {list(states)}, and with which ids SGLang "
            f"captures them depends on the target: {architecture or 'its class is not named'} is "
            "not enough to tell.",
            hint="Give --target TARGET.",
        )
    ids = ids_for(tuple(sorted(states)), shift=shift, layers=layers or max(states) + 1)
    if ids is None or list(states) != sorted(states):
        raise InputError(
            f"{source.name} takes the target's states {list(states)}, which SGLang cannot capture "
            f"of {architecture} in that order.",
            hint="Train with ascending layers. Nothing was written.",
        )
    return {"use_aux_hidden_state": True, IDS: list(ids), DECLARED: list(states)}


def _target_class(source: Draft) -> str | None:
    verifier = block(block(source.settings, "speculators_config"), "verifier")
    return architecture_of(verifier)


# ------------------------------------------------------------------------------ written, and back


def _write(conversion: Conversion, folder: Path) -> None:
    converted = conversion.converted.checkpoint
    text = json.dumps(converted.config, indent=2) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
    write_safetensors(
        folder / WEIGHTS, [(converted.source, tensor) for tensor in converted.tensors.values()]
    )


def require_same(conversion: Conversion, written: Checkpoint) -> None:
    """Go back from what was written to the source: every tensor bit by bit, every setting.

    Raises:
        DiskError: Something differs: what was written is not what was to be.
    """
    old, found = conversion.source.checkpoint, dict(written.tensors)
    for name, new in conversion.names.items():
        tensor = found.pop(new, None)
        if tensor is None or not same_data(
            (old.source, old.tensors[name]), (written.source, tensor)
        ):
            raise DiskError(f"{written.name}: {new} is not what {name} was in {old.name}.")
    if found:
        raise DiskError(f"{written.name} has tensors that {old.name} has not: {sorted(found)}.")
    again = draft_of(written)
    if replace(again, checkpoint=conversion.converted.checkpoint) != conversion.converted:
        raise DiskError(f"{written.name}/{CONFIG} is not what was written.")
    for setting in ("hidden", "layers", "vocab_size", "draft_vocab_size", "rope", *_FLAGS):
        if getattr(again, setting) != getattr(conversion.source, setting):
            raise DiskError(f"{written.name}/{CONFIG}: {setting} is not that of {old.name}.")
