"""Types of the scenario's fields: what a value may be, and what is said when it is not."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)

from bench.model.faults import parse_fault
from bench.scenario.mistakes import found

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=64)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Environment = dict[VariableName, str]
Words = tuple[Text, ...]
PositiveFloat = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(ge=1)]
MOST_STEPS: Final = 64
MOST_TOPK: Final = 64
MOST_DRAFT_TOKENS: Final = 1024
"""Of one draft: the nodes of its tree are held, about steps × topk² of them."""
Category = Literal[
    "chat", "code", "maths", "summarising", "translation", "retrieval", "structured", "reasoning"
]


def _one_line_for_text(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _splittable(line: str) -> str:
    try:
        shlex.split(line)
    except ValueError as error:
        raise ValueError(
            f"cannot split {line!r} as a shell does: {error}. Check its quotes"
        ) from None
    return line


def _acceptance(value: object) -> str | tuple[float, ...]:
    if isinstance(value, str) and value:
        return value
    shares = value if isinstance(value, (tuple, list)) else ()
    numbers = tuple(
        float(share)
        for share in shares
        if isinstance(share, (int, float)) and not isinstance(share, bool)
    )
    if not numbers or len(numbers) != len(shares):
        raise ValueError(
            f"wanted the name of an acceptance card or the shares P(at least k drafts accepted) "
            f"for k = 1, 2, …; found {found(value)}. Write e.g. [0.7, 0.5, 0.3]"
        )
    falling = all(later <= earlier for earlier, later in pairwise(numbers))
    if not falling or not all(0 <= share <= 1 for share in numbers):
        raise ValueError(
            f"{list(numbers)} are no shares between 0 and 1 that fall. P(at least k) falls with k"
        )
    return numbers


def _fault(value: str) -> str:
    return parse_fault(value).text


def _cache(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004  # pydantic collects ValueErrors
            f"wanted cold, primed or shared-prefix:SHARE, found {found(value)}. "
            "Write shared-prefix:0.75, without a space"
        )
    if value in ("cold", "primed"):
        return value
    kind, _, share = value.partition(":")
    if kind != "shared-prefix":
        raise ValueError(f"wanted cold, primed or shared-prefix:SHARE, found {value!r}")
    try:
        inside = 0 < float(share) < 1
    except ValueError:
        inside = False
    if not inside:
        raise ValueError(
            f"the share that all prompts have in common lies between 0 and 1, found {share!r}"
        )
    return value


def _plain(value: object) -> bool | int | float | str:
    if isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"wanted a boolean, a number or a text, found {found(value)}")


def no_literal_key(value: object) -> object:
    """Refuse a key where a place to read it from is wanted, and never repeat it."""
    wanted = "wanted {env: NAME} or {file: PATH}, and"
    if isinstance(value, str):
        raise ValueError(  # noqa: TRY004  # pydantic collects ValueErrors
            f"{wanted} found a text: a scenario never holds the key itself"
        )
    if isinstance(value, Mapping):
        given = [name for name in ("env", "file") if value.get(name) is not None]
        if len(given) != 1 and not set(value) - {"env", "file"}:
            raise ValueError(f"{wanted} one of the two; found {' and '.join(given) or 'neither'}")
    return value


def empty_for_null(value: object) -> object:
    """`baseline:` with nothing behind it is `baseline: {}`."""
    return {} if value is None else value


ArgumentLines = Annotated[
    tuple[Annotated[str, AfterValidator(_splittable)], ...],
    BeforeValidator(_one_line_for_text),
    WithJsonSchema(
        {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}
    ),
]
Acceptance = Annotated[
    str | tuple[float, ...],
    PlainValidator(_acceptance),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {"type": "number", "minimum": 0, "maximum": 1},
                    "minItems": 1,
                },
            ]
        }
    ),
]
FaultText = Annotated[Text, AfterValidator(_fault)]
Cache = Annotated[
    str,
    PlainValidator(_cache),
    WithJsonSchema({"type": "string", "pattern": r"^(cold|primed|shared-prefix:0?\.[0-9]+)$"}),
]
KwargValue = Annotated[
    bool | int | float | str,
    PlainValidator(_plain),
    WithJsonSchema({"type": ["boolean", "number", "string"]}),
]
