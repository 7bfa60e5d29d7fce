"""What is told of two step counts that took turns in one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from bench.metrics.speedup import Estimate

GAUGE: Final = "sglang:spec_num_steps"
"""The gauge of the draft steps in use; set whenever a decode line is written."""


class NotTold(Exception):  # noqa: N818  # it is an answer, and never leaves this room
    """What cannot be told exactly; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Verify batches in a row under the same steps, none of which may be of another phase.

    Attributes:
        steps: Draft steps.
        first: Its first batch, of the cell's.
        batches: How many verify batches.
        verify_ct: Verify steps, over all requests.
        correct_ct: Accepted drafts; by the log, whose accept lengths are rounded, no whole number.
        histogram: Element k: how many steps accepted exactly k drafts; None by the log.
        timed: Cycles wholly inside it that nothing came between.
        timed_ns: What they took.
        context_tok: How far the outputs were on average; by the log with their prompts.
    """

    steps: int
    first: int
    batches: int
    verify_ct: int
    correct_ct: float
    histogram: tuple[int, ...] | None
    timed: int
    timed_ns: float
    context_tok: float

    @property
    def end(self) -> int:
        """Behind its last batch."""
        return self.first + self.batches

    @property
    def accept_len_tok(self) -> float:
        """Tokens a verify step yields, the bonus token included."""
        return 1 + self.correct_ct / self.verify_ct

    @property
    def cycle_ms(self) -> float | None:
        """Mean time of a cycle; None without a timed one."""
        return self.timed_ns / self.timed / 1e6 if self.timed else None

    @property
    def tok_per_s_per_user(self) -> float | None:
        """Accept length over cycle time."""
        return self.accept_len_tok / self.cycle_ms * 1e3 if self.cycle_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """One of the two step counts, over all its phases: ratios of sums.

    Attributes:
        steps: Draft steps.
        phases: How many phases.
        verify_ct: Verify steps.
        accept_len_tok: Tokens a verify step yields.
        reach: P(at least k drafts accepted), k = 1 … steps; None by the log.
        cycle_ms: Mean time of a cycle that nothing came between.
        tok_per_s_per_user: Accept length over cycle time.
    """

    steps: int
    phases: int
    verify_ct: int
    accept_len_tok: float
    reach: tuple[float, ...] | None
    cycle_ms: float
    tok_per_s_per_user: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison:
    """Two step counts in one launch; each estimate is of the higher over the lower.

    Its intervals are of neighbouring phases of one launch: what launches draw anew is in neither
    side, and no verdict follows from it.

    Attributes:
        few: The lower step count.
        many: The higher one.
        gain: Ratio of tokens a second of one user, by pairs of neighbouring phases.
        accept_len: Ratio of accept lengths, likewise.
        cycle: Ratio of cycle times, likewise.
        source: Whose account it is: the requests' streams, or the server's log.
        left_out: Share of verify batches that may be of either.
        gauge_compared: Readings of the gauge that could be compared.
        gauge_agreed: Those of them that agree.
        ranks_only: The lower is 0, which still pays for speculation: its figure ranks, and is no
            baseline.
        simulated: The server was simulated.
        phases: All phases, in order.
    """

    few: StepFigures
    many: StepFigures
    gain: Estimate
    accept_len: Estimate
    cycle: Estimate
    source: Literal["streams", "log"]
    left_out: float
    gauge_compared: int
    gauge_agreed: int
    ranks_only: bool
    simulated: bool
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """Why a cell does not compare two step counts."""

    reason: str
