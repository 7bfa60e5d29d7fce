"""What a checkpoint's `quantization_config` makes of the bits of its matrices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """What a quantised checkpoint makes of its matrices.

    Attributes:
        bits: Per parameter, scales included.
        compute: Of the operands.
        ignore: Names or patterns of modules that keep 16 bits.
    """

    bits: float
    compute: int
    ignore: tuple[str, ...] = ()

    def of(self, *modules: str) -> tuple[float, int]:
        """(bits, compute bits) of a part: 16 when all its modules are left as they are."""
        kept = all(any(_matches(pattern, name) for pattern in self.ignore) for name in modules)
        return (16, 16) if kept and self.ignore else (self.bits, self.compute)


def bits_of(found: object) -> Bits:
    """Bits of a `quantization_config`.

    Raises:
        InputError: A method that is not known here.
    """
    if not found:
        return Bits(bits=16, compute=16)
    if not isinstance(found, dict):
        raise InputError(
            f"quantization_config: wanted fields with values, found {found!r}",
            hint="Give the model's own config.json.",
        )
    ignore = found.get("ignore") or found.get("modules_to_not_convert") or ()
    kept = tuple(str(pattern) for pattern in ignore)
    method = str(found.get("quant_method") or found.get("quant_algo") or "").lower()
    if method in {"awq", "gptq"}:
        bits = float(found.get("bits") or 4)
        group = float(found.get("group_size") or 128)
        # Scale 16 bits and zero point of `bits` a group.
        scales = (16 + bits) / group if group > 0 else 0.0
        return Bits(bits=bits + scales, compute=16, ignore=(*kept, "lm_head"))
    if method == "mxfp4":
        return Bits(bits=4.25, compute=16, ignore=kept)  # 8-bit scale of 32
    if method in {"modelopt_fp4", "nvfp4"} or "nvfp4" in str(found.get("quant_algo", "")).lower():
        return Bits(bits=4.5, compute=4, ignore=kept)  # 8-bit scale of 16
    if method in {"fp8", "modelopt"} or "fp8" in method:
        return Bits(bits=8, compute=8, ignore=kept)
    if method == "compressed-tensors":
        return _compressed(found, kept)
    raise InputError(
        f"quantization_config: quant_method {method!r} is not known",
        hint="Known: fp8, awq, gptq, compressed-tensors, modelopt, nvfp4, mxfp4. "
        "Write the card for the unquantised model and change its bits (docs/physics.md).",
    )


def _compressed(found: Mapping[str, Any], kept: tuple[str, ...]) -> Bits:
    groups = found.get("config_groups") or {}
    group: Mapping[str, Any] = next(iter(groups.values()), {}) if groups else {}
    weights = group.get("weights") or {}
    bits = float(weights.get("num_bits") or 8)
    size = weights.get("group_size")
    scales = 16 / float(size) if size and float(size) > 0 else 0.0
    activations = group.get("input_activations") or {}
    compute = int(activations.get("num_bits") or 16)
    return Bits(bits=bits + scales, compute=compute, ignore=kept)


def _matches(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    if "*" in pattern:
        return re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), module) is not None
    # A plain name is a module, or one of its parents: for any layer's number.
    plain, named = (re.sub(r"\.\d+\.", ".N.", text) for text in (pattern, module))
    return named == plain or named.startswith(f"{plain}.") or f".{plain}" in named
