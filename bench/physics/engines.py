"""How versions of SGLang spend host time in a draft-and-verify cycle.

The cards describe models and machines; what else decides a cycle is how much of its host work the
engine hides behind the GPUs, and which of its forwards run as CUDA graphs. Only published figures
of older versions need anything but `SGLANG_0_5_23`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What an engine does with host time.

    Attributes:
        name: Its name and version.
        cycle_ms: Host time of a cycle that no GPU work hides.
        request_us: The same for each request of the batch.
        draft_extend_graph: Whether the draft's first forward of a cycle runs as a CUDA graph.
        source: Where the numbers come from.
    """

    name: str
    cycle_ms: float
    request_us: float
    draft_extend_graph: bool
    source: str


SGLANG_0_5_23 = Engine(
    name="SGLang 0.5.23",
    cycle_ms=0.0,
    request_us=0.0,
    draft_extend_graph=True,
    source="Spec v2 is its only path: the scheduler prepares a cycle while the one before runs.",
)
SGLANG_0_5_SPEC_V1 = Engine(
    name="SGLang 0.5 before spec v2",
    cycle_ms=0.8,
    request_us=10.0,
    draft_extend_graph=True,
    source=(
        "No overlap while speculating. Llama-3.1-8B, EAGLE 5-1-6, one request: 246.80 tok/s at "
        "accept length 2.99 without and 273.43 at 3.01 with overlap, 1.1 ms a cycle "
        "(https://github.com/sgl-project/sglang/pull/11398); 5-10 % elsewhere, 0.4-0.8 ms "
        "(https://github.com/sgl-project/sglang/pull/9588). Between the two."
    ),
)
SGLANG_0_4_4 = Engine(
    name="SGLang 0.4.4",
    cycle_ms=1.9,
    request_us=40.0,
    draft_extend_graph=False,
    source=(
        "No overlap (1.1 ms, as above), FlashInfer's plans made anew for each draft step, verify "
        "and draft extend (0.4 ms more than FA3 at two steps: "
        "https://github.com/sgl-project/sglang/pull/6805 against 6606; taken twice as much for "
        "three and more), no graph for the draft extend (it came with 6606), and a Python loop "
        "over requests and accepted tokens after each verify (40 µs a request: four tokens of "
        "about 10 µs; an estimate)."
    ),
)


def graph_batch(batch: int, graph_batches: Sequence[int] | None) -> int | None:
    """The batch that a captured graph runs as, or None for a forward without a graph.

    A batch between two captured sizes is padded to the larger one.

    Args:
        batch: Running requests.
        graph_batches: Captured sizes, rising; empty: no graphs; None: one of just this size.
    """
    if graph_batches is None:
        return batch
    at = bisect_left(graph_batches, batch)
    return graph_batches[at] if at < len(graph_batches) else None
