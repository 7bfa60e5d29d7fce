"""Distributions and series over requests, read from a run's Parquet files in bounded memory.

Rows are read in batches and only the columns that are needed; what is kept of each arm at each
place is a bounded number of quantiles and bins, so that a hundred thousand requests cost no more
than a thousand.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.errors import StoreError
from reports.view import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.store import StoredRun

QUANTILES = np.linspace(0.0, 1.0, 201)
OUTPUT_BIN_TOK = 32
MOST_GAPS = 200_000  # kept of one arm at one place; beyond, every second, third … batch's
_BATCH = 2048
_CATEGORY = r"^generated-\d+-(?P<category>\w+)$"  # docs/prompts.md
_DAMAGED = "Bring it back from a copy; once it is moved away a page is made of the rest."
_COLUMNS = (
    "cell_id",
    "prompt_id",
    "phase",
    "status",
    "slot",
    "due_ns",
    "sent_ns",
    "ended_ns",
    "output_tok",
    "tokens_before_first_event",
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "event_ns_delta",
    "event_tok_delta",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Quantiles (of `QUANTILES`) over the ok requests of one arm at one place.

    Attributes:
        ttft_ms: None when no request had an event.
        tpot_ms: None when no request had two events and a count.
        chunk_gap_ms: None when no request had two events.
        requests: How many entered.
    """

    ttft_ms: NDArray[np.float64] | None
    tpot_ms: NDArray[np.float64] | None
    chunk_gap_ms: NDArray[np.float64] | None
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlongOutput:
    """Tokens an event by position in the output, in bins of `OUTPUT_BIN_TOK` tokens.

    Attributes:
        tok: Middle of each bin, in tokens.
        tok_per_event: Tokens / events whose end lies in it; bins of fewer than 30 events are left
            out.
    """

    tok: NDArray[np.float64]
    tok_per_event: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestViews:
    """What the figures need of the requests.

    Attributes:
        latencies: By arm and place.
        along_output: By arm and place; only where running counts of tokens were given.
        acceptance: By launch: (end of the request in ns, correct drafts, verify steps), shape
            (requests, 3).
        categories: By arm, workload and category of a generated prompt: (requests, correct drafts,
            verify steps), over all loads.
    """

    latencies: dict[tuple[str, Place], Latencies]
    along_output: dict[tuple[str, Place], AlongOutput]
    acceptance: dict[str, NDArray[np.int64]]
    categories: dict[tuple[str, str, str], tuple[int, int, int]]


@dataclass(slots=True)
class _Gathered:
    """What is gathered of one arm at one place while reading."""

    ttft_ms: list[NDArray[np.float64]] = field(default_factory=list)
    tpot_ms: list[NDArray[np.float64]] = field(default_factory=list)
    gaps_ms: list[NDArray[np.float64]] = field(default_factory=list)
    gap_ct: int = 0
    requests: int = 0
    bin_tok: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    bin_events: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


def request_views(stored: StoredRun) -> RequestViews:
    """Read the requests of a run once.

    Args:
        stored: Published, or a part-run: then there are none yet.
    """
    cells = {
        m.cell_id: (m.arm, Place(workload=m.workload, load=m.load), m.launch_id)
        for m in stored.measurements
    }
    gathered: dict[tuple[str, Place], _Gathered] = {}
    acceptance: dict[str, list[NDArray[np.int64]]] = {}
    categories: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for cell_id, batch in _batches(stored.folder / "samples.parquet"):
        if cell_id not in cells:
            continue
        arm, place, launch_id = cells[cell_id]
        _gather(gathered.setdefault((arm, place), _Gathered()), batch)
        accepted, prompt_ids = _accepted(batch)
        if accepted.size:
            acceptance.setdefault(launch_id, []).append(accepted)
        for category, counts in _by_category(accepted, prompt_ids):
            key = (arm, place.workload, category)
            before = categories.get(key, (0, 0, 0))
            categories[key] = (
                before[0] + counts[0],
                before[1] + counts[1],
                before[2] + counts[2],
            )
    return RequestViews(
        latencies={key: _latencies(g) for key, g in gathered.items()},
        along_output={
            key: along for key, g in gathered.items() if (along := _along(g)) is not None
        },
        acceptance={launch: np.concatenate(parts) for launch, parts in acceptance.items()},
        categories=categories,
    )


