"""What trees accepted in earlier studies, for a sweep that begins.

A sweep that begins looks once at the studies below its results folder, and keeps what it took in
experience.json beside its study.json: taken up again, it foresees what it foresaw.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from bench.errors import StoreError
from bench.model import BASELINE
from bench.model.study import IN_TURN
from bench.sglang.arguments import EAGLE_FAMILY, asked_text, parse_arguments
from bench.store.disk import replace_file, writing
from bench.store.layout import run_id_of
from bench.store.study import JOURNAL, STUDY, read_study, studies_in
from tuner.predict import Experience, Record
from tuner.predict.experience import is_learnable, is_possible, model_name, records_of
from tuner.predict.published import published_records
from tuner.space.arms import ADAPTIVE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.model.study import Study, StudyConfiguration
    from tuner.predict.experience import Shape
    from tuner.sweep.beginning import Prepared

EXPERIENCE: Final = "experience.json"
FORMAT: Final = 1
MOST_RECORDS: Final = 400  # those of the same target model first, then the latest
_DRAFT: Final = "speculative_draft_model_path"
_DRAFT_OPTION: Final = "--speculative-draft-model-path"
_NAMED: Final = 3  # studies in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """experience.json: of which models a study is, and what it took from earlier ones.

    Attributes:
        format: Of this file.
        target: Path or hub id of the target model.
        draft: Likewise of the draft model.
        records: What earlier studies told.
        notes: What is told of that, in sentences.
    """

    format: int
    target: str
    draft: str
    records: tuple[Record, ...]
    notes: tuple[str, ...]


def experience_of(prepared: Prepared, folder: Path) -> tuple[Experience, tuple[str, ...]]:
    """What earlier studies tell a sweep, and what is to be told of that.

    Args:
        prepared: The sweep.
        folder: Of its run: `<results>/<scenario>/.partial-<run id>`.

    Raises:
        DiskError: experience.json cannot be written.
    """
    target, draft = _models(prepared)
    if (folder / EXPERIENCE).is_file():
        kept = _read(folder)
        if isinstance(kept, str):
            note = (
                f"{EXPERIENCE} of this study is damaged ({kept}): what earlier studies told of "
                "trees is not used any more, and predictions are others than before."
            )
            kept = Kept(format=FORMAT, target=target, draft=draft, records=(), notes=(note,))
    elif (folder / JOURNAL).exists() or (folder / STUDY).exists():
        # It was begun without experience, and goes on as it began.
        kept = Kept(format=FORMAT, target=target, draft=draft, records=(), notes=())
    else:
        records, notes = _looked_up(prepared, folder, model_name(target))
        kept = Kept(format=FORMAT, target=target, draft=draft, records=records, notes=notes)
        data = msgspec.json.format(msgspec.json.encode(kept), indent=1)
        with writing("what earlier studies told", folder / EXPERIENCE):
            replace_file(folder / EXPERIENCE, lambda file: file.write(data))
    workloads = tuple(point.workload.name for point in prepared.candidates.ground.points)
    experience = Experience(
        records=kept.records,
        target=model_name(target),
        draft=model_name(draft),
        workloads=workloads,
    )
    return experience, kept.notes


def _models(prepared: Prepared) -> tuple[str, str]:
    """Path or hub id of target and draft; a target that drafts for itself is both."""
    candidates = prepared.candidates
    arms = candidates.ground.arms
    asked = (parse_arguments(arms[name].server.arguments) for name in candidates.arms)
    drafts = (asked_text(arguments, _DRAFT) for arguments in asked)  # up to the first that has one
    baseline = parse_arguments(arms[BASELINE].server.arguments)
    target = asked_text(baseline, "model_path") or prepared.loaded.scenario.target.path
    return target, next((draft for draft in drafts if draft), target)


def _read(folder: Path) -> Kept | str:
    """A study's experience.json, or why it cannot be read."""
    try:
        kept = msgspec.json.decode((folder / EXPERIENCE).read_bytes(), type=Kept)
    except FileNotFoundError:
        return "it does not say of which models it is"
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        return _reason(error)
    if kept.format != FORMAT:
        return f"format {kept.format} where {FORMAT} is read"
    wrong = next((at for at, record in enumerate(kept.records) if not is_possible(record)), None)
    return kept if wrong is None else f"its record {wrong} is none that can be measured"


# ----------------------------------------------------------------------------------- looking it up


