"""A scrape of `/metrics`: its samples, the series we use, and what a counter rose by between two.

Parsing is by `prometheus_client`, a line at a time, so that a damaged line costs only itself. What
the series mean: `metric_meanings`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.sglang.metric_meanings import SERIES, TOTAL_LABELS, SeriesKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

RANK_LABEL = "dp_rank"
WORKER_LABEL = "worker_addr"
WORKER_STRIDE = 1000
"""Ranks of the n-th of several workers are counted from n times this."""

MODE_LABEL = "mode"
_PARALLEL_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank")

ACCEPT_LENGTH = "sglang:spec_accept_length"

_BY_MODE = frozenset({"sglang:cuda_graph_passes_total", "sglang:realtime_tokens_total"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a scrape.

    Attributes:
        name: As scraped, `_total` included.
        labels: Label values by name.
        value: None where the server had none: NaN, or an infinite value.
    """

    name: str
    labels: Mapping[str, str]
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One value of a series we use.

    Attributes:
        name: `sglang:…`; series told apart by mode carry it, as in
            `sglang:realtime_tokens_total{mode=decode}`.
        rank: Data-parallel rank, counted on by WORKER_STRIDE for each further worker; None where
            the server has just one or tells the sum of all.
        value: None where the server had none.
    """

    name: str
    rank: int | None
    value: float | None


def parse_scrape(text: str, names: Collection[str] | None = None) -> list[Sample]:
    """The samples of a scrape in its order; comments and lines that do not parse are left out.

    Args:
        text: Prometheus text format.
        names: Only samples of these names, which is much faster; None: all. `sglang:` also finds
            `sglang_`, as routers write it.
    """
    samples = []
    for written in text.removeprefix("\ufeff").split("\n"):  # labels may have other separators
        line = written.strip()
        if not line or line.startswith("#"):
            continue
        if names is not None and canonical_name(_name_of(line)) not in names:
            continue
        samples.extend(_parse_line(line))
    return samples


def _name_of(line: str) -> str:
    return line.split("{", 1)[0].split(None, 1)[0] if line[0] != "{" else ""


def _parse_line(line: str) -> list[Sample]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415  # heavy

    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except (ValueError, KeyError, IndexError):
        return []
    return [
        Sample(
            name=sample.name,
            labels=sample.labels,
            value=_finite(sample.value),
        )
        for family in families
        for sample in family.samples
    ]


def _finite(value: float) -> float | None:
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # of a whole number, which is read as one
        return None


def canonical_name(name: str) -> str:
    """A router writes `sglang_gen_throughput` where the engine writes `sglang:gen_throughput`."""
    return "sglang:" + name.removeprefix("sglang_") if name.startswith("sglang_") else name


def readings(text: str) -> list[Reading]:
    """The series we use, one value for each series and data-parallel rank.

    With metrics of all schedulers exported, ranks within one data-parallel rank repeat one
    another: only the first is read. Other label sets (streaming or not, cache sources, priorities)
    are combined as SERIES says, unless one of them is their total. An accept length below 1 is a
    rank that has not decoded: no value; nor is a counter below 0.

    Args:
        text: A scrape, of a server or of a router that passes on those of its workers.
    """
    samples = parse_scrape(text, SERIES)
    named = {sample.labels[WORKER_LABEL] for sample in samples if WORKER_LABEL in sample.labels}
    workers = {name: index for index, name in enumerate(sorted(named))}
    groups: dict[tuple[str, int | None], list[Sample]] = {}
    for sample in samples:
        worker = workers.get(sample.labels.get(WORKER_LABEL, ""), 0)
        key = (_series_name(sample), rank_of_worker(worker, _rank(sample.labels)))
        groups.setdefault(key, []).append(sample)
    return [
        Reading(name=name, rank=rank, value=_combined(_total_only(_first_rank_only(samples))))
        for (name, rank), samples in groups.items()
    ]


_RANK = re.compile(r"[0-9]{1,9}")


def rank_of_worker(worker: int, rank: int | None) -> int | None:
    """The rank by which one of several workers' ranks is told from the others'."""
    return worker * WORKER_STRIDE + (rank or 0) if worker else rank


def _series_name(sample: Sample) -> str:
    name = canonical_name(sample.name)
    return f"{name}{{mode={sample.labels.get(MODE_LABEL, '')}}}" if name in _BY_MODE else name


def _rank(labels: Mapping[str, str]) -> int | None:
    text = labels.get(RANK_LABEL, "")
    return int(text) if _RANK.fullmatch(text) else None


def _first_rank_only(samples: Sequence[Sample]) -> list[Sample]:
    ranks = [
        tuple(_label_order(sample.labels, label) for label in _PARALLEL_LABELS)
        for sample in samples
    ]
    first = min(ranks)
    return [sample for sample, rank in zip(samples, ranks, strict=True) if rank == first]


def _total_only(samples: Sequence[Sample]) -> Sequence[Sample]:
    """A gauge's total where the server tells it beside its parts, which must not be added to it.

    Counters have no such total: there, the set without a priority is of requests without one.
    """
    kind = SERIES[canonical_name(samples[0].name)].kind
    totals = [
        sample
        for sample in samples
        if all(sample.labels.get(label) == value for label, value in TOTAL_LABELS.items())
    ]
    return totals if totals and kind is not SeriesKind.COUNTER else samples


def _label_order(labels: Mapping[str, str], label: str) -> int:
    text = labels.get(label, "")
    return int(text) if _RANK.fullmatch(text) else -1


def _combined(samples: Sequence[Sample]) -> float | None:
    name = canonical_name(samples[0].name)
    values = [sample.value for sample in samples if sample.value is not None]
    if len(values) < len(samples):  # a sum with a missing part is missing
        return None
    value = sum(values) if SERIES[name].over_labels == "sum" else max(values)
    impossible = (name == ACCEPT_LENGTH and value < 1) or (
        SERIES[name].kind is SeriesKind.COUNTER and min(values) < 0
    )
    return None if impossible else value


# ------------------------------------------------------------------------------------- counters


def counter_delta(
    before: Iterable[Sample],
    after: Iterable[Sample],
    name: str,
    labels: Mapping[str, str] | None = None,
) -> float | None:
    """How much a counter rose between two scrapes, over all its label sets: engines, ranks, modes.

    Ranks within one data-parallel rank repeat one another: only the first is read. A label set
    that is absent before counts from 0: counters appear with their first count. The `_created`
    companions of counters have other names and so never enter.

    Args:
        before: The earlier scrape.
        after: The later scrape.
        name: The sample's name, `_total` included.
        labels: Only label sets that have these values.

    Returns:
        The rise; None when the later scrape has no such counter, when a value is missing or below
        0, or when a counter fell, which says that its process was started anew in between.
    """
    earlier, later = _by_labels(before, name, labels), _by_labels(after, name, labels)
    if not later:
        return None
    rise = 0.0
    for key, now in later.items():
        then = earlier.get(key, 0.0)
        if now is None or then is None or now < then:
            return None
        rise += now - then
    return None if earlier.keys() - later.keys() else rise


def _by_labels(
    samples: Iterable[Sample], name: str, labels: Mapping[str, str] | None
) -> dict[frozenset[tuple[str, str]], float | None]:
    """Values by labels, parallel ranks left out; of one set that comes twice, their sum."""
    wanted = (labels or {}).items()
    alike: dict[frozenset[tuple[str, str]], list[Sample]] = {}
    for sample in samples:
        if canonical_name(sample.name) == canonical_name(name) and wanted <= sample.labels.items():
            others = {k: v for k, v in sample.labels.items() if k not in _PARALLEL_LABELS}
            alike.setdefault(frozenset(others.items()), []).append(sample)
    return {key: _sum(_first_rank_only(samples)) for key, samples in alike.items()}


def _sum(samples: Sequence[Sample]) -> float | None:
    values = [sample.value for sample in samples if sample.value is not None]
    if len(values) < len(samples) or min(values) < 0:
        return None
    return sum(values)
