"""The page of a tuning study: what to deploy, what it gains for certain, and how it was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.errors import StoreError
from bench.model.study import TrialState, of_their_configuration
from bench.store import load_run
from bench.store.study import read_study
from reports.blocks import Page, Remark, Section
from reports.findings import finding_remarks
from reports.render import write_page
from reports.study_known import (
    communication_blocks,
    effect_blocks,
    prediction_blocks,
    surface_blocks,
)
from reports.study_launches import cost_blocks, failure_blocks, order_blocks
from reports.study_outcome import (
    cell_blocks,
    deploy_blocks,
    provenance_blocks,
    space_blocks,
)
from reports.study_wording import ended_launches, gain_words, progress_words, study_sentences

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.model.study import Study
    from bench.store import StoredRun
    from reports.blocks import Block

STUDY_PAGE = "study.html"
"""Name of a study's page in its folder; report.html there is the run's."""

_WHY = {"baseline": 0, "first": 1, "search": 2, "final": 3}
_SERIES = {
    "baseline": "baseline, the drift control",
    "first": "first",
    "search": "search",
    "final": "final",
}
_MARKS_TOLD = 6


def write_study_page(folder: Path) -> Path:
    """Write the page of the study in a run's folder, finished or not, beside its study.json.

    Raises:
        StoreError: There is no study, or it is damaged.
        DiskError: The page cannot be written.
    """
    study = read_study(folder)
    return write_page(study_page(study, _stored_or_why(folder)), folder / STUDY_PAGE)


def _stored_or_why(folder: Path) -> StoredRun | str:
    try:
        return load_run(folder)
    except StoreError as error:
        return str(error).replace(f"{folder}/", "")


def study_page(study: Study, stored: StoredRun | str) -> Page:
    """The page of a study as far as it got.

    Args:
        study: From `bench.store.study.read_study`.
        stored: Its run, from `bench.store.load_run`; text: why it cannot be read.
    """
    drawn = of_their_configuration(study.trials)
    numbers = {t.why: _WHY.get(t.why, len(_WHY)) for t in drawn}
    run = None if isinstance(stored, str) else stored
    simulated = study.simulated or (run is not None and run.simulated)
    return Page(
        kind="study",
        title=study.question,
        subtitle=_subtitle(study, run),
        answer=tuple(study_sentences(study)),
        warnings=tuple(_warnings(study, stored)),
        series=tuple(
            (_SERIES.get(why, why), number)
            for why, number in sorted(numbers.items(), key=lambda item: item[1])
        ),
        sections=(
            _section("findings", "What weakens it", _weakening(study, run)),
            _section("deploy", "What to deploy", deploy_blocks(study)),
            _section("surface", "Response surface", surface_blocks(study)),
            _section("effects", "What each axis does", effect_blocks(study)),
            _section(
                "predictions", "Predicted against measured", prediction_blocks(study, numbers)
            ),
            _section("order", "Launch by launch", order_blocks(study, numbers)),
            _section("failures", "Failed and left out", failure_blocks(study)),
            _section("communication", "Communication by load", communication_blocks(study)),
            _section("cost", "Cost", cost_blocks(study)),
            _section("cells", "Cell by cell", cell_blocks(study)),
            _section("space", "The space", space_blocks(study)),
            _section("provenance", "What exactly was run", provenance_blocks(study, run)),
        ),
        simulated=simulated,
    )


def _section(anchor: str, title: str, blocks: Iterable[Block]) -> Section:
    return Section(anchor=anchor, title=title, blocks=tuple(blocks))


def _subtitle(study: Study, run: StoredRun | None) -> str:
    began = run.manifest.started_at if run else next((t.started_at for t in study.trials), "")
    parts = (
        study.scenario,
        study.study_id,
        began[:16].replace("T", " ") + " UTC" if began else "",
        f"sglang {study.engine_version}" if study.engine_version else "",
        f"specdyno {run.manifest.specdyno_version}" if run else "",
    )
    return " · ".join(filter(None, parts))


def _warnings(study: Study, stored: StoredRun | str) -> list[str]:
    lines = []
    if study.simulated and study.speed != 1:
        lines.append(f"The simulated clock ran at {study.speed}× speed.")
    if study.status != "complete":
        unconcluded = "" if study.conclusion else ", no conclusion"
        lines.append(f"This study is not finished: {progress_words(study)}{unconcluded}.")
    if isinstance(stored, str):
        lines.append(f"Findings, machine and software are missing here: {stored}")
    return lines


def _weakening(study: Study, run: StoredRun | None) -> list[Block]:
    """What the study's own launches tell, then the findings of its run."""
    remarks = [*_breaking(study), *_marked(study), *_failing(study)]
    notes = [Remark(tone="note", title="NOTE", text=note) for note in study.notes]
    of_run = finding_remarks(run) if run is not None else []
    if (remarks or notes) and of_run and isinstance(of_run[0], str):
        of_run = []
    return [*remarks, *of_run, *notes] or ["Nothing was found that weakens the figures."]


def _breaking(study: Study) -> list[Remark]:
    deploy = study.conclusion.deploy if study.conclusion else None
    trials = of_their_configuration(study.trials)
    broken = [t for t in trials if t.breaks and t.configuration == deploy]
    if not broken:
        return []
    return [
        Remark(
            tone="bad",
            title="A limit is not kept",
            text="; ".join(dict.fromkeys(line for t in broken for line in t.breaks)) + ".",
            advice="Deploy it only if the limit may be passed; else lower the load.",
            where=study.configurations[broken[0].configuration].label,
        )
    ]


def _marked(study: Study) -> list[Remark]:
    """Marks of the launches that the answer rests on: the final's, or all before there is one."""
    final = tuple(t for t in study.trials if t.why == "final")
    resting = final or of_their_configuration(study.trials)
    counts: dict[str, int] = {}
    for t in resting:
        for mark in dict.fromkeys(t.marks):
            counts[mark] = counts.get(mark, 0) + 1
    if not counts:
        return []
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    told = [f"{mark.replace('_', ' ')} in {count}" for mark, count in ordered[:_MARKS_TOLD]]
    more = len(ordered) - len(told)
    return [
        Remark(
            tone="warn",
            title="Marked launches",
            text=f"Of the {len(resting)} launches {'of the final' if final else 'so far'}: "
            + ", ".join(told)
            + (f" and {more} more marks." if more > 0 else "."),
            advice="The findings below say what each mark means and what to do.",
        )
    ]


def _failing(study: Study) -> list[Remark]:
    failed = sum(t.state is TrialState.FAILED for t in study.trials)
    remarks = []
    if failed and 3 * failed >= ended_launches(study):
        remarks.append(
            Remark(
                tone="warn",
                title="Many launches failed",
                text=f"{failed} of {ended_launches(study)} launches: little of the budget is left "
                "in the figures.",
                advice="“Failed and left out” says why; take what cannot run out of `tune:`.",
            )
        )
    if study.launch_sd is not None:
        remarks.append(
            Remark(
                tone="note",
                title="NOTE launch noise",
                text=f"One launch of the objective scatters by {gain_words(study.launch_sd)[1:]} "
                "(standard deviation); differences below that are decided by repeats alone.",
            )
        )
    return remarks
