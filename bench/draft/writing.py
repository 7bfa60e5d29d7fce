"""Safetensors files written, a block at a time, without changing a byte of the data."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from bench.errors import DiskError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.draft.headers import Tensor
    from bench.draft.sources import Source

BLOCK_BYTES: Final = 8 * 2**20
_ALIGNMENT: Final = 8


def write_safetensors(path: Path, tensors: Sequence[tuple[Source, Tensor]]) -> None:
    """Write tensors under their names, their data read from where they are.

    Args:
        path: The new file.
        tensors: Each with the files that it is in.

    Raises:
        DiskError: It cannot be written.
        InputError: The data cannot be read.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for _, tensor in tensors:
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.size_bytes],
        }
        at += tensor.size_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    try:
        with path.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for source, tensor in tensors:
                for block in blocks(source, tensor):
                    file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}.") from error


def blocks(source: Source, tensor: Tensor) -> Iterator[bytes]:
    """A tensor's data, `BLOCK_BYTES` at a time.

    Raises:
        InputError: The file ends before it.
    """
    for at in range(0, tensor.size_bytes, BLOCK_BYTES):
        count = min(BLOCK_BYTES, tensor.size_bytes - at)
        block = source.read(tensor.file, tensor.offset_bytes + at, count)
        if len(block) < count:
            raise InputError(
                f"{source.name}/{tensor.file} ends inside {tensor.name}.",
                hint="Download it again, and compare its checksum.",
            )
        yield block


def same_data(first: tuple[Source, Tensor], second: tuple[Source, Tensor]) -> bool:
    """Whether two tensors are equal, bit by bit, type and shape included."""
    one, other = first[1], second[1]
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(a == b for a, b in zip(blocks(*first), blocks(*second), strict=True))
