"""CUDA graphs of decoding: which batch sizes are captured.

Source: SGLang 0.5.23, `arg_groups/cuda_graph_hook.py`, `memory_hook.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.parsing import asked_text, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.sglang.arguments.known import Known
    from bench.sglang.arguments.outcome import EffectiveSpeculative
    from bench.sglang.arguments.parsing import AskedValue

# (memory in GiB below, most with fewer than 4 GPUs a rank, most with more)
_DEFAULT_MOST: Final = ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512))
_MANY: Final = 512
# (memory in GiB below, tokens of a prompt computed in one step)
_CHUNKS: Final = ((20, 2048), (60, 4096), (160, 8192))
_LARGEST_CHUNK: Final = 16384
MOST_BATCH: Final = 1 << 20
"""Larger batches than this are not looked at: no load is that large."""


def default_most_batch(memory_gib: float, tp: int) -> int:
    """The largest batch captured by default on GPUs of this memory."""
    for below_gib, few, many in _DEFAULT_MOST:
        if memory_gib < below_gib:
            return many if tp >= 4 else few
    return _MANY


def default_chunks(memory_gib: float | None) -> tuple[int, ...]:
    """The chunks of prefill that SGLang may take unasked: one where the GPUs' memory is known."""
    chunks = (*(chunk for _, chunk in _CHUNKS), _LARGEST_CHUNK)
    if memory_gib is None:
        return chunks
    return (next((chunk for below, chunk in _CHUNKS if memory_gib < below), _LARGEST_CHUNK),)


def generated_batch_sizes(most: int, *, speculative: bool) -> tuple[int, ...]:
    """The list that SGLang makes up to `most`, rising; finer with speculation (C44)."""
    most = min(most, MOST_BATCH)
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += range(272, most + 1, 16)
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
        sizes += range(512, most + 1, 32)
    return tuple(sorted({*(size for size in sizes if size < most), most}))


def are_graphs_off(asked: Mapping[str, AskedValue]) -> bool:
    """Whether decoding without CUDA graphs is asked for."""
    given = _config(asked).get("backend", asked_text(asked, "cuda_graph_backend_decode"))
    return given == "disabled" or any(
        asked.get(dest) is True for dest in ("disable_cuda_graph", "disable_decode_cuda_graph")
    )


def graph_batch_sizes(
    asked: Mapping[str, AskedValue], effective: EffectiveSpeculative, *, default_most: int
) -> tuple[int, ...]:
    """Batch sizes that are captured for decoding, rising; empty: none are.

    Args:
        asked: The record of `parse_arguments`.
        effective: What became of it.
        default_most: The largest batch that the GPUs' memory allows by default.
    """
    if are_graphs_off(asked):
        return ()
    config = _config(asked)
    given = config.get("bs", asked.get("cuda_graph_bs_decode"))
    if isinstance(given, list):
        numbers = (whole_number(str(size)) for size in given)
        return tuple(sorted({size for size in numbers if size is not None}))
    most = config.get("max_bs", asked_text(asked, "cuda_graph_max_bs_decode"))
    largest = None if most is None else whole_number(str(most))
    if largest is None:
        limit = effective.max_running_requests
        largest = default_most if limit is None else min(default_most, limit)
    if largest < 1:
        return ()
    if asked.get("disable_cuda_graph_padding") is True:
        return tuple(range(1, min(largest, MOST_BATCH) + 1))
    return generated_batch_sizes(largest, speculative=effective.algorithm is not None)


def known_graph_batch_sizes(
    asked: Mapping[str, AskedValue], effective: EffectiveSpeculative, known: Known
) -> tuple[int, ...] | None:
    """As `graph_batch_sizes`; None where nothing tells what the GPUs' memory allows."""
    if known.gpu == "cpu" or asked_text(asked, "device") == "cpu":
        return None
    if known.gpu_memory_gib is not None:
        tp = whole_number(asked_text(asked, "tp_size") or "1") or 1
        most = default_most_batch(known.gpu_memory_gib, tp)
        return graph_batch_sizes(asked, effective, default_most=most)
    # Whatever the memory, without a size of its own the command line does not tell.
    small, large = (
        graph_batch_sizes(asked, effective, default_most=most) for most in (1, MOST_BATCH)
    )
    return small if small == large else None


def _config(asked: Mapping[str, AskedValue]) -> dict[str, object]:
    """The decode part of `--cuda-graph-config`, which wins over the other options."""
    try:
        config = json.loads(asked_text(asked, "cuda_graph_config") or "{}")
    except (ValueError, RecursionError):
        return {}
    decode = config.get("decode") if isinstance(config, dict) else None
    return decode if isinstance(decode, dict) else {}
