"""The headers of safetensors files, read in bounded memory; nothing in them is trusted.

Format (https://github.com/huggingface/safetensors): 8 bytes, the length of the header; the header,
a JSON object {name: {"dtype", "shape", "data_offsets": [begin, end)}}; the data, without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

import msgspec

from bench.errors import InputError

if TYPE_CHECKING:
    from bench.draft.sources import Source

MOST_HEADER_BYTES: Final = 16 * 2**20
"""The largest shards of published models have headers of 1 MiB; the format allows 100 MB."""

_PREFIX_BYTES: Final = 8
_METADATA: Final = "__metadata__"
_MOST_NAME_CHARS: Final = 512
DTYPE_BYTES: Final = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}
"""Bytes of one element, by the names that the format has for types."""

_PICKLES: Final = (b"\x80", b"PK\x03\x04")
_LFS: Final = b"version https://git-lfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of a checkpoint: what its header says of it.

    Attributes:
        name: Its name in the file.
        dtype: As the format writes it: `BF16`, `I64`, ….
        shape: Its dimensions; () is a scalar.
        file: The file it is in.
        offset_bytes: Where its data begins in the file.
        size_bytes: How long its data is.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset_bytes: int
    size_bytes: int

    @property
    def text(self) -> str:
        """`fc.weight [192, 576] BF16`."""
        return f"{self.name} {list(self.shape)} {self.dtype}"


class _Entry(msgspec.Struct):
    dtype: str = ""
    shape: list[int] = []  # msgspec copies an empty default for each
    data_offsets: list[int] = []


class _Metadata(msgspec.Struct):
    texts: dict[str, str] | None = msgspec.field(default=None, name="__metadata__")


_DECODER = msgspec.json.Decoder(dict[str, _Entry])


def read_header(source: Source, file: str) -> tuple[Tensor, ...]:
    """The tensors of a safetensors file, in the order of their data.

    Raises:
        InputError: It is damaged, cut off, hostile, or another kind of file.
    """
    size = source.size_bytes(file)
    prefix = source.read(file, 0, _PREFIX_BYTES)
    length = int.from_bytes(prefix, "little")
    place = f"{source.name}/{file}"
    if len(prefix) < _PREFIX_BYTES or length > size - _PREFIX_BYTES:
        raise _no_header(source, file, size=size, length=length)
    if length > MOST_HEADER_BYTES:
        raise _damaged(
            place,
            f"its header is said to have {length:,} bytes; at most {MOST_HEADER_BYTES:,} are read",
        )
    raw = source.read(file, _PREFIX_BYTES, length)
    if len(raw) < length:
        raise _damaged(place, "it ends inside its header")
    try:
        entries = _DECODER.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:120]
        raise _damaged(place, f"its header is no table of tensors ({said})") from None
    entries.pop(_METADATA, None)
    data_bytes = size - _PREFIX_BYTES - length
    tensors = sorted(
        (_tensor(place, file, name, entry, length) for name, entry in entries.items()),
        key=lambda tensor: (tensor.offset_bytes, tensor.size_bytes),
    )
    _require_whole(place, tensors, begin=_PREFIX_BYTES + length, data_bytes=data_bytes)
    return tuple(tensors)


def read_metadata(source: Source, file: str) -> dict[str, str]:
    """The free text in the header of a file that `read_header` has read."""
    length = int.from_bytes(source.read(file, 0, _PREFIX_BYTES), "little")
    raw = source.read(file, _PREFIX_BYTES, min(length, MOST_HEADER_BYTES))
    try:
        return msgspec.json.decode(raw, type=_Metadata).texts or {}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}


def _tensor(place: str, file: str, name: str, entry: _Entry, header_bytes: int) -> Tensor:
    shown = repr(name[:80])
    if len(name) > _MOST_NAME_CHARS or not name.isprintable():
        raise _damaged(place, f"a tensor is called {shown}, which no tensor is")
    if entry.dtype not in DTYPE_BYTES:
        raise _damaged(place, f"tensor {shown} is of the unknown type {entry.dtype[:20]!r}")
    if any(not 0 <= dim < 2**48 for dim in entry.shape) or len(entry.shape) > 16:
        raise _damaged(place, f"tensor {shown} has the shape {entry.shape[:16]}")
    if len(entry.data_offsets) != 2:
        raise _damaged(place, f"tensor {shown} has no beginning and end")
    begin, end = entry.data_offsets
    wanted = prod(entry.shape) * DTYPE_BYTES[entry.dtype]
    if begin < 0 or end - begin != wanted:
        raise _damaged(
            place,
            f"tensor {shown} of {entry.shape} {entry.dtype} has {wanted:,} bytes, and its offsets "
            f"{begin} to {end} hold {end - begin:,}",
        )
    return Tensor(
        name=name,
        dtype=entry.dtype,
        shape=tuple(entry.shape),
        file=file,
        offset_bytes=_PREFIX_BYTES + header_bytes + begin,
        size_bytes=wanted,
    )


def _require_whole(place: str, tensors: list[Tensor], *, begin: int, data_bytes: int) -> None:
    at = begin
    for tensor in tensors:
        if tensor.offset_bytes != at:
            what = "overlap" if tensor.offset_bytes < at else "leave a gap"
            raise _damaged(place, f"its tensors {what} at {tensor.name!r}")
        at += tensor.size_bytes
    found = at - begin
    if found > data_bytes:
        raise _damaged(
            place, f"it is cut off: its tensors take {found:,} bytes, and {data_bytes:,} are there"
        )
    if found < data_bytes:
        raise _damaged(place, f"{data_bytes - found:,} bytes follow its last tensor")


def _no_header(source: Source, file: str, *, size: int, length: int) -> InputError:
    place = f"{source.name}/{file}"
    beginning = source.read(file, 0, len(_LFS))
    if beginning.startswith(_LFS):
        return InputError(
            f"{place} is a Git LFS pointer, not the file itself.",
            hint="Fetch the files: git lfs pull.",
        )
    if beginning.startswith(_PICKLES):
        return InputError(
            f"{place} is a pickle (torch.save), not safetensors. It was not opened: a pickle can "
            "run any code.",
            hint="Save it with safetensors.torch.save_file on a machine that may run its code.",
        )
    if size < _PREFIX_BYTES:
        return _damaged(place, f"it has {size} bytes")
    return _damaged(
        place, f"its header is said to have {length:,} bytes, and the whole file has {size:,}"
    )


def _damaged(place: str, why: str) -> InputError:
    return InputError(
        f"{place} is no whole safetensors file: {why}.",
        hint="Download or write it again, and compare its checksum.",
    )
