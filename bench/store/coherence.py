"""Whether what a study.json says holds together: every place and every list is what it is of.

A file can be well formed and yet speak of a configuration that it does not have. Whoever reads a
study counts on its places, so that is looked at once, where it is read.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Final

from bench.model.study import OBJECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.model.study import Study, StudyConclusion, StudyConfiguration, StudyTrial

ANSWERS: Final = ("deploy", "leave_off", "keep_present", "undecided")
_MOST_GAIN: Final = 100.0  # a log ratio: e^100; what is beyond is no measurement
_GAINS: Final = (
    "launch_sd",
    "gain",
    "gain_sd",
    "predicted_gain",
    "predicted_gain_sd",
    "ci95_low",
    "ci95_high",
    "optimism",
    "search_gain",
)


def contradiction(study: Study) -> str | None:
    """The first thing in a study that does not hold together, in words; None: all does."""
    return next(_contradictions(study), None)


def _contradictions(study: Study) -> Iterator[str]:
    if not study.cells:
        yield "it has no cells"
    if not study.configurations:
        yield "it has no configurations"
    if study.speed < 1:
        yield f"its clock's speed is {study.speed}"
    if study.objective not in OBJECTIVES:
        yield f"its objective is {study.objective!r}, which is none of {', '.join(OBJECTIVES)}"
    yield from _gains("the study", study)
    configurations, cells = len(study.configurations), len(study.cells)
    for at, c in enumerate(study.configurations):
        yield from _of_configuration(at, c, cells)
    for trial in study.trials:
        yield from _of_trial(trial, configurations, cells)
    if study.present is not None:
        yield from _place("what is in use", study.present, configurations)
    if study.conclusion is not None:
        yield from _of_conclusion(study.conclusion, configurations, cells)


def _of_configuration(at: int, c: StudyConfiguration, cells: int) -> Iterator[str]:
    what = f"configuration {at}"
    if c.place != at:
        yield f"{what} says that it is configuration {c.place}"
    draft = (c.num_steps, c.eagle_topk, c.num_draft_tokens)
    if any(count is not None and count < 0 for count in draft):
        yield f"{what} drafts less than nothing"
    yield from _lists(what, c, ("cell_gain", "accept_len_tok"), cells)
    yield from _gains(what, c)


def _of_trial(trial: StudyTrial, configurations: int, cells: int) -> Iterator[str]:
    what = f"trial {trial.number}"
    yield from _place(f"{what} is of", trial.configuration, configurations)
    for place in trial.also_excluded:
        yield from _place(f"{what} excludes", place, configurations)
    yield from _lists(
        what,
        trial,
        ("value", "accept_len_tok", "ttft_p99_ms", "tpot_p99_ms", "predicted_accept_len_tok"),
        cells,
    )
    yield from _gains(what, trial)
    yield from _times(what, trial.started_at, trial.ended_at)


def _of_conclusion(told: StudyConclusion, configurations: int, cells: int) -> Iterator[str]:
    for name in ("deploy", "best", "baseline", "present"):
        if (place := getattr(told, name)) is not None:
            yield from _place(f"its conclusion's `{name}` is", place, configurations)
    if told.answer not in ANSWERS:
        yield f"its conclusion's answer is {told.answer!r}, which is none of {', '.join(ANSWERS)}"
    yield from _gains("its conclusion", told)
    for cell in told.cells:
        if not 0 <= cell.cell < cells:
            yield f"its conclusion has cell {cell.cell} of {cells}"
        what = f"its conclusion's cell {cell.cell}"
        yield from _place(f"{what} has as best", cell.best, configurations)
        yield from _gains(what, cell)


def _place(said: str, place: int, configurations: int) -> Iterator[str]:
    if not 0 <= place < configurations:
        yield f"{said} configuration {place} of {configurations}"


def _lists(what: str, of: object, names: Sequence[str], cells: int) -> Iterator[str]:
    for name in names:
        found = getattr(of, name)
        if found is not None and len(found) != cells:
            yield f"{what} has `{name}` of {len(found)} cells where the study has {cells}"


def _gains(what: str, of: object) -> Iterator[str]:
    named = [(name, getattr(of, name, None)) for name in _GAINS]
    for name in ("cell_gain", "over_present"):
        named += [(name, gain) for gain in getattr(of, name, None) or ()]
    for name, gain in named:
        if gain is not None and not (math.isfinite(gain) and abs(gain) <= _MOST_GAIN):
            yield f"{what} has `{name}` {gain:g}, which no log ratio is"


def _times(what: str, *times: str | None) -> Iterator[str]:
    for time in times:
        try:
            zoned = time is None or datetime.fromisoformat(time).tzinfo is not None
        except ValueError:
            zoned = False
        if not zoned:
            yield f"{what} has the time {time!r}, which is no ISO 8601 time in UTC"
