"""How much fits: memory share, KV cache, running requests, ranks. As SGLang 0.5.23 computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.physics import kv_capacity_tok
from bench.simulator.refusals import StartFailure

if TYPE_CHECKING:
    from bench.physics import HardwareCard, TargetCard


def check_gpus(tp: int, dp: int, hardware: HardwareCard) -> None:
    """Refuse more ranks than the node has GPUs for: each data-parallel one has `tp` of its own."""
    if tp >= 1 and dp >= 1 and tp * dp <= hardware.gpus:
        return
    asked = f"--tp-size {tp}" + (f" --dp-size {dp}" if dp != 1 else "")
    raise InputError(
        f"{asked} asked for, and {hardware.name} has {hardware.gpus} GPUs",
        hint=f"Give --tp-size {hardware.gpus}, or another --sim-hardware."
        if dp == 1
        else f"Give sizes whose product is at most {hardware.gpus}, or another --sim-hardware.",
    )


def default_mem_fraction(
    hardware: HardwareCard, chunked: int, tp: int, graph_batch_sizes: tuple[int, ...]
) -> float:
    """SGLang's own default (memory_hook.py): what is left beside activations, graphs and reserve.

    Only cards of more than 60 GB are known here, for which at least 10 GB are kept.
    """
    largest = graph_batch_sizes[-1] if graph_batch_sizes else 0
    reserved_mib = 512 + 1.5 * max(chunked, 2048) + tp / 8 * 1024 + 2 * largest
    memory_mib = hardware.memory_gib * 1024
    return round((memory_mib - max(reserved_mib, 10240.0)) / memory_mib, 3)


def kv_capacity(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    mem_fraction: float,
    has_draft_model: bool,
    tp: int,
    at_most: int | None,
) -> int:
    """Tokens whose KV cache fits on a rank, of at most `at_most` (`--max-total-tokens`)."""
    capacity = kv_capacity_tok(
        hardware, target, mem_fraction_static=mem_fraction, speculative=has_draft_model, tp=tp
    )
    if capacity == 0:
        raise StartFailure(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"({target.name} at --tp-size {tp} on {hardware.name} with {mem_fraction:g})",
            exit_code=1,
        )
    return capacity if at_most is None else min(capacity, at_most)


def max_running_requests(wanted: int | None, capacity_tok: int, context_len: int) -> int:
    """The most requests decoded at once on a rank."""
    if wanted is None:
        wanted = min(max(int(capacity_tok / context_len * 512), 2048), 4096)
    return max(1, min(wanted, capacity_tok // 2))
