"""Seeded writing: prompts of eight categories, and documents of any length to go with them; pure.

All is made here, so that a run needs no download and a prompt is the same everywhere. A document
keeps to a few people, houses and places, as a real one does, and draws its sentences from enough
combinations that tens of thousands of words do not repeat.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.load import templates, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.vocabulary import Field

Draws = random.Random
Slots = dict[str, str | int]

_SECTION_BYTES: Final = 6000
_KEYS: Final = ("weight", "age", "level", "price", "length", "rank", "delay", "priority")
_VERBS: Final = (
    "count",
    "merge",
    "sort",
    "check",
    "total",
    "rank",
    "group",
    "find",
    "trim",
    "pair",
)
_STYLES: Final = ("formal", "plain", "lively", "newspaper", "spoken", "solemn", "brief")
_COLUMNS: Final = (
    "person", "role", "place", "date", "thing", "action", "amount", "unit", "cause", "house"
)  # fmt: skip


class Task(NamedTuple):
    """What a prompt asks: text before and after its document, and the document it wants.

    Attributes:
        before: The instruction.
        after: What follows the document; empty: nothing.
        write: Writes the document: (draws, least size in bytes) -> text.
        natural_bytes: The document's size when no prompt length is asked for; 0: none.
    """

    before: str
    after: str
    write: Callable[[Draws, int], str]
    natural_bytes: int


def task_for(category: str, draws: Draws) -> Task:
    """Make one task of a category of `CATEGORIES`."""
    return _TASKS[category](draws)


class _Cast(NamedTuple):
    """The few names that a document keeps to."""

    field: Field
    people: tuple[str, ...]
    houses: tuple[str, ...]
    places: tuple[str, ...]
    year: int


def _cast(draws: Draws) -> _Cast:
    field = draws.choice(vocabulary.FIELDS)
    names = draws.sample(vocabulary.GIVEN_NAMES, 4)
    roles = draws.sample(field.people, 4)
    firsts = draws.sample(vocabulary.HOUSE_FIRST, 3)
    return _Cast(
        field=field,
        people=tuple(f"{name} the {role}" for name, role in zip(names, roles, strict=True)),
        houses=tuple(f"{first} {draws.choice(vocabulary.HOUSE_SECOND)}" for first in firsts),
        places=tuple(draws.sample(vocabulary.PLACES, 3)),
        year=draws.randint(1950, 2025),
    )


def _slots(draws: Draws, cast: _Cast) -> Slots:
    """One draw of every slot that sentences and tasks have."""
    pick, field = draws.choice, cast.field
    thing, other = draws.sample(field.things, 2)
    name, name2 = draws.sample(vocabulary.GIVEN_NAMES, 2)
    house, house2 = draws.sample(cast.houses, 2)
    place, place2 = draws.sample(cast.places, 2)
    month = pick(vocabulary.MONTHS)
    return {
        "field": field.name,
        "person": pick(cast.people),
        "role": pick(field.people),
        "thing": thing,
        "other": other,
        "action": pick(field.actions),
        "trouble": pick(field.troubles),
        "measure": _measure(draws, field),
        "measure2": _measure(draws, field),
        "name": name,
        "name2": name2,
        "house": house,
        "house2": house2,
        "place": place,
        "place2": place2,
        "quality": pick(vocabulary.QUALITIES),
        "quality2": pick(vocabulary.QUALITIES),
        "manner": pick(vocabulary.MANNERS),
        "month": month,
        "date": f"{draws.randint(1, 28)} {month} {cast.year}",
        "key": pick(_KEYS),
        "few": draws.randint(3, 9),
        "small": draws.randint(10, 60),
        "mid": draws.randint(61, 400),
        "big": draws.randint(401, 9999),
    }


def _measure(draws: Draws, field: Field) -> str:
    number = draws.randint(2, 10 ** draws.randint(1, 4))
    return f"{number:,} {draws.choice(field.measures)}"


def _fill(template: str, slots: Slots) -> str:
    return template.format_map(slots)


# ------------------------------------------------------------------------------------ documents


def document(draws: Draws, size_bytes: int) -> str:
    """Prose of at least `size_bytes`, in paragraphs, with numbered headings when it is long."""
    cast = _cast(draws)
    parts: list[str] = []
    written = section = 0
    while written < size_bytes:
        if size_bytes > _SECTION_BYTES and written >= section * _SECTION_BYTES:
            section += 1
            if section % 2 == 0:  # a long document moves on to other people and places
                cast = _cast(draws)
            parts.append(_fill(templates.HEADING, _slots(draws, cast) | {"section": section}))
        parts.append(_paragraph(draws, cast))
        written += len(parts[-1]) + 2
    return "\n\n".join(parts)


def _paragraph(draws: Draws, cast: _Cast) -> str:
    """A few sentences about the same thing, each with its own words for it."""
    slots = _slots(draws, cast)
    pick, field = draws.choice, cast.field
    sentences = []
    for template in draws.sample(templates.SENTENCES, draws.randint(3, 7)):
        slots["other"] = pick(field.things)
        slots["action"] = pick(field.actions)
        slots["quality"] = pick(vocabulary.QUALITIES)
        slots["manner"] = pick(vocabulary.MANNERS)
        slots["person"] = pick(cast.people)
        slots["measure"] = _measure(draws, field)
        sentences.append(_fill(template, slots))
    return " ".join(sentences)


def records(draws: Draws, size_bytes: int) -> str:
    """Numbered records of at least `size_bytes`, a line each."""
    lines: list[str] = []
    written = 0
    while written < size_bytes:
        slots = _slots(draws, _cast(draws))
        slots |= {"number": len(lines) + 1, "reference": draws.getrandbits(32)}
        lines.append(_fill(templates.RECORD, slots))
        written += len(lines[-1]) + 1
    return "\n".join(lines)


def source_code(draws: Draws, size_bytes: int) -> str:
    """A module of at least `size_bytes`, of small functions that each have a purpose."""
    parts = [f'"""Bookkeeping for {draws.choice(vocabulary.FIELDS).name}."""']
    written = len(parts[0])
    while written < size_bytes:
        slots = _slots(draws, _cast(draws))
        thing = str(slots["thing"])
        slots["noun"] = "".join(c if c.isalnum() else "_" for c in thing.lower())
        name = f"{draws.choice(_VERBS)}_{slots['noun']}_{len(parts)}"
        purpose = _fill(draws.choice(templates.PURPOSES), slots)
        body = _fill(draws.choice(templates.FUNCTIONS), slots)
        parts.append(f'def {name}({slots["noun"]}s):\n    """{purpose}"""\n{body}')
        written += len(parts[-1]) + 3
    return "\n\n\n".join(parts)


# ---------------------------------------------------------------------------------------- tasks


def _chat(draws: Draws) -> Task:
    return Task(_asked(draws, templates.CHAT), "", document, 0)


def _code(draws: Draws) -> Task:
    language = draws.choice(vocabulary.PROGRAMMING_LANGUAGES)
    return Task(_asked(draws, templates.CODE, code_language=language), "", source_code, 0)


def _maths(draws: Draws) -> Task:
    return Task(_asked(draws, templates.MATHS), "", records, 0)


def _summarising(draws: Draws) -> Task:
    return Task(_asked(draws, templates.SUMMARISING), "", document, draws.randint(900, 2600))


def _translation(draws: Draws) -> Task:
    asked = _asked(
        draws,
        templates.TRANSLATION,
        language=draws.choice(vocabulary.LANGUAGES),
        style=draws.choice(_STYLES),
    )
    return Task(asked, "", document, draws.randint(300, 1200))


def _retrieval(draws: Draws) -> Task:
    slots = _slots(draws, _cast(draws)) | {"code": f"{draws.getrandbits(24):06x}"}

    def with_needle(draws: Draws, size_bytes: int) -> str:
        lines = records(draws, size_bytes).split("\n")
        # not near the end, which a length in tokens may cut off
        lines.insert(draws.randint(0, len(lines) * 3 // 4), _fill(templates.NEEDLE, slots))
        return "\n".join(lines)

    question = _fill(draws.choice(templates.QUESTIONS), slots)
    return Task(templates.RETRIEVAL, question, with_needle, draws.randint(900, 2600))


def _structured(draws: Draws) -> Task:
    keys = ", ".join(draws.sample(_COLUMNS, draws.randint(3, 6)))
    asked = _asked(draws, templates.STRUCTURED, keys=keys)
    return Task(asked, "", document, draws.randint(500, 1600))


def _reasoning(draws: Draws) -> Task:
    count = draws.randint(4, 6)
    names = draws.sample(vocabulary.GIVEN_NAMES, count)
    things = draws.sample(draws.choice(vocabulary.FIELDS).things, count)
    slots: Slots = {f"p{place}": name for place, name in enumerate(names)}
    slots |= {f"t{place}": thing for place, thing in enumerate(things)}
    clues = draws.sample(templates.CLUES, draws.randint(4, 6))
    slots |= {
        "people": f"{', '.join(names[:-1])} and {names[-1]}",
        "things": ", ".join(things),
        "clues": " ".join(_fill(clue, slots) for clue in clues),
    }
    return Task(_fill(templates.REASONING, slots), "", document, 0)


def _asked(draws: Draws, choices: tuple[str, ...], **more: str | int) -> str:
    template = draws.choice(choices)
    return _fill(template, _slots(draws, _cast(draws)) | more)


_TASKS: Final = {
    "chat": _chat,
    "code": _code,
    "maths": _maths,
    "summarising": _summarising,
    "translation": _translation,
    "retrieval": _retrieval,
    "structured": _structured,
    "reasoning": _reasoning,
}
CATEGORIES: Final = tuple(_TASKS)
