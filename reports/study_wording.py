"""What a study says in a sentence or two. Pure text, no markup."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.model.study import IN_TURN, OBJECTIVES, TrialState, step_counts_in_turn
from reports.view import load_phrase

if TYPE_CHECKING:
    from bench.model.study import Study, StudyConclusion, StudyConfiguration, StudyTrial

Z95 = 1.96
STATES = {
    TrialState.RUNNING: "running",
    TrialState.MEASURED: "measured",
    TrialState.FAILED: "failed",
    TrialState.STALE: "cut off: its process was gone",
}


def points(log_ratio: float) -> float:
    """A gain in per cent: 0.05 is 5.13."""
    return 100 * math.expm1(log_ratio)


def gain_words(log_ratio: float | None, digits: int = 1) -> str:
    """`+8.1 %`; `–` where it is absent."""
    if log_ratio is None:
        return "–"
    rounded = _signed(points(log_ratio), digits)
    return f"{rounded.replace('-', '−')} %"


def _signed(value: float, digits: int) -> str:
    """With its sign; what rounds to nothing is +0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def gain_interval(low: float, high: float, digits: int = 1) -> str:
    """` [+5.2, +8.4]` with the space in front."""
    ends = ", ".join(_signed(points(end), digits) for end in (low, high))
    return f" [{ends.replace('-', '−')}]"


def named(c: StudyConfiguration) -> str:
    """A configuration's label as it stands in a sentence."""
    if c.algorithm is not None or not c.label.startswith("off"):
        return c.label
    return f"speculation {c.label}"


def objective_words(study: Study) -> str:
    """The unit of the objective's metric, as words."""
    return OBJECTIVES.get(study.objective, study.objective)


def launched_words(study: Study, t: StudyTrial) -> str:
    """What a launch ran: its configuration's label, or which step counts took turns in it."""
    label = study.configurations[t.configuration].label
    if t.why != IN_TURN:
        return label
    counts = step_counts_in_turn(t)
    said = "two step counts" if counts is None else f"{counts[0]} and {counts[1]} steps"
    return f"{said} in turn, else as {label}"


def ended_launches(study: Study) -> int:
    """Launches that were measured or failed."""
    return sum(t.state in {TrialState.MEASURED, TrialState.FAILED} for t in study.trials)


def best_so_far(study: Study) -> StudyConfiguration | None:
    """The speculative configuration that was measured and has the highest expected gain."""
    measured = [
        c
        for c in study.configurations
        if c.algorithm is not None and c.launches and c.gain is not None
    ]
    return max(measured, key=lambda c: c.gain or 0.0, default=None)


def progress_words(study: Study) -> str:
    """`12 of 40 launches`."""
    return f"{ended_launches(study)} of {study.launches_budget} launches"


def study_sentences(study: Study) -> list[str]:
    """The answer with its interval, and what the search alone would have said.

    Returns:
        At least one sentence; where nothing can be said, why.
    """
    if study.conclusion is None:
        return _without_conclusion(study)
    return [
        _answer(study, study.conclusion),
        _optimism(study.conclusion),
        *_over_present(study, study.conclusion),
        *_elsewhere(study, study.conclusion),
    ]


def _without_conclusion(study: Study) -> list[str]:
    done = progress_words(study)
    best = best_so_far(study)
    if study.status != "complete":
        first = f"There is no conclusion yet: {done}."
    elif best is None:
        first = f"There is no conclusion: no speculative setting could be measured in {done}."
    else:
        first = f"There is no conclusion: no final was held ({done})."
    if best is None or best.gain is None:
        return [first]
    spread = ""
    if best.gain_sd is not None:
        spread = gain_interval(best.gain - Z95 * best.gain_sd, best.gain + Z95 * best.gain_sd)
    found = (
        f"The search's best so far is {best.label}, expected at {gain_words(best.gain)} "
        f"{objective_words(study)}{spread} over the baseline. Nothing has confirmed it, and the "
        "best of many is flattered by luck."
    )
    return [first, found]


