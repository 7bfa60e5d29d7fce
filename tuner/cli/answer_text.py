"""A study's answer in sentences: what to run with, what it gains, and what that rests on."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from bench.cli.output import many
from bench.model import Verdict
from bench.model.study import OBJECTIVES, TrialState, of_their_configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model.study import Study, StudyConclusion, StudyTrial

_SPEED: Final = "tok_per_s"
_SHORT: Final = {**OBJECTIVES, _SPEED: "", "goodput": "goodput"}
_WHOLE: Final = {**OBJECTIVES, "goodput": f"goodput ({OBJECTIVES['goodput']})"}


def percent(gain: float) -> str:
    """A log ratio as a change in per cent: `+5.1 %`."""
    return f"{round(math.expm1(gain) * 100, 1) + 0.0:+.1f} %"  # + 0.0: no -0.0


def gain_of(gain: float, objective: str) -> str:
    """`+5.1 %` of tok/s; of another objective `+5.1 % goodput`."""
    return " ".join(filter(None, (percent(gain), _SHORT.get(objective))))


def answer(study: Study) -> list[str]:
    """The study's answer in sentences."""
    told = study.conclusion
    if told is None:
        return [_no_answer(study)]
    label = _labels(study)
    sentences = [_ratio(study, told), f"{_verdict(told)} {_what(study, told)}"]
    if (marked := _marked(study, told)) is not None:
        sentences.append(marked)
    if told.search_gain is not None:
        luck = percent(told.optimism).removeprefix("+")
        of_it = "" if luck == "0.0 %" else f", of which {luck} is expected to be luck"
        sentences.append(
            f"The search alone said {gain_of(told.search_gain, study.objective)}{of_it}."
        )
    if told.present is not None and told.over_present is not None and told.best != told.present:
        gain, sd = told.over_present
        within = ", no more than noise" if told.deploy == told.present else ""
        sentences.append(
            f"{label[told.best]} over what is in use now ({label[told.present]}): "
            f"{gain_of(gain, study.objective)} (± {2 * sd * 100:.1f}){within}."
        )
    if told.reason is not None and told.verdict is not None:
        reason = told.reason.rstrip(".")
        sentences.append(f"{reason[0].upper()}{reason[1:]}.")
    return sentences


def in_short(study: Study) -> str:
    """What to run with, then the figure that it rests on: the answer in a line."""
    told = study.conclusion
    if told is None:
        return _no_answer(study)
    return f"{_what(study, told)} {_ratio(study, told)}"


def done_launches(study: Study) -> int:
    """Launches that are over and count against the budget.

    One that was cut off counts where all its cells were measured; one that runs is not over.
    """
    return sum(
        t.state in {TrialState.MEASURED, TrialState.FAILED} or all(v is not None for v in t.value)
        for t in study.trials
    )


def progress(study: Study) -> str:
    """`2 of at most 7 launches`; of a finished study `6 of 7 launches`."""
    most = "" if study.status == "complete" else "at most "
    return f"{done_launches(study)} of {most}{many(study.launches_budget, 'launch')}"


def _labels(study: Study) -> dict[int, str]:
    return {c.place: c.label for c in study.configurations}


def _named(label: str) -> str:
    return "no speculation" if label == "off" else label


def _no_answer(study: Study) -> str:
    if study.status != "complete":
        return f"No answer yet, after {progress(study)}: the final has not been held."
    baseline = next((t.breaks[0] for t in study.trials if t.configuration == 0 and t.breaks), None)
    also = "" if baseline is None else f" The baseline breaks a limit too: {baseline}."
    return (
        f"No final: whatever was to be compared with the baseline failed or breaks a limit.{also}"
    )


# ------------------------------------------------------------------------------ what it rests on


def _measured(study: Study, place: int) -> list[StudyTrial]:
    """The launches of a configuration that have figures."""
    return [
        t
        for t in of_their_configuration(study.trials)
        if t.configuration == place and any(v is not None for v in t.value)
    ]


def _of_final(trials: Sequence[StudyTrial]) -> list[StudyTrial]:
    return [t for t in trials if t.block is not None]


def _ratio(study: Study, told: StudyConclusion) -> str:
    label = _labels(study)
    best, against = label[told.best], _named(label[told.baseline])
    of_best, of_baseline = _measured(study, told.best), _measured(study, told.baseline)
    times = f"{math.exp(told.gain):.3f}x"
    low, high = math.exp(told.ci95_low), math.exp(told.ci95_high)
    proven = told.verdict is not None
    if study.objective == _SPEED:
        figure = f"{'is' if proven else 'was'} {times} as fast as {against}"
    else:
        what = _WHOLE.get(study.objective, study.objective)
        figure = f"{'has' if proven else 'had'} {times} the {what} of {against}"
    found = f"{best} {figure} [{low:.3f}, {high:.3f}]"
    if proven:
        return f"{found}, {_tested(of_best, of_baseline, label[told.baseline])}."
    alone = ", without repeats" if len(of_best) == len(of_baseline) == 1 else ""
    return f"{found}, in {many(len(of_best), 'launch')} against {len(of_baseline)}{alone}."


def _tested(best: Sequence[StudyTrial], baseline: Sequence[StudyTrial], label: str) -> str:
    """Which launches of the final confirm the best, as they were held.

    A short final launches the baseline once, between two launches of the best.
    """
    best, baseline = _of_final(best), _of_final(baseline)
    blocks = {t.block for t in best}
    if blocks == {t.block for t in baseline} and len(best) == len(baseline) == len(blocks):
        return f"re-tested in {many(len(blocks), 'block')} of neighbouring launches"
    tested = f"re-tested in {many(len(best), 'launch')}"
    of = "without speculation" if label == "off" else f"of {label}"
    if not baseline:
        return f"{tested}, beside none {of}"
    return f"{tested} beside {len(baseline)} {of}"


def _verdict(told: StudyConclusion) -> str:
    if told.verdict is not None:
        return f"{told.verdict.value.upper()}."
    return "No verdict." if told.reason is None else f"No verdict: {told.reason.rstrip('.')}."


def _what(study: Study, told: StudyConclusion) -> str:
    """What to run with, in a sentence or two."""
    deploy = _labels(study)[told.deploy]
    what = {
        "deploy": f"Deploy {deploy}.",
        "leave_off": "Leave speculation off" + ("." if deploy == "off" else f", with {deploy}."),
        "keep_present": f"Keep what you have: {deploy}.",
        "undecided": f"{deploy} is the best guess; nothing is proven. "
        "A sweep with more launches would tell.",
    }[told.answer]
    same = " A gain of this size is worth no draft model." if told.verdict is Verdict.SAME else ""
    return f"{what}{same}"


def _marked(study: Study, told: StudyConclusion) -> str | None:
    """Which marks stand on the launches that the gain rests on; None: none does.

    The search launches of the best are left out of the gain, unless there are no others.
    """
    label = _labels(study)
    parts = []
    for place in (told.best, told.baseline):
        every = _measured(study, place)
        trials = (_of_final(every) or every) if place == told.best else every
        marks = Counter(mark for t in trials for mark in dict.fromkeys(t.marks))
        of = f"of {many(len(trials), 'launch')}"
        found = ", ".join(f"{mark} in {count} {of}" for mark, count in marks.most_common())
        if found:
            parts.append(f"{_named(label[place])} ({found})")
    if not parts:
        return None
    return (
        f"It rests on marked launches: {' and '.join(parts)}. The study's page and `bench show` "
        "say what each mark means and what to do."
    )