def _looked_up(
    prepared: Prepared, folder: Path, target: str
) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Records for a sweep that begins, and what is told of them."""
    if not any(c.is_tree for c in prepared.candidates.searched):
        return (), ()
    simulated = prepared.asked.simulated
    records, left_out, too_large = _of_studies(folder, simulated=simulated)
    if not simulated:
        records += published_records()
    records.sort(key=lambda record: record.target != target)  # keeps the latest first
    taken = tuple(records[:MOST_RECORDS])
    notes = [_told(taken, target)] if taken else []
    if left_out:
        told = _named(left_out)
        notes.append(f"Earlier studies from which nothing was learnt: {told}.")
    if too_large:
        told = _named(too_large)
        notes.append(f"Drafts of earlier studies that are too large to learn from: {told}.")
    return taken, tuple(notes)


def _named(found: Sequence[str]) -> str:
    more = len(found) - _NAMED
    return "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _of_studies(folder: Path, *, simulated: bool) -> tuple[list[Record], list[str], list[str]]:
    """Records of the studies beside one, the latest first.

    Also which could not be read, and why; and which have drafts that nothing is learnt from.
    """
    records: list[Record] = []
    left_out: list[str] = []
    too_large: list[str] = []
    try:
        folders = studies_in(folder.parent.parent)
    except (StoreError, OSError) as error:
        return [], [_reason(error)], []
    known = {run_id_of(folder)}
    for other in reversed(folders):
        try:
            study = read_study(other)
        except StoreError as error:
            left_out.append(_reason(error))
            continue
        # A simulator's trees are its own: they tell nothing of real ones, nor these of them.
        if study.study_id in known or study.simulated != simulated:
            continue
        known.add(study.study_id)
        too_large += [f"{study.study_id} ({label})" for label in too_large_of(study)]
        lengths = lengths_of(study)
        if not lengths:
            continue
        kept = _read(other)
        if isinstance(kept, str):
            left_out.append(f"{study.study_id} ({kept})")
            continue
        for (cell, draft), by_shape in lengths.items():
            records += records_of(
                by_shape,
                origin=study.study_id,
                target=kept.target,
                draft=draft or kept.draft,
                workload=study.cells[cell].workload,
                load=study.cells[cell].load,
            )
    return records, left_out, too_large


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def too_large_of(study: Study) -> list[str]:
    """Labels of the drafts measured in a study that are larger than any that tells something."""
    launched = {t.configuration for t in study.trials if any(t.accept_len_tok)}
    return [
        c.label
        for c in study.configurations
        if c.place in launched and (shape := _shape_of(c)) and not is_learnable(shape)
    ]


def _shape_of(c: StudyConfiguration) -> Shape | None:
    """Steps, branches and tokens of a draft; None: of a kind that tells nothing of trees."""
    if c.algorithm not in EAGLE_FAMILY or ADAPTIVE in dict(c.arguments):
        return None
    if c.num_steps is None or c.eagle_topk is None or c.num_draft_tokens is None:
        return None
    return c.num_steps, c.eagle_topk, c.num_draft_tokens


def lengths_of(study: Study) -> dict[tuple[int, str | None], dict[Shape, float]]:
    """Mean accept lengths by (cell, draft model of its own) and shape, where trees were measured.

    What cannot be is left out: more tokens a verification than were drafted, or none beside the
    target's own. So are drafts that are too large to learn from.
    """
    configurations = {c.place: c for c in study.configurations}
    logs: dict[tuple[int, str | None], dict[Shape, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for trial in study.trials:
        c = configurations.get(trial.configuration)
        if c is None or trial.why == IN_TURN or len(trial.accept_len_tok) != len(study.cells):
            continue
        shape = _shape_of(c)
        if shape is None or not is_learnable(shape):
            continue
        own_draft = dict(c.arguments).get(_DRAFT_OPTION)
        for cell, length in enumerate(trial.accept_len_tok):
            if length is not None and 1 < length <= shape[0] + 1:
                logs[cell, own_draft][shape].append(math.log(length))
    return {
        place: {shape: math.exp(math.fsum(found) / len(found)) for shape, found in shapes.items()}
        for place, shapes in logs.items()
        if any(topk > 1 for _, topk, _ in shapes)
    }


def _told(records: Sequence[Record], target: str) -> str:
    """In a sentence, what is foreseen from what."""
    same = [record for record in records if record.target == target]
    others = [record for record in records if record.target != target]
    if not same:
        return (
            f"What trees accept is foreseen from {_counted(others)} with other target models "
            f"({_origins(others)}); with this one none is known."
        )
    told = f"What trees accept is foreseen from {_counted(same)} with this target model "
    told += f"({_origins(same)})"
    if others:
        told += f", and less so from {len(others)} with others ({_origins(others)})"
    return f"{told}."


def _counted(records: Sequence[Record]) -> str:
    return f"{len(records)} accept length{'' if len(records) == 1 else 's'} of trees"


def _origins(records: Sequence[Record]) -> str:
    origins = list(Counter(record.origin for record in records))
    more = len(origins) - _NAMED
    return ", ".join(origins[:_NAMED]) + (f" and {more} more" if more > 0 else "")
