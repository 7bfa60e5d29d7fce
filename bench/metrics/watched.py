"""The metrics that a night can watch: what each is, which way is better, what is of no use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUTPUT: Final = "output_tok_per_s"
ACCEPT_LEN: Final = "accept_len_tok"
CYCLE: Final = "cycle_ms"
SPEEDUP: Final = "speedup"
CLOCK: Final = "sm_clock_mhz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        label: What people read.
        higher_is_better: Else a rise is for the worse.
        margin: Changes within this share are of no practical use, unless a suite says otherwise.
        digits: Decimals worth showing.
        watched: Whether it is judged unless a suite says otherwise.
    """

    label: str
    higher_is_better: bool
    margin: float
    digits: int
    watched: bool = False


METRICS: Final = {
    OUTPUT: Metric(
        label="output tok/s", higher_is_better=True, margin=0.005, digits=1, watched=True
    ),
    ACCEPT_LEN: Metric(
        label="accept length", higher_is_better=True, margin=0.005, digits=3, watched=True
    ),
    CYCLE: Metric(label="cycle ms", higher_is_better=False, margin=0.005, digits=2, watched=True),
    SPEEDUP: Metric(label="speedup", higher_is_better=True, margin=0.005, digits=3, watched=True),
    "ttft_p99_ms": Metric(
        label="TTFT p99 ms", higher_is_better=False, margin=0.03, digits=1, watched=True
    ),
    "ttft_p50_ms": Metric(label="TTFT p50 ms", higher_is_better=False, margin=0.02, digits=1),
    "tpot_mean_ms": Metric(label="TPOT mean ms", higher_is_better=False, margin=0.005, digits=3),
    "request_per_s": Metric(label="requests/s", higher_is_better=True, margin=0.005, digits=3),
    "capacity_rate_per_s": Metric(
        label="capacity, requests/s", higher_is_better=True, margin=0.02, digits=2
    ),
    "energy_j_per_output_tok": Metric(
        label="J a token", higher_is_better=False, margin=0.01, digits=3
    ),
    CLOCK: Metric(label="SM clock MHz", higher_is_better=True, margin=0.01, digits=0),
    "gpu_temperature_c": Metric(label="GPU °C", higher_is_better=False, margin=0.03, digits=1),
}

WATCHED: Final = tuple(name for name, metric in METRICS.items() if metric.watched)


def metric_of(name: str) -> Metric:
    """The metric of a series, another tool's figure of it included."""
    return METRICS[own_name(name)]


def own_name(name: str) -> str:
    """A metric's name without the tool in front."""
    return name.rpartition(":")[2]


def foreign_name(tool: str, metric: str) -> str:
    """The name of a metric as another tool defines it: `sglang:output_tok_per_s`.

    Its figures have ramp and tail in them and would be a change of level among ours.
    """
    return f"{tool}:{metric}"


def beside(name: str, metric: str) -> str:
    """Another metric by the same tool as `name`'s."""
    tool, colon, _ = name.rpartition(":")
    return f"{tool}{colon}{metric}"
