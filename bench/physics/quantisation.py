"""What a checkpoint's `quantization_config` makes of the bits of its matrices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import InputError
from bench.physics.config_checks import shown

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
        InputError: A method that is not known here, or a field of the wrong kind.
    """
    if not found:
        return Bits(bits=16, compute=16)
    if not isinstance(found, dict):
        raise InputError(
            f"quantization_config: wanted fields with values, found {shown(found)}",
            hint="Give the model's own config.json.",
        )
    return _of_method(found, _kept(found))


def _of_method(found: Mapping[str, Any], kept: tuple[str, ...]) -> Bits:
    method = str(found.get("quant_method") or found.get("quant_algo") or "").lower()
    algorithm = str(found.get("quant_algo") or "").lower()
    if "mixed" in method or "mixed" in algorithm:
        raise _unknown("a mix of data types", method)
    if method in {"awq", "gptq"}:
        bits, group = _number(found, "bits", 4, 16), _group_size(found, 128)
        # Scale 16 bits and zero point of `bits` a group.
        scales = (16 + bits) / group if group else 0.0
        return Bits(bits=bits + scales, compute=16, ignore=(*kept, "lm_head"))
    if method == "w4afp8":
        group = _group_size(found, 128)
        return Bits(bits=4 + (16 / group if group else 0.0), compute=8, ignore=kept)
    if method == "mxfp4":
        return Bits(bits=4.25, compute=16, ignore=kept)  # 8-bit scale of 32
    if method in {"modelopt_fp4", "nvfp4"} or algorithm == "nvfp4":
        return Bits(bits=4.5, compute=4, ignore=kept)  # 8-bit scale of 16
    if algorithm and "fp8" not in algorithm and "modelopt" in method:
        raise _unknown(f"quant_algo {algorithm!r}", method)
    if method == "modelopt" or ("fp8" in method and "4" not in method):
        return Bits(bits=8, compute=8, ignore=kept)
    if method == "compressed-tensors":
        return _compressed(found, kept)
    raise _unknown(f"quant_method {method!r}", method)


def _unknown(what: str, method: str) -> InputError:
    return InputError(
        f"quantization_config: {what} is not known" + (f" (of {method})" if method else ""),
        hint="Known: fp8, awq, gptq, compressed-tensors, modelopt, nvfp4, mxfp4, w4afp8. "
        "Write the card for the unquantised model and change its bits (docs/physics.md).",
    )


def _wrong(key: str, wanted: str, found: object) -> InputError:
    return InputError(
        f"quantization_config: {key}: wanted {wanted}, found {shown(found)}",
        hint="Give the model's own config.json.",
    )


def _kept(found: Mapping[str, Any]) -> tuple[str, ...]:
    key = "ignore" if found.get("ignore") else "modules_to_not_convert"
    patterns = found.get(key) or []
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise _wrong(key, "a list of modules' names", patterns)
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except (re.error, OverflowError, RecursionError):
                raise _wrong(key, "a regular expression after re:", pattern) from None
    return tuple(patterns)


def _number(found: Mapping[str, Any], key: str, otherwise: float, most: float) -> float:
    value = found.get(key)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= most:
        raise _wrong(key, f"a number from 1 to {most:g}", value)
    return float(value)


def _group_size(found: Mapping[str, Any], otherwise: float) -> float:
    """Parameters that share a scale; 0: a whole row does."""
    size = found.get("group_size")
    if size in (-1, 0) and not isinstance(size, bool):
        return 0.0
    return _number(found, "group_size", otherwise, 2**20)


def _fields(found: object, key: str) -> Mapping[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _wrong(key, "fields with values", found)
    return found


def _compressed(found: Mapping[str, Any], kept: tuple[str, ...]) -> Bits:
    groups = _fields(found.get("config_groups"), "config_groups")
    each = {
        _of_group(_fields(group, f"config_groups.{name}"), name) for name, group in groups.items()
    }
    if len(each) > 1:
        raise _unknown("config_groups with different bits", "compressed-tensors")
    bits, compute = each.pop() if each else (8.0, 16)
    return Bits(bits=bits, compute=compute, ignore=kept)


def _of_group(group: Mapping[str, Any], name: str) -> tuple[float, int]:
    weights = _fields(group.get("weights"), f"config_groups.{name}.weights")
    bits, size = _number(weights, "num_bits", 8, 16), _group_size(weights, 0.0)
    # 4-bit floats (NVFP4, MXFP4) have scales of 8 bits, whole numbers of 16.
    scale_bits = 8 if weights.get("type") == "float" and bits == 4 else 16
    activations = _fields(group.get("input_activations"), f"config_groups.{name}.activations")
    compute = int(_number(activations, "num_bits", 16, 16))
    return bits + (scale_bits / size if size else 0.0), compute


def _matches(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    if "*" in pattern:
        return re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), module) is not None
    # A plain name is a module, or one of its parents: for any layer's number.
    plain, named = (re.sub(r"\.\d+\.", ".N.", text) for text in (pattern, module))
    return named == plain or named.startswith(f"{plain}.") or f".{plain}" in named
