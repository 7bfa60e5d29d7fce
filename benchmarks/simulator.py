"""How far the simulated times are from published figures.

    python -m benchmarks.simulator [--tables DIR]

Prints, for each row of the three tables in benchmarks/data (or in DIR, under the same names), the
published speedup of speculation beside the simulated one, before and after two constants of each
target (`fixed_ms` and `cycle_fixed_ms`) are fitted. They are fitted to the speedups of every
second row, in the order they are printed, and judged on the others. The accept length of a row is
an input: what is foretold is what a cycle costs.

Meant to be met on the judged rows: median error of the speedup at most 10 %, worst at most 25 %.
Ends with 1 when it is not, or when `limit_tok_per_s` is below a published figure.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bench.physics import (
    SGLANG_0_5_23,
    decode_step,
    limit_tok_per_s,
    load_draft,
    load_hardware,
    load_target,
    prefill_time,
)
from bench.physics.cards import TargetCard
from bench.physics.fitting import minimise
from benchmarks.published import DATA, Row, read_rows

MEDIAN_LIMIT, WORST_LIMIT = 0.10, 0.25


hardware_of = cache(load_hardware)


def tok_per_s(row: Row, target: TargetCard, *, speculative: bool) -> float:
    """Output tokens a second of all requests of a row: a closed loop of equal requests.

    While one request puts out its answer, each request in flight is prefilled once, and all of
    them wait for that.
    """
    hardware = hardware_of(row.hardware)
    lengths = row.workload
    step = decode_step(
        hardware,
        target,
        batch=row.batch,
        context_tok_mean=lengths.prompt_tok + lengths.cached_tok + lengths.output_tok / 2,
        speculation=row.speculation if speculative else None,
        graph_batches=row.graph_batches if speculative else row.baseline_graph_batches,
        tp=row.tp,
        engine=row.engine if speculative else SGLANG_0_5_23,
    )
    prefill = prefill_time(
        hardware,
        target,
        chunks=[(lengths.prompt_tok, lengths.cached_tok)],
        tp=row.tp,
        speculative=speculative,
    )
    accept_len = row.accept_len_tok if speculative else 1.0
    user_ms = step.total_ms / accept_len + row.batch * prefill.total_ms / lengths.output_tok
    return row.batch * 1e3 / user_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row, simulated.

    Attributes:
        row: What was published.
        fitted_to: Whether the constants were fitted to it; False: it judges them.
        before: Simulated speedup with nothing fitted.
        after: With the target's two constants fitted.
    """

    row: Row
    fitted_to: bool
    before: float
    after: float

    def error(self, *, fitted: bool = True) -> float:
        """Simulated over published speedup, less one."""
        return (self.after if fitted else self.before) / self.row.speedup - 1.0


def card_of(row: Row, target: TargetCard) -> TargetCard:
    """The target with the draft of the row."""
    return target if row.draft is None else replace(target, draft=load_draft_of(row.draft))


load_draft_of = cache(load_draft)


def speedup(row: Row, target: TargetCard) -> float:
    """Simulated: with speculation over without."""
    card = card_of(row, target)
    fast = tok_per_s(row, card, speculative=True)
    return fast / tok_per_s(row, card, speculative=False)


def simulate(rows: list[Row]) -> tuple[TargetCard, list[Outcome]]:
    """All rows of one target: the fitted card, and each row before and after the fit."""
    unfitted = replace(load_target(rows[0].target), fixed_ms=None, cycle_fixed_ms=None)

    def cost(fixed_ms: float, cycle_fixed_ms: float) -> float:
        card = replace(unfitted, fixed_ms=fixed_ms, cycle_fixed_ms=cycle_fixed_ms)
        return sum(math.log(speedup(row, card) / row.speedup) ** 2 for row in rows[::2])

    fixed_ms, cycle_fixed_ms = minimise(cost)
    fitted = replace(unfitted, fixed_ms=fixed_ms, cycle_fixed_ms=cycle_fixed_ms)
    return fitted, [
        Outcome(
            row=row,
            fitted_to=index % 2 == 0,
            before=speedup(row, unfitted),
            after=speedup(row, fitted),
        )
        for index, row in enumerate(rows)
    ]


