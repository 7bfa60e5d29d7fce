"""Hidden states on disk: our own form, speculators' and SpecForge's.

- ours, safetensors: `input_ids` [n], `states` [n, slots, hidden]; metadata `states`: their
  numbers;
- speculators, safetensors: `token_ids` [n], `hidden_states` [n, slots + 1, hidden]; the last slot
  is the final state, for the verifier's head, and training takes all but it;
- speculators before that, torch.save: `input_ids`, `hidden_states` as a list of [n, hidden];
- SpecForge, torch.save: `input_ids`, `aux_hidden_state` [1, n, slots × hidden], and `hidden_state`
  [1, n, hidden], the final state.

torch is needed for torch.save's files alone, and reads them without running what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.draft.checkpoint import Checkpoint, whole_values
from bench.draft.config_values import shown
from bench.draft.headers import read_header, read_metadata
from bench.draft.sources import Folder, is_folder
from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bench.draft.headers import Tensor

MOST_SAMPLES: Final = 64
MOST_TOKENS: Final = 2048
"""Of one sample: attention over all of them is held at once."""
LEAST_TOKENS: Final = 8
"""Of one sample: fewer predict nothing."""
STATES: Final = "states"

_TORCH_FILES: Final = (".pt", ".ckpt", ".pth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sequence's hidden states.

    Attributes:
        name: Its file.
        token_ids: [n].
        states: [n, slots, hidden], float32.
        numbers: Which state each slot is (0 the embedding, i the output of layer i - 1); None: the
            file does not say.
    """

    name: str
    token_ids: NDArray[np.int64]
    states: NDArray[np.float32]
    numbers: tuple[int, ...] | None


def read_captures(folder: str, *, hidden: int) -> tuple[Sample, ...]:
    """The sequences in a folder, at most `MOST_SAMPLES`, each cut to `MOST_TOKENS`.

    Args:
        folder: Where the files are.
        hidden: Width of one state, to tell how many slots a file of SpecForge has.

    Raises:
        InputError: There are none, or one is not in a form known here.
    """
    place = Path(folder).expanduser()
    if not is_folder(folder):
        raise InputError(f"there is no folder {folder}.", hint="Give the captures' folder.")
    try:
        paths = sorted(path for path in place.rglob("*") if path.is_file())
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}", hint="Give a folder.") from None
    usable = [p for p in paths if p.suffix == ".safetensors" or p.suffix in _TORCH_FILES]
    if not usable:
        raise InputError(
            f"{folder} has no captures (*.safetensors, *.pt, *.ckpt).",
            hint="bench doctor capture makes them, and so does a trainer's offline preparation.",
        )
    samples = tuple(_read(path, hidden) for path in usable[:MOST_SAMPLES])
    slots = {sample.states.shape[1:] for sample in samples}
    if len(slots) > 1:
        raise InputError(
            f"{folder}: its files hold states of different shapes: {sorted(slots)}.",
            hint="Give a folder with one capture's files alone.",
        )
    return samples


def _read(path: Path, hidden: int) -> Sample:
    numbers = None
    if path.suffix == ".safetensors":
        fields, numbers = _safetensors(path)
    else:
        fields = _torch_file(path)
    ids = fields.get("input_ids", fields.get("token_ids"))
    states = _states(path, fields, hidden)
    if ids is None:
        raise InputError(
            f"{path} has no input_ids: it has {sorted(fields)}.", hint="Is it a capture?"
        )
    ids = np.asarray(ids).reshape(-1)
    if len(ids) != len(states) or len(ids) < LEAST_TOKENS or ids.dtype.kind not in "iu":
        raise InputError(
            f"{path}: {len(ids)} token ids and {len(states)} states; wanted as many, "
            f"{LEAST_TOKENS} at least.",
            hint="Is it one whole sequence?",
        )
    if not np.isfinite(states.astype(np.float32, copy=False)).all():
        raise InputError(
            f"{path} holds states that are no finite numbers.",
            hint="Were they captured in float16, which overflows? Capture in bfloat16.",
        )
    if numbers is not None and len(numbers) != states.shape[1]:
        numbers = None
    return Sample(
        name=path.name,
        token_ids=ids[:MOST_TOKENS].astype(np.int64),
        states=states[:MOST_TOKENS].astype(np.float32),
        numbers=numbers,
    )


def _states(path: Path, fields: Mapping[str, Any], hidden: int) -> NDArray[Any]:
    """[n, slots, hidden]; where a final state is stored as well it is the last slot."""
    found = fields.get("states", fields.get("hidden_states"))
    if isinstance(found, list):
        found = np.stack([np.asarray(each).reshape(-1, hidden) for each in found], axis=1)
    if found is None and "aux_hidden_state" in fields:
        aux = np.asarray(fields["aux_hidden_state"])
        found = aux.reshape(-1, aux.shape[-1] // hidden, hidden)
        if "hidden_state" in fields:
            last = np.asarray(fields["hidden_state"]).reshape(-1, 1, hidden)
            found = np.concatenate([found, last], axis=1)
    if found is not None and found.ndim == 2:
        found = found.reshape(len(found), -1, hidden)
    if found is None or found.ndim != 3 or found.shape[2] != hidden:
        shape = None if found is None else found.shape
        raise InputError(
            f"{path}: wanted hidden states [n, slots, {hidden}], found {shape}.",
            hint="Is it a capture of this draft's target?",
        )
    shaped: NDArray[Any] = found
    return shaped


def _safetensors(path: Path) -> tuple[dict[str, Any], tuple[int, ...] | None]:
    source = Folder(path.parent)
    tensors: dict[str, Tensor] = {t.name: t for t in read_header(source, path.name)}
    files = Checkpoint(source=source, config={}, tensors=tensors)
    wanted = ("states", "hidden_states", "input_ids", "token_ids")
    fields = {name: whole_values(files, t) for name, t in tensors.items() if name in wanted}
    text = read_metadata(source, path.name).get(STATES, "")
    words = text.split(",") if text else []
    numbers = tuple(int(word) for word in words if word.strip().isdecimal())
    return fields, numbers if numbers and len(numbers) == len(words) else None


def _torch_file(path: Path) -> dict[str, Any]:
    try:
        torch = import_module("torch")
    except ImportError:
        raise InputError(
            f"reading {path.name} takes torch, which is not installed.",
            hint="pip install 'specdyno[draft]'",
        ) from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  # a pickle can fail in any way
        said = shown(" ".join(str(error).split()).partition(". ")[0])
        raise InputError(
            f"{path} cannot be read as tensors alone: {said}",
            hint="Is it a capture? Objects beyond tensors, lists and dictionaries are refused.",
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no dictionary.", hint="Is it a capture?")
    return {key: _as_numpy(value) for key, value in found.items() if isinstance(key, str)}


def _as_numpy(value: Any) -> Any:  # noqa: ANN401  # torch is not imported here
    if isinstance(value, list | tuple):
        return [_as_numpy(each) for each in value]
    if hasattr(value, "numpy"):
        return (value.float() if value.is_floating_point() else value).numpy()
    return value
