"""A card as YAML text, as `bench.physics.reading` reads it back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.physics.cards import DraftCard, TargetCard


def card_yaml(card: TargetCard | DraftCard, *, comment: str = "") -> str:
    """The text of a card: fields with their default left out, the draft inside its target.

    Args:
        card: A target or a draft.
        comment: Lines for its head.
    """
    import yaml  # noqa: PLC0415  # only where a card is written

    text = yaml.safe_dump(
        _fields(card), sort_keys=False, allow_unicode=True, width=120, default_flow_style=None
    )
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + str(text)


def _fields(card: Any) -> dict[str, Any]:  # noqa: ANN401  # a card, or a part of one
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(card):
        value = getattr(card, field.name)
        if field.name == "name" and not hasattr(card, "bits"):
            continue  # the file's name is the card's
        if value == field.default:
            continue
        if dataclasses.is_dataclass(value):
            value = _fields(value)
        elif isinstance(value, tuple):
            value = [_fields(item) for item in value]
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        fields[field.name] = value
    return fields