def limit_share(row: Row) -> float | None:
    """The largest share of the bandwidth limit that a published throughput of the row reaches."""
    if row.tok_per_s is None or row.baseline_tok_per_s is None:
        return None
    target = load_target(row.target)
    lengths = row.workload
    context_tok = lengths.prompt_tok + lengths.cached_tok + lengths.output_tok / 2

    def limit(tokens: int, accept_len: float) -> float:
        return limit_tok_per_s(
            hardware_of(row.hardware),
            target,
            batch=row.batch,
            context_tok_mean=context_tok,
            tokens_per_request=tokens,
            accept_len_tok=accept_len,
            tp=row.tp,
        )

    drafted = limit(row.speculation.num_draft_tokens, row.accept_len_tok)
    return max(row.tok_per_s / drafted, row.baseline_tok_per_s / limit(1, 1.0))


# ---------------------------------------------------------------------------------------- printing


def print_rows(outcomes: list[Outcome]) -> None:
    """A line a row, under the name of its table."""
    table = ""
    for outcome in outcomes:
        row = outcome.row
        if row.table != table:
            table = row.table
            print(f"\n{table}: {row.tp} GPU of {row.hardware}, {row.engine.name}")
            print(f"  {'':58}accept   published   before      after       error")
        print(
            f"  {row.label:58}{row.accept_len_tok:6.2f}{row.speedup:10.2f}x{outcome.before:9.2f}x"
            f"{outcome.after:10.2f}x{outcome.error():+11.1%}  "
            f"{'fitted' if outcome.fitted_to else 'judged'}"
        )


def summary(outcomes: list[Outcome], *, fitted: bool) -> str:
    """Median and worst error of some rows."""
    errors = [abs(outcome.error(fitted=fitted)) for outcome in outcomes]
    return f"median {statistics.median(errors):5.1%}, worst {max(errors):5.1%}"


def throughput_errors(fitted: TargetCard, rows: list[Row]) -> list[float]:
    """Simulated over published tok/s, less one, with and without speculation; no one fitted it."""
    errors = []
    for row in rows:
        card = card_of(row, fitted)
        for published, speculative in ((row.tok_per_s, True), (row.baseline_tok_per_s, False)):
            if published is not None:
                errors.append(tok_per_s(row, card, speculative=speculative) / published - 1.0)
    return errors


def print_target(fitted: TargetCard, outcomes: list[Outcome]) -> bool:
    """A target's rows and errors; whether the judged ones meet the limits."""
    judged = [outcome for outcome in outcomes if not outcome.fitted_to]
    used = [outcome for outcome in outcomes if outcome.fitted_to]
    print(f"\n==== {fitted.name}")
    print_rows(outcomes)
    print(f"\n  nothing fitted, all {len(outcomes)} rows:   {summary(outcomes, fitted=False)}")
    print(f"  fixed_ms {fitted.fixed_ms}, cycle_fixed_ms {fitted.cycle_fixed_ms} fitted")
    print(f"  to {len(used)} rows:                 {summary(used, fitted=True)}")
    print(f"  judged on the other {len(judged)}:     {summary(judged, fitted=True)}")
    for table in sorted({outcome.row.table for outcome in judged}):
        some = [outcome for outcome in judged if outcome.row.table == table]
        print(f"    {table:40} {summary(some, fitted=True)}  ({len(some)} rows)")
    plain = [abs(error) for error in throughput_errors(fitted, [o.row for o in outcomes])]
    print(
        f"  throughputs themselves, to which nothing was fitted: median "
        f"{statistics.median(plain):.1%}, worst {max(plain):.1%} of {len(plain)}"
    )
    worst = [outcome for outcome in judged if abs(outcome.error()) > WORST_LIMIT]
    for outcome in worst:
        print(f"  not met: {outcome.row.label}: {outcome.error():+.1%}")
    errors = [abs(outcome.error()) for outcome in judged]
    return statistics.median(errors) <= MEDIAN_LIMIT and not worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--tables", type=Path, default=DATA, metavar="DIR", help="Folder of the three tables."
    )
    rows = read_rows(parser.parse_args().tables)
    print("SIMULATED beside published speedups. Accept lengths are published ones: an input.")
    met = True
    for target in sorted({row.target for row in rows}):
        met &= print_target(*simulate([row for row in rows if row.target == target]))
    shares = [(share, row) for row in rows if (share := limit_share(row)) is not None]
    most, row = max(shares, key=lambda pair: pair[0])
    print(
        f"\nbandwidth limit: {2 * len(shares)} published throughputs, all below it: "
        f"{'yes' if most <= 1 else 'NO'}; the nearest reaches {most:.0%} ({row.label})"
    )
    return 0 if met and most <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
