"""Cards from YAML: by name from `cards/` beside this module, or from a user's own file by path.

Wherever the name of a card is taken, a path that ends in .yaml or .yml is too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.errors import InputError
from bench.physics.acceptance import AcceptanceCard
from bench.physics.cards import DraftCard, HardwareCard, Links, TargetCard, WeightPart

if TYPE_CHECKING:
    from collections.abc import Mapping

_Record = TypeVar("_Record")
_CARDS = Path(__file__).parent / "cards"
# The least and the most of a card's numbers; any other is between 0 and _MOST.
_RANGES = {
    **dict.fromkeys(("gpus", "kv_shards", "shards"), (1, 4096)),
    **dict.fromkeys(("hidden", "vocab_size", "context_len"), (1, 10**9)),
    "layers": (1, 1000),
    "bandwidth_efficiency": (0.01, 1),
    **dict.fromkeys(("memory_gib", "bandwidth_gb_per_s", "effective_tflops"), (0.01, 1e7)),
    **dict.fromkeys(("bus_gb_per_s", "channel_gb_per_s"), (0.01, 1e7)),
    **dict.fromkeys(("nccl_channels", "kv_bytes_per_token_per_layer"), (1, 10**9)),
    **dict.fromkeys(("bits", "expert_bits", "idle_bits"), (1, 64)),
    **dict.fromkeys(("compute_bits", "expert_compute_bits"), (1, 64)),
}
_MOST = 1e18
_TITLES = {
    "hardware": "hardware",
    "targets": "target",
    "drafts": "draft",
    "acceptance": "acceptance",
}


def load_hardware(name: str) -> HardwareCard:
    """The hardware card `name`, or of the file at that path.

    Raises:
        InputError: No such card, with the nearest names; or a file that is no such card.
    """
    found = _read("hardware", name)
    links = found.fields.pop("links", None)
    table = found.fields.pop("allreduce_us", [])
    try:
        pairs = tuple((int(size), float(us)) for size, us in table)
    except (TypeError, ValueError):
        raise found.wrong("allreduce_us", "wanted a list of [bytes, µs]") from None
    if any(a[0] >= b[0] for a, b in itertools.pairwise(pairs)):
        raise found.wrong("allreduce_us", "wanted sizes that rise")
    return found.record(
        HardwareCard,
        allreduce_us=pairs,
        links=None if links is None else found.inside("links", links).record(Links),
    )


def load_target(name: str) -> TargetCard:
    """The target card `name`, or of the file at that path.

    Its `draft` is the name or path of a draft card (a path is relative to the target's file), or
    the draft's fields themselves.

    Raises:
        InputError: No such card, with the nearest names; or a file that is no such card.
    """
    found = _read("targets", name)
    draft = found.fields.pop("draft", None)
    card: DraftCard | None = None
    if isinstance(draft, str):
        beside = Path(found.place).parent / draft
        card = load_draft(str(beside) if _is_path(draft) and found.is_own else draft)
    elif draft is not None:
        card = _draft(found.inside("draft", draft), f"{found.name}-draft")
    return found.record(TargetCard, parts=_parts(found), draft=card)


def load_draft(name: str) -> DraftCard:
    """The draft card `name`, or of the file at that path.

    Raises:
        InputError: No such card, with the nearest names; or a file that is no such card.
    """
    found = _read("drafts", name)
    return _draft(found, found.name)


def load_acceptance(name: str | tuple[float, ...]) -> AcceptanceCard:
    """The acceptance card `name` or of the file at that path, or a card of given numbers.

    Numbers are P(at least k drafts accepted) for k = 1, 2, …; a string such as `0.36,0.14,0.07`
    gives the numbers too. `NAME:CATEGORY` is the card with the acceptance of one category.

    Raises:
        InputError: No such card or category, with the nearest names; or numbers that are not
            falling between 0 and 1.
    """
    if isinstance(name, tuple):
        return AcceptanceCard(
            name=",".join(f"{p:g}" for p in name), reach=name, source="given by the user"
        )
    try:
        given = tuple(float(part) for part in name.split(","))
    except ValueError:
        return _acceptance_card(name)
    return AcceptanceCard(name=name, reach=given, source="given by the user")


def _acceptance_card(name: str) -> AcceptanceCard:
    card_name, _, category = name.partition(":")
    found = _read("acceptance", card_name)
    categories = found.fields.pop("categories", None) or {}
    tables = {
        key: _numbers(found, key, found.fields.pop(key))
        for key in ("reach", "reach_thinking")
        if found.fields.get(key) is not None
    }
    found.fields.pop("reach_thinking", None)
    by_position = found.fields.pop("position", None) or []
    try:
        position = tuple((int(tok), float(shift)) for tok, shift in by_position)
    except (TypeError, ValueError):
        raise found.wrong("position", "wanted a list of [output token, shift]") from None
    if not isinstance(categories, dict):
        raise found.wrong("categories", "wanted a list of shares for each category")
    card = found.record(
        AcceptanceCard,
        position=position,
        categories=tuple(
            (str(key), _numbers(found, f"categories.{key}", values))
            for key, values in categories.items()
        ),
        **tables,
    )
    return card.of_category(category) if category else card


def _numbers(found: _Found, key: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    ):
        raise found.wrong(key, "wanted a list of shares")
    return tuple(float(value) for value in values)


def _draft(found: _Found, name: str) -> DraftCard:
    found.name = name
    return found.record(DraftCard, parts=_parts(found))


def _parts(found: _Found) -> tuple[WeightPart, ...]:
    parts = found.fields.pop("parts", None)
    if not isinstance(parts, list) or not parts:
        raise found.wrong("parts", "wanted a list of {name, parameters, bits}")
    return tuple(
        found.inside(f"parts[{index}]", part).record(WeightPart)
        for index, part in enumerate(parts)
    )


@dataclasses.dataclass(slots=True, kw_only=True)
class _Found:
    """The fields of a card as they stand in a file."""

    kind: str
    name: str
    place: str
    fields: dict[str, Any]
    is_own: bool

    def inside(self, key: str, value: object) -> _Found:
        """The fields below one key."""
        if not isinstance(value, dict):
            raise self.wrong(key, "wanted fields with values")
        return dataclasses.replace(self, fields=dict(value), place=f"{self.place}, {key}")

    def wrong(self, key: str, what: str) -> InputError:
        """The error for one field."""
        return InputError(
            f"{self.place}: {key}: {what}",
            hint=f"The fields of a {_TITLES[self.kind]} card: docs/physics.md.",
        )

    def record(self, record: type[_Record], **ready: Any) -> _Record:  # noqa: ANN401  # what is ready has many types
        """The fields as a dataclass; those already read are given in `ready`."""
        hints = typing.get_type_hints(record)
        known = {field.name: field for field in dataclasses.fields(record)}  # type: ignore[arg-type]  # callers give dataclasses
        values: dict[str, Any] = dict(ready)
        for key, value in self.fields.items():
            if key not in known or (key == "name" and record is not WeightPart):
                close = _nearest(str(key), sorted(known))
                raise self.wrong(str(key), f"no such field. {close}".rstrip())
            values[key] = self._value(key, value, hints[key])
            if record is not AcceptanceCard:  # which has its own checks
                self._require_range(key, values[key])
        if "name" in known:
            values.setdefault("name", self.name)
        for key, field in known.items():
            needed = field.default is dataclasses.MISSING
            if needed and key not in values:
                raise self.wrong(key, "missing")
        for part, whole in (("experts_per_token", "experts"), ("moe_layers", "layers")):
            if values.get(part, 0) > values.get(whole, 0):
                raise self.wrong(part, f"wanted at most the {values.get(whole, 0)} {whole}")
        return record(**values)

    def _require_range(self, key: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        least, most = _RANGES.get(key, (0, _MOST))
        if not least <= value <= most:
            found = f"{value:g}" if isinstance(value, float) or abs(value) < _MOST else "more"
            raise self.wrong(key, f"wanted a number from {least:g} to {most:g}, found {found}")

    def _value(self, key: str, value: object, hint: object) -> object:
        choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if value is None and type(None) in choices:
            return None
        if float in choices and isinstance(value, int | float) and not isinstance(value, bool):
            # A number too large for a float is refused for its range.
            return float(value) if abs(value) <= _MOST else math.inf
        if bool in choices and isinstance(value, bool):
            return value
        if int in choices and isinstance(value, int) and not isinstance(value, bool):
            return value
        literals = [word for choice in choices for word in typing.get_args(choice)]
        if isinstance(value, str) and (str in choices or value in literals):
            return value.strip()
        wanted = (
            "text"
            if str in choices
            else " or ".join(map(str, literals))
            or ("true or false" if bool in choices else "a number")
        )
        raise self.wrong(key, f"wanted {wanted}, found {value!r}")


def _is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _read(kind: str, name: str) -> _Found:
    if _is_path(name):
        return _parse(kind, Path(name), is_own=True)
    folder = _CARDS / kind
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(
            f"no {_TITLES[kind]} card {name!r}",
            hint=f"{_nearest(name, known)}Cards: {', '.join(known)}; or the path of a .yaml file.",
        )
    return _parse(kind, folder / f"{name}.yaml", is_own=False)


def _parse(kind: str, path: Path, *, is_own: bool) -> _Found:
    import yaml  # noqa: PLC0415  # only where a card is read

    # The C loader halves the simulator's start; a build without libyaml has the Python one only.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = path.read_text(encoding="utf-8")
        card: Mapping[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506  # both are safe loaders
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(
            f"{_TITLES[kind]} card {str(path)!r}: {reason}", hint="Give the path of a YAML file."
        ) from None
    except yaml.YAMLError as error:
        raise InputError(
            f"{_TITLES[kind]} card {str(path)!r} is no YAML: {error}", hint="Mend the file."
        ) from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{_TITLES[kind]} card {str(path)!r}: a number or date that cannot be read, or nested "
            "too deeply",
            hint="Mend the file.",
        ) from None
    if not isinstance(card, dict):
        raise InputError(
            f"{_TITLES[kind]} card {str(path)!r}: wanted fields with values",
            hint="`bench card target CONFIG.json` writes one.",
        )
    return _Found(kind=kind, name=path.stem, place=str(path), fields=dict(card), is_own=is_own)


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415  # only for the error message

    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}? " if close else ""
