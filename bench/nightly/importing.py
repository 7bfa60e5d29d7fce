"""Past runs into a history, so that a team begins with its past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import BenchError, InputError
from bench.nightly.history import add, read_history
from bench.nightly.recording import recorded_results, recorded_run
from bench.store import list_runs, load_run
from bench.store.study import STUDY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.nightly.recording import ForeignNames, Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did.

    Attributes:
        sources: Runs and rows taken in.
        known: Those that were in already.
        refused: (path, why) of those that could not be.
        points: Values added.
    """

    sources: int
    known: int
    refused: tuple[tuple[str, str], ...]
    points: int


def import_runs(
    paths: Sequence[Path], history: Path, *, names: ForeignNames, hardware: str | None
) -> Imported:
    """Take in published runs of ours and result files of other tools; what is in already is left.

    Args:
        paths: Results folders or folders of runs; files of SGLang's bench_serving or vLLM's, or
            folders of such files.
        history: The history's folder.
        names: What other tools' files cannot tell.
        hardware: The hardware class of our runs, where they cannot tell it.

    Raises:
        InputError: A path is not there.
        StoreError: The history was written to by a newer specdyno.
        DiskError: The history cannot be written.
    """
    known_ids = set(read_history(history).sources)
    known = sources = points = 0
    refused: list[tuple[str, str]] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder.")
        fresh: list[Recorded] = []
        for recorded in _recorded(path, names, hardware, refused):
            if recorded.source_id in known_ids:
                known += 1
            elif recorded.points:
                known_ids.add(recorded.source_id)
                fresh.append(recorded)
            else:
                refused.append((recorded.where, "; ".join(recorded.left_out) or "no figure"))
        if fresh:
            added = [point for recorded in fresh for point in recorded.points]
            add(
                history,
                kind="import",
                night=max(recorded.night for recorded in fresh),
                points=added,
                facts=[recorded.facts for recorded in fresh],
                reason=f"imported from {path.name}",
            )
            sources += len(fresh)
            points += len(added)
    return Imported(sources=sources, known=known, refused=tuple(refused), points=points)


def _recorded(
    path: Path, names: ForeignNames, hardware: str | None, refused: list[tuple[str, str]]
) -> Iterator[Recorded]:
    if path.is_file():
        yield from recorded_results(path, names)
        return
    runs = list_runs(path)
    for run in runs:
        if not run.published:
            refused.append((run.run_id, "not finished: `bench resume` goes on with it"))
        elif (run.folder / STUDY).exists():
            refused.append((run.run_id, "a study of many configurations is no night"))
        else:
            try:
                yield recorded_run(load_run(run.folder), hardware=hardware)
            except BenchError as error:
                refused.append((run.run_id, str(error)))
    if not runs:
        yield from _results_below(path, names, refused)


def _results_below(
    folder: Path, names: ForeignNames, refused: list[tuple[str, str]]
) -> Iterator[Recorded]:
    """Result files of other tools in a folder that has no run of ours."""
    files = sorted(p for p in folder.iterdir() if p.suffix in {".jsonl", ".json"})
    if not files:
        refused.append((str(folder), "no run of ours, and no .jsonl or .json file, is in it"))
    for file in files:
        try:
            yield from recorded_results(file, names)
        except BenchError as error:
            refused.append((str(file), str(error)))
