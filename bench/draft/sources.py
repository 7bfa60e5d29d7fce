"""Where a checkpoint's files are: a local folder, or a repository of the Hugging Face hub.

Nothing is ever unpickled, imported or run: names, sizes and byte ranges are all that is read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_JSON_BYTES = 16 * 2**20
"""A config.json has kilobytes, the index of a model of a trillion parameters under 16 MiB."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Source(Protocol):
    """Files by name, read in ranges."""

    @property
    def name(self) -> str:
        """What the user called it."""

    def names(self) -> tuple[str, ...]:
        """Names of the files at its top, sorted."""

    def size_bytes(self, name: str) -> int:
        """Size of a file."""

    def read(self, name: str, offset: int, count: int) -> bytes:
        """`count` bytes of a file from `offset` on; fewer where it ends."""


class Folder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """Its path."""
        return str(self._path)

    def names(self) -> tuple[str, ...]:
        """Names of its files, sorted.

        Raises:
            InputError: It cannot be listed.
        """
        try:
            return tuple(sorted(p.name for p in self._path.iterdir() if p.is_file()))
        except OSError as error:
            raise _unreadable(self._path, error) from None

    def size_bytes(self, name: str) -> int:
        """Size of a file.

        Raises:
            InputError: It cannot be read.
        """
        try:
            return (self._path / name).stat().st_size
        except OSError as error:
            raise _unreadable(self._path / name, error) from None

    def read(self, name: str, offset: int, count: int) -> bytes:
        """`count` bytes of a file from `offset` on; fewer where it ends.

        Raises:
            InputError: It cannot be read.
        """
        try:
            with (self._path / name).open("rb") as file:
                file.seek(offset)
                return file.read(count)
        except OSError as error:
            raise _unreadable(self._path / name, error) from None


class HubRepository:
    """A repository of the Hugging Face hub, through huggingface_hub's own client."""

    def __init__(self, repo_id: str) -> None:
        """Connect; huggingface_hub is not one of specdyno's own dependencies.

        Raises:
            InputError: huggingface_hub is not installed.
        """
        try:
            from huggingface_hub import HfFileSystem  # noqa: PLC0415  # it may not be there
        except ImportError:
            raise InputError(
                f"{repo_id} is no folder here, and reading it from the Hugging Face hub takes "
                "huggingface_hub, which is not installed.",
                hint="Give a local folder, or `pip install huggingface_hub`.",
            ) from None
        self._id = repo_id
        self._files: Any = HfFileSystem()
        self._sizes: dict[str, int] | None = None

    @property
    def name(self) -> str:
        """Its id."""
        return self._id

    def names(self) -> tuple[str, ...]:
        """Names of the files at its top, sorted.

        Raises:
            InputError: The hub does not have it, or cannot be reached.
        """
        return tuple(sorted(self._known_sizes()))

    def size_bytes(self, name: str) -> int:
        """Size of a file.

        Raises:
            InputError: The repository has no such file.
        """
        sizes = self._known_sizes()
        if name not in sizes:
            raise InputError(
                f"{self._id} has no file {name}.", hint="Is the upload of the checkpoint complete?"
            )
        return sizes[name]

    def read(self, name: str, offset: int, count: int) -> bytes:
        """`count` bytes of a file from `offset` on, asked for as a range.

        Raises:
            InputError: The hub cannot be reached, or refuses.
        """
        end = min(offset + count, self.size_bytes(name))
        try:
            # Without its cache, which reads ahead by megabytes: more than many a draft has.
            found = self._files.cat_file(
                f"{self._id}/{name}", start=offset, end=end, cache_type="none"
            )
        except Exception as error:  # noqa: BLE001  # its transport's errors have no common base
            raise _hub_failed(f"{self._id}/{name}", error) from None
        return bytes(found)

    def _known_sizes(self) -> dict[str, int]:
        if self._sizes is None:
            try:
                found = self._files.ls(self._id, detail=True)
            except Exception as error:  # noqa: BLE001  # its transport's errors have no common base
                raise _hub_failed(self._id, error) from None
            self._sizes = {
                str(item["name"]).rpartition("/")[2]: int(item["size"] or 0)
                for item in found
                if item["type"] == "file"
            }
        return self._sizes


def is_folder(asked: str) -> bool:
    """Whether there is such a local folder."""
    try:
        return Path(asked).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # a user, or a name, that cannot be
        return False


def open_source(asked: str) -> Source:
    """The folder, or the repository, that was asked for.

    Args:
        asked: A local folder's path, or an id such as `lmsys/Qwen3-235B-A22B-EAGLE3`.

    Raises:
        InputError: There is no such folder, and it is no id.
    """
    if is_folder(asked):
        return Folder(Path(asked).expanduser())
    if is_folder(str(Path(asked).parent)) and Path(asked).expanduser().is_file():
        raise InputError(
            f"{asked} is a file; wanted a checkpoint's folder, with its config.json.",
            hint=f"Give {Path(asked).parent} instead.",
        )
    if _HUB_ID.fullmatch(asked):
        return HubRepository(asked)
    raise InputError(
        f"there is no folder {asked} that may be read.",
        hint="Give a checkpoint's folder, or a Hugging Face id (owner/name).",
    )


def read_json(source: Source, name: str) -> Mapping[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: The file is missing, too long, or holds no JSON object.
    """
    size = source.size_bytes(name)
    if size > MOST_JSON_BYTES:
        raise InputError(
            f"{source.name}/{name} has {size:,} bytes; wanted at most {MOST_JSON_BYTES:,}.",
            hint="Is that the file it says it is?",
        )
    text = source.read(name, 0, size)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if text.startswith(b"version https://git-lfs"):
        raise InputError(
            f"{source.name}/{name} is a Git LFS pointer, not the file itself.",
            hint="Fetch the files: git lfs pull.",
        )
    raise InputError(
        f"{source.name}/{name} holds no JSON object.", hint="Is the download complete?"
    )


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: {error.strerror or error}", hint="Give the folder of a checkpoint's files."
    )


def _hub_failed(what: str, error: Exception) -> InputError:
    return InputError(
        f"{what} cannot be read from the Hugging Face hub: {' '.join(str(error).split())[:200]}",
        hint="Is the id right, is the repository public, and can this machine reach the hub?",
    )