def _final_words(study: Study, c: StudyConclusion) -> str:
    """Which launches of the final the answer rests on; a short one has one baseline for two."""
    of_best, of_baseline = (
        sum(
            t.block is not None and t.configuration == place and t.state is TrialState.MEASURED
            for t in study.trials
        )
        for place in (c.best, c.baseline)
    )
    if of_best != of_baseline:
        launches = f"{of_best} launch{'es' if of_best != 1 else ''}"
        return f"{launches} beside {of_baseline} of {named(study.configurations[c.baseline])}"
    return f"{c.blocks} block{'s' if c.blocks != 1 else ''} of neighbouring launches"


def _answer(study: Study, c: StudyConclusion) -> str:
    best = named(study.configurations[c.best])
    deploy = named(study.configurations[c.deploy])
    over = named(study.configurations[c.baseline])
    figure = (
        f"{gain_words(c.gain)} {objective_words(study)}{gain_interval(c.ci95_low, c.ci95_high)}"
    )
    blocks = _final_words(study, c)
    verdict = "no verdict" if c.verdict is None else c.verdict.value
    because = f" {c.reason[0].upper()}{c.reason[1:].rstrip('.')}." if c.reason else ""
    match c.answer:
        case "deploy":
            found = f"{figure} over {over}, confirmed in {blocks}: {verdict}"
            if c.deploy == c.best:
                return f"Deploy {deploy}: {found}.{because}"
            return f"Deploy {deploy}. The best speculative setting, {best}, is {found}.{because}"
        case "leave_off":
            settings = "" if deploy == "speculation off" else f" ({deploy})"
            return (
                f"Leave speculation off{settings}: the best of it, {best}, is at {figure} "
                f"against {over} in {blocks}: {verdict}.{because}"
            )
        case "keep_present":
            found = "It" if c.deploy == c.best else f"The best speculative setting, {best},"
            return (
                f"Keep what you have, {deploy}: nothing that was found is better by more than "
                f"noise. {found} is at {figure} against {over} in {blocks}: {verdict}.{because}"
            )
        case _:
            return (
                f"UNDECIDED: the best that was found, {best}, is at {figure} against {over} "
                f"in {blocks}, which decides nothing.{because} Until it is decided: {deploy}."
            )


def _optimism(c: StudyConclusion) -> str:
    share = points(c.optimism)
    luck = f"{share:.1f} %" if share >= 0.05 else "none"
    if c.search_gain is None:
        told = (
            f"; the best of such a search is expected to be {luck} luck" if share >= 0.05 else ""
        )
        return f"The search had not launched it: this is the final's figure alone{told}."
    said = gain_words(c.search_gain)
    return f"The search alone said {said}; {luck} of this is expected to be luck."


def _over_present(study: Study, c: StudyConclusion) -> list[str]:
    if c.over_present is None or c.present is None or c.deploy == c.present:
        return []
    gain, sd = c.over_present
    present = named(study.configurations[c.present])
    spread = gain_interval(gain - Z95 * sd, gain + Z95 * sd)
    seen = study.configurations[c.present].launches
    told = "that is" if seen else "which was not launched, that is expected to be"
    return [f"Over what you have in use, {present}, {told} {gain_words(gain)}{spread}."]


def _elsewhere(study: Study, c: StudyConclusion) -> list[str]:
    """Cells at which another configuration is better by more than noise."""
    several = len({cell.workload for cell in study.cells}) > 1
    told = [
        f"{study.configurations[at.best].label} "
        + (f"in {study.cells[at.cell].workload} " if several else "")
        + load_phrase(study.cells[at.cell].load)
        for at in c.cells
        if not at.within_noise and at.best != c.deploy
    ]
    if not told:
        return []
    more = f" and {len(told) - 3} more (Cell by cell)" if len(told) > 3 else ""
    deploy = named(study.configurations[c.deploy])
    return [f"Better than {deploy} by more than noise: {'; '.join(told[:3])}{more}."]
