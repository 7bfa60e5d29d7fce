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
from bench.sglang.arguments import EAGLE_FAMILY, asked_text, parse_arguments
from bench.store.disk import replace_file, writing
from bench.store.layout import run_id_of
from bench.store.study import JOURNAL, STUDY, read_study, studies_in
from tuner.predict import Experience, Record
from tuner.predict.experience import model_name, records_of
from tuner.predict.published import published_records
from tuner.space.arms import ADAPTIVE
from tuner.sweep.trials import STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.model.study import Study
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
    except (OSError, msgspec.DecodeError) as error:
        return _reason(error)
    return kept if kept.format == FORMAT else f"format {kept.format} where {FORMAT} is read"


# ----------------------------------------------------------------------------------- looking it up


def _looked_up(
    prepared: Prepared, folder: Path, target: str
) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Records for a sweep that begins, and what is told of them."""
    if not any(c.is_tree for c in prepared.candidates.searched):
        return (), ()
    simulated = prepared.asked.simulated
    records, left_out = _of_studies(folder, simulated=simulated)
    if not simulated:
        records += published_records()
    records.sort(key=lambda record: record.target != target)  # keeps the latest first
    taken = tuple(records[:MOST_RECORDS])
    notes = [_told(taken, target)] if taken else []
    if left_out:
        more = len(left_out) - _NAMED
        told = "; ".join(left_out[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
        notes.append(f"Earlier studies from which nothing was learnt: {told}.")
    return taken, tuple(notes)


def _of_studies(folder: Path, *, simulated: bool) -> tuple[list[Record], list[str]]:
    """Records of the studies beside one, the latest first; which could not be read, and why."""
    records: list[Record] = []
    left_out: list[str] = []
    try:
        folders = studies_in(folder.parent.parent)
    except (StoreError, OSError) as error:
        return [], [_reason(error)]
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
    return records, left_out


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def lengths_of(study: Study) -> dict[tuple[int, str | None], dict[Shape, float]]:
    """Mean accept lengths by (cell, draft model of its own) and shape, where trees were measured.

    What cannot be is left out: more tokens a verification than were drafted, or none beside the
    target's own.
    """
    configurations = {c.place: c for c in study.configurations}
    logs: dict[tuple[int, str | None], dict[Shape, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for trial in study.trials:
        c = configurations.get(trial.configuration)
        if c is None or trial.why == STEPS or len(trial.accept_len_tok) != len(study.cells):
            continue
        options = dict(c.arguments)
        steps, topk, tokens = c.num_steps, c.eagle_topk, c.num_draft_tokens
        if c.algorithm not in EAGLE_FAMILY or ADAPTIVE in options:
            continue
        if steps is None or topk is None or tokens is None:
            continue
        for cell, length in enumerate(trial.accept_len_tok):
            if length is not None and 1 < length <= steps + 1:
                by_shape = logs[cell, options.get(_DRAFT_OPTION)]
                by_shape[steps, topk, tokens].append(math.log(length))
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
