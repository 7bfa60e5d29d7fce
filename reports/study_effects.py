"""What one axis of a study does, averaged over the others; and what communication does by load.

Pure functions over `Study`: they take the expected gains that the study stored and the launches
behind them, and estimate nothing themselves.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.study_wording import Z95, best_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from bench.model.study import Study, StudyConfiguration

NOT_GIVEN = "not given"
_COMMUNICATION = re.compile(r"all-?reduce|symm-mem|nvls|mscclpp|nccl|p2p", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One value of one axis against the axis's reference, averaged over everything else.

    Attributes:
        axis: Its name.
        value: As words.
        reference: What it is held against; None: it is the reference.
        gain: Mean log ratio to the reference over configurations that differ in nothing else;
            None where there are none.
        half_width: Of its 95 % interval, at most: errors are taken as if independent within a
            pair, and as if all pairs were wrong together.
        matched: Pairs of configurations that it is the mean of.
        launches: Measured launches with this value.
        best: The best configuration with this value; None: nothing is known of any.
    """

    axis: str
    value: str
    reference: str | None
    gain: float | None
    half_width: float | None
    matched: int
    launches: int
    best: StudyConfiguration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    name: str
    value: Callable[[StudyConfiguration], str | int | None]
    rest: Callable[[StudyConfiguration], Hashable]


def effects_of(study: Study) -> tuple[Effect, ...]:
    """Every value of every axis that varies, axes in order, the reference of each first."""
    return tuple(effect for axis in _axes(study) for effect in _effects(study, axis))


def _axes(study: Study) -> Iterator[_Axis]:
    yield _Axis(
        name="algorithm",
        value=lambda c: c.algorithm,
        rest=lambda c: (c.arguments, c.environment),
    )
    yield _Axis(
        name="steps",
        value=lambda c: c.num_steps,
        # The tokens of a chain follow from its steps.
        rest=lambda c: (
            c.algorithm,
            c.eagle_topk,
            c.num_draft_tokens if (c.eagle_topk or 1) > 1 else None,
            c.arguments,
            c.environment,
        ),
    )
    yield _Axis(
        name="topk",
        value=lambda c: c.eagle_topk,
        rest=lambda c: (c.algorithm, c.num_steps, c.arguments, c.environment),
    )
    yield _Axis(
        name="draft tokens",
        value=lambda c: c.num_draft_tokens if (c.eagle_topk or 1) > 1 else None,
        rest=lambda c: (c.algorithm, c.num_steps, c.eagle_topk, c.arguments, c.environment),
    )
    for names in _moving_together(study):
        yield _setting_axis(names)


def _moving_together(study: Study) -> list[tuple[str, ...]]:
    """Arguments and variables, those together of which each tells the other (a bundle)."""
    names = dict.fromkeys(name for c in study.configurations for name in _settings(c))
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        values = [_settings(c).get(name) for c in study.configurations]
        first = {value: at for at, value in reversed(list(enumerate(values)))}
        groups.setdefault(tuple(first[value] for value in values), []).append(name)
    return [tuple(group) for group in groups.values()]


def _settings(c: StudyConfiguration) -> dict[str, str]:
    return {**dict(c.arguments), **dict(c.environment)}


def _setting_axis(names: tuple[str, ...]) -> _Axis:
    def value(c: StudyConfiguration) -> str:
        told = _settings(c)
        if not any(name in told for name in names):
            return NOT_GIVEN
        return ", ".join(told.get(name, NOT_GIVEN) for name in names)

    def rest(c: StudyConfiguration) -> Hashable:
        others = {name: told for name, told in _settings(c).items() if name not in names}
        return (*_drafting(c), tuple(others.items()))

    return _Axis(name=", ".join(names), value=value, rest=rest)


def _drafting(c: StudyConfiguration) -> tuple[str | None, int | None, int | None, int | None]:
    return c.algorithm, c.num_steps, c.eagle_topk, c.num_draft_tokens


