"""What one scheduler's GPUs are doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bench.physics import Speculation
    from bench.simulator.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Part of a prefill batch: what one request computes in it.

    Attributes:
        request: Whose.
        new_tok: Tokens computed.
        before_tok: Tokens of it in the KV cache already.
        found_tok: Those of them that the prefix cache had; 0 in a later chunk.
    """

    request: Request
    new_tok: int
    before_tok: int
    found_tok: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the GPUs are doing: one forward, or one draft-and-verify cycle.

    Attributes:
        kind: `prefill` or `decode`.
        start_ns: When it began.
        end_ns: When it ends.
        chunks: Of a prefill: what it computes.
        graph: Whether it runs as a CUDA graph.
        speculation: How a decoding step drafts; None: it does not.
    """

    kind: Literal["prefill", "decode"]
    start_ns: int
    end_ns: int
    graph: bool
    chunks: tuple[Chunk, ...] = ()
    speculation: Speculation | None = None
