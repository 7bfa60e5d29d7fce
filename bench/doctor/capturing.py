"""What a server really feeds: hidden states asked of SGLang, and written to files.

The server is started with `--enable-return-aux-hidden-states --speculative-algorithm EAGLE3` and,
for other layers than the default, `--return-aux-hidden-state-layer-ids …`; it then serves the
target without a draft, and its answers carry the states.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.draft.capture import captured_states
from bench.errors import DiskError, InputError, ServerError
from bench.http import open_session
from bench.model import Api
from bench.sglang import control
from bench.sglang.wire import PATHS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import aiohttp
    from numpy.typing import NDArray

REQUEST_S: Final = 600.0
NEW_TOK: Final = 96
"""Tokens that the target itself writes behind each prompt: the draft is to predict these."""
MOST_SEQUENCES: Final = 16
MOST_TOK: Final = 256
"""Of each: a state of three layers of a large model is 400 kB of JSON."""
PROMPTS: Final = (
    "Write a short story about a lighthouse keeper.",
    "Explain how a hash table works.",
    "def fibonacci(n):\n",
    "List five uses of copper, with a sentence on each.",
    "Summarise the water cycle in two paragraphs.",
    "import os\nimport sys\n\n\ndef main():\n",
    "Translate into French: the train leaves at seven in the morning.",
    "class Stack:\n    def __init__(self):\n",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a server fed.

    Attributes:
        numbers: Which states its slots are; None: the server's class or layers are not known.
        sequences: (token ids [n], states [n, slots, width]) of each.
    """

    numbers: tuple[int, ...] | None
    sequences: tuple[tuple[NDArray[np.int64], NDArray[np.float32]], ...]


async def capture(
    url: str,
    *,
    layers: int | None = None,
    token_ids: Sequence[NDArray[np.int64]] = (),
    api_key: str | None = None,
) -> Captured:
    """Ask a server for the states that it would feed a draft.

    Args:
        url: The server's.
        layers: Of the target: needed where the server captures its default layers.
        token_ids: Sequences to send, the first `MOST_SEQUENCES` and of each the first `MOST_TOK`;
            none: the target writes its own behind a few prompts.
        api_key: Of its requests.

    Raises:
        InputError: The server does not return states.
        ServerError: It does not answer.
    """
    async with open_session(url, api_key=api_key) as session:
        info = await control.server_info(session)
        if info.get("enable_return_aux_hidden_states") is not True:
            raise InputError(
                f"{url} does not return the states it would feed a draft.",
                hint="Start it with --enable-return-aux-hidden-states --speculative-algorithm "
                "EAGLE3, and without a draft.",
            )
        numbers = states_of(info, await control.model_info(session), layers=layers)
        sequences = [ids[:MOST_TOK] for ids in token_ids[:MOST_SEQUENCES]] or [
            await _written(session, text) for text in PROMPTS
        ]
        found = [(ids, await _states(session, ids)) for ids in sequences]
    slots = 1 if numbers is None else len(numbers)
    if any(states.shape[1] % slots for _, states in found):
        numbers, slots = None, 1
    shaped = tuple((ids, states.reshape(len(states), slots, -1)) for ids, states in found)
    return Captured(numbers=numbers, sequences=shaped)


def states_of(
    info: Mapping[str, object], model: Mapping[str, object], *, layers: int | None
) -> tuple[int, ...] | None:
    """The states that a server's answers hold, by its settings; None where that is not told."""
    architectures = model.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    ids = info.get("return_aux_hidden_state_layer_ids")
    given = tuple(i for i in ids if isinstance(i, int)) if isinstance(ids, list) else None
    if given is None and layers is None:
        return None
    found = captured_states(
        given,
        architecture=architecture if isinstance(architecture, str) else None,
        layers=layers or max(given or (0,)) + 2,
    )
    return None if found is None else found.states


async def _written(session: aiohttp.ClientSession, text: str) -> NDArray[np.int64]:
    """A prompt and what the target writes behind it, as token ids."""
    body = {
        "text": text,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": NEW_TOK, "ignore_eos": True},
        "return_prompt_token_ids": True,
        "stream": False,
    }
    told = await _generate(session, body)
    prompt = told["meta_info"].get("prompt_token_ids") or told.get("prompt_token_ids")
    written = told.get("output_ids")
    if not isinstance(prompt, list) or not isinstance(written, list):
        raise ServerError(
            "the server tells no token ids of its answers.", hint="SGLang 0.5.23 does."
        )
    return np.array([*prompt, *written], dtype=np.int64)


async def _states(session: aiohttp.ClientSession, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    body = {
        "input_ids": [int(token) for token in ids],
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 1, "ignore_eos": True},
        "return_hidden_states": True,
        "stream": False,
    }
    told = await _generate(session, body)
    found = told["meta_info"].get("hidden_states")
    rows = found[0] if isinstance(found, list) and found else None
    if not isinstance(rows, list) or len(rows) != len(ids):
        raise ServerError(
            f"asked for the states of {len(ids)} tokens, got "
            f"{len(rows) if isinstance(rows, list) else 'none'}.",
            hint="A prefix cache hides those it holds: start the server with "
            "--disable-radix-cache.",
        )
    return np.array(rows, dtype=np.float32)


async def _generate(session: aiohttp.ClientSession, body: Mapping[str, object]) -> dict[str, Any]:
    raw = await control.complete(session, PATHS[Api.GENERATE], body, timeout_s=REQUEST_S)
    told = json.loads(raw)
    if not isinstance(told, dict) or not isinstance(told.get("meta_info"), dict):
        raise ServerError("the server's answer has no meta_info.", hint="Is it SGLang?")
    return told


def write_captures(folder: Path, captured: Captured) -> None:
    """A file a sequence, in our own form, in a new folder.

    Raises:
        DiskError: It cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        for place, (ids, states) in enumerate(captured.sequences):
            raw = _file_of(ids, states, captured.numbers)
            (folder / f"{place:04d}.safetensors").write_bytes(raw)
    except OSError as error:
        raise DiskError(f"cannot write {folder}: {error.strerror}.") from error


def _file_of(
    ids: NDArray[np.int64], states: NDArray[np.float32], numbers: tuple[int, ...] | None
) -> bytes:
    blocks = (("input_ids", "I64", ids.astype("<i8")), ("states", "F32", states.astype("<f4")))
    header: dict[str, object] = {}
    if numbers is not None:
        header["__metadata__"] = {"states": ",".join(map(str, numbers))}
    at = 0
    for name, dtype, block in blocks:
        end = at + block.nbytes
        header[name] = {"dtype": dtype, "shape": list(block.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *(b.tobytes() for _, _, b in blocks)])
