"""The truth file: what the simulated server really did, for checking what a client measured.

JSON lines, written whenever a request ends. Times are clock nanoseconds. First a line `server`
(what is simulated), then:

`request`: rid, arrival_ns, forward_ns (its prefill began), first_token_ns and finish_ns (as
scheduled), first_emitted_ns and finish_emitted_ns (as really handed to the socket), prompt_tok,
cached_tok, output_tok, verify_ct, correct_ct, histogram, finish, retraction_ct, dp_rank.

`step`: kind, start_ns, end_ns (as scheduled), handled_ns (when the process got to it), batch,
output_tok (delivered ones, without those past an answer's end), graph, num_steps (draft steps;
null without speculation), dp_rank.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from bench.errors import InputError

if TYPE_CHECKING:
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings
    from bench.simulator.step import Step


class Truth:
    """The writer; without a path it does nothing."""

    def __init__(self, settings: Settings) -> None:
        self._lines: list[bytes] = []
        self._due = False  # a request has ended since the last write
        self._file: IO[bytes] | None = None
        if settings.truth_path is not None:
            self._file = _opened(settings.truth_path)
            atexit.register(self.flush)
        self._encode = msgspec.json.Encoder().encode

    def server(self, record: dict[str, object]) -> None:
        """The first line."""
        self._write({"kind": "server", **record})
        self.flush()

    def step(self, step: Step, *, rank: int, batch: int, output_tok: int, handled_ns: int) -> None:
        """A step has ended."""
        if self._file is None:
            return
        self._write(
            {
                "kind": "step",
                "step": step.kind,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "handled_ns": handled_ns,
                "batch": batch,
                "output_tok": output_tok,
                "graph": step.graph,
                "num_steps": None if step.speculation is None else step.speculation.num_steps,
                "dp_rank": rank,
            }
        )

    def request(self, request: Request) -> None:
        """A request has ended; its line is written with that of the step it ended in."""
        if self._file is None:
            return
        self._write(
            {
                "kind": "request",
                "rid": request.rid,
                "arrival_ns": request.arrival_ns,
                "forward_ns": request.forward_ns,
                "first_token_ns": request.first_token_ns,
                "first_emitted_ns": request.first_emitted_ns,
                "finish_ns": request.finish_ns,
                "finish_emitted_ns": request.finish_emitted_ns,
                "prompt_tok": request.prompt_tok,
                "cached_tok": request.cached_tok,
                "output_tok": request.output_tok,
                "verify_ct": request.verify_ct,
                "correct_ct": request.correct_ct,
                "histogram": request.histogram,
                "finish": request.finish,
                "retraction_ct": request.retraction_ct,
                "dp_rank": request.dp_rank,
            }
        )
        self._due = True

    def settle(self) -> None:
        """Write all once a request has ended and its steps are done."""
        if self._due:
            self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        if self._file is None or not self._lines:
            return
        data = b"".join(self._lines)
        self._lines.clear()
        self._due = False
        try:
            while data:  # a disk that fills up takes a part
                data = data[self._file.write(data) :]
        except OSError as error:  # the server goes on, as SGLang would
            print(f"simulator: the truth file ends here: {error.strerror}", flush=True)  # noqa: T201  # its log
            self._file.close()
            self._file = None

    def _write(self, record: dict[str, object]) -> None:
        if self._file is not None:
            self._lines.append(self._encode(record) + b"\n")


def _opened(path: str) -> IO[bytes]:
    try:
        return Path(path).open("wb", buffering=0)
    except OSError as error:
        raise InputError(
            f"--sim-truth {path}: the file cannot be written: {error.strerror}",
            hint="Give a path in a folder that exists and may be written.",
        ) from None
