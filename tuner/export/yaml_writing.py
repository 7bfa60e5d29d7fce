"""Plain data as YAML that a person reads: short values in a line, long ones in blocks."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDTH: Final = 99
_NEVER: Final = 1_000_000  # columns before PyYAML breaks a line


def block(key: str, value: object, *, indent: int = 0) -> str:
    """A key with its value, as whole lines.

    Args:
        key: The key.
        value: dict, list or scalar.
        indent: Columns before the key.
    """
    return "".join(f"{line}\n" for line in _lines(key, value, indent))


def folded(key: str, text: str) -> str:
    """A key with prose, folded."""
    lines = textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return f"{key}: >\n" + "".join(f"  {line}\n" for line in lines)


def comment(lines: Sequence[str]) -> str:
    """Lines of a comment, wrapped."""
    wrapped = (
        part
        for line in lines
        for part in textwrap.wrap(line, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    )
    return "".join(f"# {part}\n" for part in wrapped)


def _lines(key: str, value: object, indent: int) -> Iterator[str]:
    name = _inline(key)
    line = f"{' ' * indent}{name}: {_inline(value)}"
    if not isinstance(value, dict | list) or (_is_flat(value) and len(line) <= WIDTH):
        yield line
        return
    yield f"{' ' * indent}{name}:"
    if isinstance(value, dict):
        for inner, one in value.items():
            yield from _lines(inner, one, indent + 2)
    else:
        yield from (f"{' ' * (indent + 2)}- {_inline(one)}" for one in value)


def _is_flat(value: dict[str, Any] | list[Any]) -> bool:
    """Whether it holds no mapping, so that a line of it can be read."""
    inner = value.values() if isinstance(value, dict) else value
    return not any(
        isinstance(one, dict) or (isinstance(one, list) and not _is_flat(one)) for one in inner
    )


def _inline(value: object) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=_NEVER
    )
    return text.removesuffix("\n").removesuffix("\n...")


def plain(data: Mapping[str, Any] | object) -> Any:  # noqa: ANN401  # YAML data
    """The same with lists for tuples and whole floats as whole numbers, which both read alike."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, tuple | list):
        return [plain(value) for value in data]
    if isinstance(data, float) and data.is_integer():
        return int(data)
    return data