def _effects(study: Study, axis: _Axis) -> Iterator[Effect]:
    best: dict[str | int, dict[Hashable, StudyConfiguration]] = {}
    launches: dict[str | int, int] = {}
    for c in study.configurations:
        value = axis.value(c)
        if value is None:
            continue
        launches[value] = launches.get(value, 0) + c.launches
        with_value = best.setdefault(value, {})
        if c.gain is None or c.excluded is not None:
            continue
        there = with_value.get(axis.rest(c))
        if there is None or (there.gain or 0.0) < c.gain:
            with_value[axis.rest(c)] = c
    if len(best) < 2:
        return
    values = sorted(best, key=lambda v: (isinstance(v, str), v if isinstance(v, int) else 0))
    first = axis.value(study.configurations[0])
    reference = first if first in best else values[0]
    assert reference is not None
    for value in (reference, *(v for v in values if v != reference)):
        chosen = max(best[value].values(), key=lambda c: c.gain or 0.0, default=None)
        pairs = (
            [
                (c, best[reference][rest])
                for rest, c in best[value].items()
                if rest in best[reference]
            ]
            if value != reference
            else []
        )
        yield Effect(
            axis=axis.name,
            value=str(value),
            reference=None if value == reference else str(reference),
            gain=_mean([(c.gain or 0.0) - (r.gain or 0.0) for c, r in pairs]),
            half_width=_half_width(pairs),
            matched=len(pairs),
            launches=launches[value],
            best=chosen,
        )


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _half_width(pairs: list[tuple[StudyConfiguration, StudyConfiguration]]) -> float | None:
    spreads = [
        math.hypot(a.gain_sd, b.gain_sd)
        for a, b in pairs
        if a.gain_sd is not None and b.gain_sd is not None
    ]
    mean = _mean(spreads) if len(spreads) == len(pairs) else None
    return None if mean is None else Z95 * mean


# --- communication


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """One setting of transport and environment, all else being as in the best configuration.

    Attributes:
        label: The setting as words.
        configuration: The one that has it.
        default: Whether it is the user's own.
        gains: Log ratio to the default by cell; None where either is unknown.
        noise: Half of the 95 % interval of such a difference from launch noise alone; None where
            one of the two was not measured.
    """

    label: str
    configuration: StudyConfiguration
    default: bool
    gains: tuple[float | None, ...]
    noise: float | None


def communications_of(study: Study) -> tuple[Communication, ...]:
    """Every setting of transport and environment beside the best's drafting, the default first.

    Returns:
        None at all where neither varies, or the default is not among them.
    """
    settings = dict.fromkeys(_communication(c) for c in study.configurations)
    centre = _centre(study)
    if len(settings) < 2 or centre is None:
        return ()
    beside = {
        _communication(c): c for c in study.configurations if _all_else(c) == _all_else(centre)
    }
    own = beside.get(_communication(study.configurations[0]))
    if own is None or len(beside) < 2:
        return ()
    others = [c for c in beside.values() if c is not own]
    return tuple(_against(study, c, own) for c in (own, *others))


def _centre(study: Study) -> StudyConfiguration | None:
    if study.conclusion is not None:
        return study.configurations[study.conclusion.best]
    return best_so_far(study)


def _communication(c: StudyConfiguration) -> tuple[tuple[str, str], ...]:
    return (*(pair for pair in c.arguments if _COMMUNICATION.search(pair[0])), *c.environment)


def _all_else(c: StudyConfiguration) -> Hashable:
    return (
        *_drafting(c),
        tuple(pair for pair in c.arguments if not _COMMUNICATION.search(pair[0])),
    )


def _against(study: Study, c: StudyConfiguration, own: StudyConfiguration) -> Communication:
    gains: tuple[float | None, ...] = tuple(None for _ in study.cells)
    if c.cell_gain is not None and own.cell_gain is not None:
        gains = tuple(a - b for a, b in zip(c.cell_gain, own.cell_gain, strict=True))
    noise = None
    if study.launch_sd is not None and c.launches and own.launches and c is not own:
        noise = Z95 * study.launch_sd * math.sqrt(1 / c.launches + 1 / own.launches)
    return Communication(
        label=" ".join(f"{n}={v}" for n, v in _communication(c)) or "as the server chooses",
        configuration=c,
        default=c is own,
        gains=gains,
        noise=noise,
    )
