"""Plain data to a `Scenario`; pydantic's errors to mistakes with position, key and what to do."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bench.scenario.fields import NAME_PATTERN
from bench.scenario.mistakes import Mistake, found, nearest
from bench.scenario.schema import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic_core import ErrorDetails

WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
}


def json_schema() -> dict[str, object]:
    """The JSON Schema of a scenario; committed as bench/scenario/scenario.schema.json."""
    schema = _with_plain_descriptions(Scenario.model_json_schema())
    assert isinstance(schema, dict)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "specdyno scenario",
    }


def validated(
    data: Mapping[str, object], position: Callable[[str], str]
) -> Scenario | list[Mistake]:
    """A scenario, or everything that is wrong with its keys and types.

    Args:
        data: What the YAML holds: dict, tuple and scalars.
        position: Where a dotted key stands (its nearest ancestor when it is missing).
    """
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        return [_mistake(details, position) for details in error.errors(include_url=False)]


def _mistake(details: ErrorDetails, position: Callable[[str], str]) -> Mistake:
    loc = [str(part) for part in details["loc"]]
    if loc and loc[-1] == "[key]":  # a mapping's key itself is wrong
        key = ".".join(loc[:-1])
        return Mistake(position=position(key), key=key, text=_name_text(loc[-2], loc[:-2]))
    key = ".".join(loc)
    if "api_key" in loc and details["type"] not in ("extra_forbidden", "value_error"):
        text = "wanted {env: NAME} or {file: PATH}; what stands there is not repeated"
    else:
        text = _text(details, loc)
    return Mistake(position=position(key), key=key, text=text)


def _name_text(name: str, parent: Sequence[str]) -> str:
    if parent and parent[-1] == "environment":
        return f"{name!r} is no name of an environment variable. Use letters, digits and _"
    return f"{name[:80]!r} is no name. Names match {NAME_PATTERN[1:-1]}, 64 characters at most"


def _text(details: ErrorDetails, loc: Sequence[str]) -> str:
    kind, value, ctx = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key. {nearest(loc[-1], _keys_at(loc[:-1]))}"
    if kind == "missing":
        return f"missing. Add {loc[-1]}: {_description_at(loc)}"
    if kind == "literal_error":
        valid = [
            option.strip("' ") for option in str(ctx["expected"]).replace(" or ", ", ").split(",")
        ]
        return (
            f"wanted one of {', '.join(valid)}; found {found(value)}. {nearest(str(value), valid)}"
        )
    if kind == "value_error":
        return str(ctx["error"])
    if kind in WANTED:
        wanted = WANTED[kind].format(**ctx)
        return f"wanted {wanted}, found {found(value)}{_advice(kind, value, loc)}"
    if kind in ("string_pattern_mismatch", "string_too_long") and loc == ["name"]:
        return _name_text(str(value), ())
    if kind in ("string_too_short", "too_short"):
        return f"is empty. {_description_at(loc) or 'Give it a value, or leave the key out'}"
    return f"{details['msg']}, found {found(value)}"


def _advice(kind: str, value: object, loc: Sequence[str]) -> str:
    if isinstance(value, float) and value.is_integer() and kind.startswith("int_"):
        return f". Write {int(value)}"
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f'. Put it in quotes: "{str(value).lower() if isinstance(value, bool) else value}"'
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str):
        return ". Write it without quotes" if _reads_as(kind, value) else ""
    if kind == "tuple_type" and not isinstance(value, (Mapping, type(None))):
        return f". Write [{', '.join(_words(value))}]"
    if kind == "model_type" and (keys := _schema_at(loc).get("required")):
        return f". Write {{{', '.join(f'{key}: …' for key in keys)}}}"
    return ""


def _words(value: object) -> list[str]:
    """A value as the words of a list: a text is split as a shell would split it."""
    try:
        return (
            [shlex.quote(word) for word in shlex.split(value)]
            if isinstance(value, str)
            else [str(value)]
        )
    except ValueError:
        return [str(value)]


def _reads_as(kind: str, text: str) -> bool:
    if kind == "bool_type":
        return text.lower() in ("true", "false")
    try:
        if not math.isfinite(float(text)):
            return False
    except ValueError:
        return False
    return kind == "float_type" or text.lstrip("+-").isdigit()


def _with_plain_descriptions(node: object) -> object:
    """A schema whose descriptions are one line each."""
    if isinstance(node, dict):
        return {
            key: " ".join(value.split())
            if key == "description" and isinstance(value, str)
            else _with_plain_descriptions(value)
            for key, value in node.items()
        }
    return [_with_plain_descriptions(item) for item in node] if isinstance(node, list) else node


@cache
def _schema() -> dict[str, Any]:
    return dict(json_schema())


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    """A schema node with its $ref followed and the null of an optional key left out."""
    if "$ref" in node:
        name = str(node["$ref"]).rsplit("/", 1)[-1]
        return {
            **_schema()["$defs"][name],
            **{key: value for key, value in node.items() if key != "$ref"},
        }
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        return {
            **_resolved(options[0]),
            **{key: value for key, value in node.items() if key != "anyOf"},
        }
    return node


def _schema_at(loc: Sequence[str]) -> dict[str, Any]:
    node = _resolved(_schema())
    for part in loc:
        below = node.get("properties", {}).get(part)
        if below is None:
            patterns = node.get("patternProperties", {})
            below = (
                next(iter(patterns.values()), None)
                or node.get("additionalProperties")
                or node.get("items")
            )
        node = _resolved(below) if isinstance(below, dict) else {}
    return node


def _keys_at(loc: Sequence[str]) -> list[str]:
    """The keys that the schema knows below a key."""
    return list(_schema_at(loc).get("properties", {}))


def _description_at(loc: Sequence[str]) -> str:
    return str(_schema_at(loc).get("description", ""))
