"""study.json: a tuning study, in the folder of the run that holds its launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bench.errors import StoreError
from bench.model.study import Study
from bench.store.disk import replace_file, writing
from bench.store.layout import run_folders, run_id_of
from bench.store.reader import find_run

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
        StoreError: There is none, or it is damaged or of another specdyno.
    """
    path = folder / STUDY
    try:
        plain = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(
            f"{folder} is no study.", hint="`bench show` reads runs; `tuner status` lists studies."
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    found = plain.pop("format", None) if isinstance(plain, dict) else None
    if found != FORMAT:
        raise StoreError(
            f"{path} has format {found}; this specdyno reads {FORMAT}.",
            hint="Read it with the specdyno that wrote it.",
        )
    try:
        return msgspec.convert(plain, Study)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path} is damaged: {error}") from None


def is_study(folder: Path) -> bool:
    """Whether a run's folder holds the launches of a study."""
    return (folder / STUDY).is_file()


def find_study(out: Path, name: str) -> tuple[Path, Study]:
    """A study by its id, the beginning or end of that, or its folder.

    Raises:
        StoreError: There is none of this name, or several.
    """
    try:
        folder = find_run(out, name)
    except StoreError as error:
        raise StoreError(str(error), hint="`tuner status` lists the studies there are.") from None
    return folder, read_study(folder)


def studies_in(out: Path) -> list[Path]:
    """Folders of the studies below a results folder, finished or not, the oldest first."""
    folders = (folder for folder in run_folders(out) if is_study(folder))
    return sorted(folders, key=run_id_of)
