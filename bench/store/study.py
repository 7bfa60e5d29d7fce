"""study.json: a tuning study, in the folder of the run that holds its launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bench.errors import StoreError
from bench.model.study import Study
from bench.store.coherence import contradiction
from bench.store.disk import replace_file, writing
from bench.store.layout import is_partial, run_folders, run_id_of
from bench.store.reader import LATEST, find_run

if TYPE_CHECKING:
    from pathlib import Path

STUDY: Final = "study.json"
JOURNAL: Final = "study.journal"
FORMAT: Final = 1


def write_study(folder: Path, study: Study) -> None:
    """Put `study` in place of the study.json of the run in `folder`, whole or not at all.

    Raises:
        DiskError: It cannot be written; the old one stays.
    """
    plain = {"format": FORMAT, **msgspec.to_builtins(study)}
    data = msgspec.json.format(msgspec.json.encode(plain), indent=1)  # not finite: null
    with writing("the study", folder / STUDY):
        replace_file(folder / STUDY, lambda file: file.write(data))


def read_study(folder: Path) -> Study:
    """The study in a run's folder.

    Raises:
        StoreError: There is none, or it is damaged, does not hold together or is of another
            specdyno.
    """
    path = folder / STUDY
    try:
        plain = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(
            f"{folder} is no study.", hint="`bench show` reads runs; `tuner status` lists studies."
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:  # damaged, or nested without end
        raise StoreError(f"{path} cannot be read: {error}", hint=_way_out(folder)) from None
    found = plain.pop("format", None) if isinstance(plain, dict) else None
    if found != FORMAT:
        raise StoreError(
            f"{path} has format {found}; this specdyno reads {FORMAT}.",
            hint="Read it with the specdyno that wrote it.",
        )
    try:
        study = msgspec.convert(plain, Study)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path} is damaged: {error}", hint=_way_out(folder)) from None
    if (why := contradiction(study)) is not None:
        raise StoreError(f"{path} does not hold together: {why}.", hint=_way_out(folder))
    return study


def _way_out(folder: Path) -> str:
    """What to do about a study.json that is damaged."""
    run_id = run_id_of(folder)
    if is_partial(folder) and (folder / JOURNAL).is_file():
        return f"`tuner resume {run_id}` makes it anew from the study's journal."
    return f"Put back a copy of it; `bench show {run_id}` has what its launches measured."


def is_study(folder: Path) -> bool:
    """Whether a run's folder holds the launches of a study."""
    return (folder / STUDY).is_file()


def find_study(out: Path, name: str) -> tuple[Path, Study]:
    """A study by its id, the beginning or end of that, its folder, or `latest`.

    Raises:
        StoreError: There is none of this name, or several.
    """
    hint = "`tuner status` lists the studies there are; `--out` names another results folder."
    if name == LATEST and out.is_dir():
        if studies := studies_in(out):
            return studies[-1], read_study(studies[-1])
        raise StoreError(f"no study in {out} yet.", hint="`tuner sweep SCENARIO` makes one.")
    try:
        folder = find_run(out, name)
    except StoreError as error:
        told = str(error).replace(f"no run {name!r}", f"no study {name!r}")
        raise StoreError(told, hint=hint) from None
    return folder, read_study(folder)


def studies_in(out: Path) -> list[Path]:
    """Folders of the studies below a results folder, finished or not, the oldest first."""
    folders = (folder for folder in run_folders(out) if is_study(folder))
    return sorted(folders, key=run_id_of)
