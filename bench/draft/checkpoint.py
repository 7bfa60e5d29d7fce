"""A checkpoint as its files show it: config.json and the tensors' headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.draft.headers import Tensor, read_header
from bench.draft.sources import Source, open_source, read_json
from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

INDEX: Final = "model.safetensors.index.json"
CONFIG: Final = "config.json"
MOST_VALUES_BYTES: Final = 64 * 2**20
"""The longest range of values read at once: a vocabulary map has about 1 MB."""

_WEIGHTS: Final = ".safetensors"
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_NUMPY: Final = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "I16": "<i2",
    "U16": "<u2",
    "I32": "<i4",
    "U32": "<u4",
    "I64": "<i8",
    "U64": "<u8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model's files.

    Attributes:
        source: Where they are.
        config: Its config.json.
        tensors: Its tensors by name.
        twice: Names of tensors that are in two of its files.
    """

    source: Source
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    twice: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the user called it."""
        return self.source.name


def read_checkpoint(asked: str) -> Checkpoint:
    """A checkpoint's config and all its headers.

    Args:
        asked: A local folder, or a Hugging Face id.

    Raises:
        InputError: It is not there, not whole, or not in safetensors.
    """
    source = open_source(asked)
    names = source.names()
    config = read_config(source, names)
    files = weight_files(source, names)
    tensors: dict[str, Tensor] = {}
    twice = []
    for file in files:
        for tensor in read_header(source, file):
            if tensor.name in tensors:
                twice.append(tensor.name)
            tensors[tensor.name] = tensor
    return Checkpoint(source=source, config=config, tensors=tensors, twice=tuple(twice))


def read_config(source: Source, names: tuple[str, ...]) -> Mapping[str, Any]:
    """The checkpoint's config.json.

    Raises:
        InputError: There is none, or it holds no JSON object.
    """
    if CONFIG not in names:
        raise InputError(
            f"{source.name} has no {CONFIG}.", hint="Give the folder of a checkpoint's files."
        )
    return read_json(source, CONFIG)


def weight_files(source: Source, names: tuple[str, ...]) -> tuple[str, ...]:
    """The files that hold the checkpoint's weights, as its index says where it has one.

    Raises:
        InputError: There are none, they are pickles, or the index names files that are not there.
    """
    files = tuple(name for name in names if name.endswith(_WEIGHTS))
    if INDEX in names:
        mapped = read_json(source, INDEX).get("weight_map")
        listed = set(mapped.values()) if isinstance(mapped, dict) else set()
        wanted = {name for name in listed if isinstance(name, str)}
        missing = sorted(wanted - set(files))
        if not wanted or len(wanted) != len(listed) or missing:
            which = f": {missing[0][:80]!r} is not there" if missing else ""
            raise InputError(
                f"{source.name}/{INDEX} does not fit the folder{which}.",
                hint="Is the download complete?",
            )
        files = tuple(name for name in files if name in wanted)
    if files:
        return files
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        raise InputError(
            f"{source.name} has its weights in a pickle ({pickles[0]}), not in safetensors. It "
            "was not opened: a pickle can run any code.",
            hint="Save it with safetensors.torch.save_file on a machine that may run its code.",
        )
    raise InputError(
        f"{source.name} has no weights (*{_WEIGHTS}).", hint="Is the download complete?"
    )


def values_of(
    checkpoint: Checkpoint, tensor: Tensor, *, first_row: int = 0, rows: int | None = None
) -> NDArray[Any] | None:
    """A tensor's values; floating types become float32, bfloat16 included.

    Args:
        checkpoint: Whose tensor it is.
        tensor: Of any shape.
        first_row: Where to begin, counted along the first dimension.
        rows: How many of them; None: to its end.

    Returns:
        The array, or None for a type that numpy does not have (the 8-bit floats).

    Raises:
        InputError: It is too long to be read at once, or its file ends before it.
    """
    shape = tensor.shape
    row_bytes = tensor.size_bytes // shape[0] if shape and shape[0] else tensor.size_bytes
    if rows is not None:
        shape = (min(rows, shape[0] - first_row), *shape[1:])
    size = row_bytes * shape[0] if shape and rows is not None else tensor.size_bytes
    if size > MOST_VALUES_BYTES:
        raise InputError(
            f"{checkpoint.name}: {tensor.text} has {size:,} bytes; wanted at most "
            f"{MOST_VALUES_BYTES:,}.",
            hint="Is that the tensor it says it is?",
        )
    raw = checkpoint.source.read(tensor.file, tensor.offset_bytes + first_row * row_bytes, size)
    if len(raw) < size:
        raise InputError(
            f"{checkpoint.name}/{tensor.file} ends inside {tensor.name}.",
            hint="Download it again, and compare its checksum.",
        )
    if tensor.dtype == "BF16":
        wide = np.frombuffer(raw, dtype="<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(shape)
    if tensor.dtype not in _NUMPY:
        return None
    found = np.frombuffer(raw, dtype=_NUMPY[tensor.dtype]).reshape(shape)
    return found.astype(np.float32) if found.dtype.kind == "f" else found


def whole_values(checkpoint: Checkpoint, tensor: Tensor) -> NDArray[Any]:
    """A tensor's values, however long: a block of rows at a time, floating types as float32.

    Raises:
        InputError: It is of a type that numpy does not have, or its file ends before it.
    """
    if tensor.size_bytes <= MOST_VALUES_BYTES or not tensor.shape:
        parts = [values_of(checkpoint, tensor)]
    else:
        row_bytes = tensor.size_bytes // tensor.shape[0]
        rows = max(1, MOST_VALUES_BYTES // row_bytes)
        parts = [
            values_of(checkpoint, tensor, first_row=first, rows=rows)
            for first in range(0, tensor.shape[0], rows)
        ]
    read = [part for part in parts if part is not None]
    if len(read) < len(parts):
        raise InputError(
            f"{checkpoint.name}: {tensor.text} is of a type that is not read here.",
            hint="Give an unquantised draft.",
        )
    return read[0] if len(read) == 1 else np.concatenate(read)