def _batches(file: Path) -> Iterator[tuple[str, Any]]:
    """(cell_id, the ok requests after warm-up of it) as pyarrow tables, a batch at a time."""
    import pyarrow as pa  # noqa: PLC0415  # loads only when a page is made
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not file.is_file():
        return
    with whole(file), pq.ParquetFile(file) as parquet:
        check_columns(file, parquet.schema_arrow.names, _COLUMNS)
        for batch in parquet.iter_batches(batch_size=_BATCH, columns=list(_COLUMNS)):
            table = pa.Table.from_batches([batch])
            ok = pc.and_(
                pc.equal(table["phase"], "measure"),
                pc.and_(pc.equal(table["status"], "ok"), pc.is_valid(table["sent_ns"])),
            )
            table = table.filter(ok)
            for cell_id in pc.unique(table["cell_id"]).to_pylist():
                yield cell_id, table.filter(pc.equal(table["cell_id"], cell_id)).combine_chunks()


@contextmanager
def whole(file: Path) -> Iterator[None]:
    """Read a table of a run.

    Raises:
        StoreError: It is damaged.
    """
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first = str(error).partition("\n")[0]
        raise StoreError(
            f"{file} is damaged: {first}",
            hint=_DAMAGED,
        ) from error


def check_columns(file: Path, there: Iterable[str], needed: Iterable[str]) -> None:
    """See that a table of a run has what a page reads of it.

    Raises:
        StoreError: It has not.
    """
    missing = sorted(set(needed) - set(there))
    if missing:
        raise StoreError(f"{file} is damaged: it has no {', '.join(missing)}", hint=_DAMAGED)


def _gather(g: _Gathered, table: Any) -> None:  # noqa: ANN401  # pyarrow has no types
    sent = _int64(table, "sent_ns")
    closed = ~_null(table, "slot")
    start = np.where(closed, sent, _int64(table, "due_ns"))
    times, at = _flat(table, "event_ns_delta")
    counts = np.diff(at)
    g.requests += len(sent)
    some = counts > 0
    # A request's deltas begin at its send: a running sum over all, less what came before.
    running = np.cumsum(times)
    before = np.concatenate(([0], running))[at[:-1]]
    ends = np.where(some, running[np.maximum(at[1:] - 1, 0)] - before, 0)
    first = np.where(some, times[np.minimum(at[:-1], max(len(times) - 1, 0))], 0)
    g.ttft_ms.append((sent + first - start)[some] / 1e6)
    _gather_tpot(g, table, some & (counts > 1), (ends - first) / 1e6, at)
    gaps = np.ones(len(times), dtype=bool)
    gaps[at[:-1][some]] = False
    g.gap_ct += int(gaps.sum())
    if sum(map(len, g.gaps_ms)) < MOST_GAPS:
        g.gaps_ms.append(times[gaps] / 1e6)
    _gather_along(g, table)


def _gather_tpot(
    g: _Gathered,
    table: Any,  # noqa: ANN401  # likewise
    usable: NDArray[np.bool_],
    decode_ms: NDArray[np.float64],
    at: NDArray[np.int64],
) -> None:
    """TPOT as in bench.metrics.latency: decode time / (tokens less those of the first event)."""
    output = _int64(table, "output_tok")
    counted = ~_null(table, "event_tok_delta") & ~_null(table, "output_tok")
    hidden = np.array(
        [bool(v) for v in table["tokens_before_first_event"].to_pylist()], dtype=bool
    )
    deltas, tok_at = _flat(table, "event_tok_delta")
    first_tok = np.where(
        np.diff(tok_at) > 0, deltas[np.minimum(tok_at[:-1], max(len(deltas) - 1, 0))], 0
    )
    first_tok = np.where(counted, first_tok, 1)
    decode_tok = output - first_tok
    chosen = usable & counted & ~hidden & (decode_tok > 0) & (np.diff(at) > 1)
    if chosen.any():
        g.tpot_ms.append(decode_ms[chosen] / decode_tok[chosen])


