"""Values of a config.json, of which nothing is taken on trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST: Final = 2**48
_MOST_SHOWN_CHARS: Final = 120
_TEXT_KEYS: Final = ("text_config", "language_config", "llm_config")


def text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model in it: a block of its own in models that also see."""
    for key in _TEXT_KEYS:
        if isinstance(config.get(key), dict):
            return {**config, **config[key]}
    return config


def architecture_of(config: Mapping[str, Any]) -> str | None:
    """`architectures[0]`; None where there is none."""
    found = config.get("architectures")
    first = found[0] if isinstance(found, list) and found else None
    return shown(first) if isinstance(first, str) else None


def shown(value: object) -> str:
    """A value as it may be printed: short, and without what a terminal would obey."""
    text = str(value)
    return (text if text.isprintable() else repr(text))[:_MOST_SHOWN_CHARS]


def whole(config: Mapping[str, Any], key: str) -> int | None:
    """A whole number that can be a size; None for anything else."""
    return _whole(config.get(key))


def number(config: Mapping[str, Any], key: str) -> float | None:
    """A number; None for anything else."""
    value = config.get(key)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def block(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A nested object; an empty one where there is none."""
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def layer_ids(config: Mapping[str, Any], key: str) -> tuple[int, ...] | None:
    """A list of layer numbers; None where there is none, or where it holds something else."""
    found = config.get(key)
    if not isinstance(found, list) or not found:
        return None
    ids = tuple(item for item in found if isinstance(item, int) and not isinstance(item, bool))
    return ids if len(ids) == len(found) else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not -_MOST < value < _MOST:
        return None
    return value