def _gather_along(g: _Gathered, table: Any) -> None:  # noqa: ANN401  # likewise
    """Tokens and events by position in the output; an answer's first event is prefill's."""
    deltas, at = _flat(table, "event_tok_delta")
    if not len(deltas):
        return
    running = np.cumsum(deltas)
    before = np.concatenate(([0], running))[at[:-1]]
    lengths = np.diff(at)
    position = running - np.repeat(before, lengths)
    keep = np.ones(len(deltas), dtype=bool)
    keep[at[:-1][lengths > 0]] = False
    last = at[1:][lengths > 0] - 1
    keep[last] = False  # cut by the answer's end
    bins = (position[keep] - 1) // OUTPUT_BIN_TOK
    if not len(bins):
        return
    size = int(bins.max()) + 1
    tok = np.bincount(bins, weights=deltas[keep], minlength=size)
    events = np.bincount(bins, minlength=size).astype(np.float64)
    g.bin_tok, g.bin_events = (
        _added(g.bin_tok, tok.astype(np.float64)),
        _added(g.bin_events, events),
    )


def _accepted(table: Any) -> tuple[NDArray[np.int64], Any]:  # noqa: ANN401  # likewise
    """(end in ns, correct drafts, verify steps) of the requests that told them; their prompts."""
    told = ~_null(table, "spec_verify_ct") & ~_null(table, "spec_num_correct_drafts")
    rows = np.stack(
        [
            _int64(table, "ended_ns"),
            _int64(table, "spec_num_correct_drafts"),
            _int64(table, "spec_verify_ct"),
        ],
        axis=1,
    )
    return rows[told], table["prompt_id"].filter(told)


def _by_category(
    accepted: NDArray[np.int64],
    prompt_ids: Any,  # noqa: ANN401  # likewise
) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """(category, (requests, correct drafts, verify steps)); only generated prompts have one."""
    import pyarrow.compute as pc  # noqa: PLC0415

    found = pc.struct_field(pc.extract_regex(prompt_ids, _CATEGORY), "category")
    for category in pc.unique(found).drop_null().to_pylist():
        chosen = accepted[pc.fill_null(pc.equal(found, category), fill_value=False).to_numpy()]
        yield category, (len(chosen), int(chosen[:, 1].sum()), int(chosen[:, 2].sum()))


def _latencies(g: _Gathered) -> Latencies:
    return Latencies(
        ttft_ms=_quantiles(g.ttft_ms),
        tpot_ms=_quantiles(g.tpot_ms),
        chunk_gap_ms=_quantiles(g.gaps_ms),
        requests=g.requests,
    )


def _along(g: _Gathered) -> AlongOutput | None:
    enough = g.bin_events >= 30
    if not enough.any():
        return None
    middle = (np.arange(len(g.bin_events), dtype=np.float64) + 0.5) * OUTPUT_BIN_TOK
    return AlongOutput(tok=middle[enough], tok_per_event=g.bin_tok[enough] / g.bin_events[enough])


def _quantiles(parts: list[NDArray[np.float64]]) -> NDArray[np.float64] | None:
    values = np.concatenate(parts) if parts else np.zeros(0)
    return np.quantile(values, QUANTILES) if len(values) else None


def _added(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))


def _int64(table: Any, name: str) -> NDArray[np.int64]:  # noqa: ANN401  # likewise
    """A column with 0 in place of null; see `_null`."""
    import pyarrow.compute as pc  # noqa: PLC0415

    values: NDArray[np.int64] = pc.fill_null(table[name], 0).to_numpy().astype(np.int64)
    return values


def _null(table: Any, name: str) -> NDArray[np.bool_]:  # noqa: ANN401  # likewise
    import pyarrow.compute as pc  # noqa: PLC0415

    mask: NDArray[np.bool_] = pc.is_null(table[name]).to_numpy().astype(bool)
    return mask


def _flat(table: Any, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ANN401  # likewise
    """The values of a list column, and where each row's begin: shape (rows + 1,)."""
    import pyarrow.compute as pc  # noqa: PLC0415

    lengths = pc.fill_null(pc.list_value_length(table[name]), 0).to_numpy().astype(np.int64)
    values = pc.list_flatten(table[name]).to_numpy().astype(np.int64)
    return values, np.concatenate(([0], np.cumsum(lengths)))
