"""A workload at a load: what is asked of every arm alike, and what each is expected to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.model import Api, Load, Sampling, Workload
from bench.plan.throughput import Expected, expected
from bench.plan.work import Work, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.plan.servers import PlannedArm
    from bench.scenario import Loads, Measure, Scenario
    from bench.scenario import Workload as AskedWorkload

MAX_EVENT_PER_S = 5000  # of the world: what one load worker is trusted with


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One workload at one load.

    Attributes:
        work: The same in every arm.
        expected: By arm; None where no cards tell, none for arms added later.
        stated_tok_per_s_per_user: The scenario's own expectation, for arms without another.
    """

    workload: Workload
    load: Load
    work: Work
    expected: Mapping[str, Expected | None]
    stated_tok_per_s_per_user: float

    def tok_per_s_per_user(self, arm: str) -> float:
        """What a user of this arm is expected to get."""
        told = self.expected.get(arm)
        return self.stated_tok_per_s_per_user if told is None else told.output_tok_per_s_per_user


def points_of(
    scenario: Scenario, measure: Measure, arms: Mapping[str, PlannedArm]
) -> tuple[Point, ...]:
    """Every workload, in the scenario's order, at every load of it, the lightest first.

    All arms are looked at, measured now or not: what is asked must not depend on a filter.
    """
    return tuple(
        _point(workload_of(name, asked), load, measure, arms)
        for name, asked in scenario.workloads.items()
        for load in loads_of(asked.loads or scenario.loads)
    )


def clock_speed(points: Sequence[Point], wanted: int) -> int:
    """The speed of a simulation: as wanted, unless a load's stream events would be too many.

    One speed for the whole plan, so that all its numbers are made alike.
    """
    busiest_per_s = max(
        (told.event_per_s for point in points for told in point.expected.values() if told),
        default=0.0,
    )
    return max(1, min(wanted, int(MAX_EVENT_PER_S / busiest_per_s) if busiest_per_s else wanted))


def speed_note(points: Sequence[Point], wanted: int) -> str | None:
    """Which load has a simulation's speed lowered, and from what to what; None: none does."""
    speed = clock_speed(points, wanted)
    if speed == wanted:
        return None
    arm, point, told = max(
        (
            (arm, point, told)
            for point in points
            for arm, told in point.expected.items()
            if told is not None
        ),
        key=lambda found: found[2].event_per_s,
    )
    return (
        f"sim.speed {wanted} was lowered to {speed}: arm {arm}, {point.workload.name} load "
        f"{point.load.label} makes {told.event_per_s:.0f} stream events a simulated second, and "
        f"one load worker is trusted with {MAX_EVENT_PER_S} a second."
    )


def workload_of(name: str, asked: AskedWorkload) -> Workload:
    """A workload as the scenario writes it: paths are not resolved yet."""
    cache, _, share = asked.cache.partition(":")
    sampling = asked.sampling
    return Workload(
        name=name,
        api=Api(asked.api),
        dataset=asked.dataset,
        dataset_path=asked.dataset_path,
        categories=tuple(asked.categories),
        input_tok=asked.input_tok,
        max_output_tok=asked.max_output_tok,
        sampling=Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
        ),
        ignore_eos=asked.ignore_eos,
        chat_template_kwargs=tuple(sorted(asked.chat_template_kwargs.items())),
        cache="cold" if cache == "cold" else "primed" if cache == "primed" else "shared-prefix",
        shared_prefix_share=float(share or 0.0),
        tokenizer_path=asked.tokenizer_path,
        store_text=asked.store_text,
    )


def loads_of(asked: Loads) -> tuple[Load, ...]:
    """Loads, the lightest first: closed by concurrency, open by rate, then the search."""
    closed = [Load(kind="closed", concurrency=slots) for slots in sorted(asked.concurrency)]
    opened = [
        Load(kind="open", rate_per_s=rate.rate_per_s, gaps=rate.gaps, gap_cv=rate.gap_cv)
        for rate in sorted(asked.rates, key=lambda rate: rate.rate_per_s)
    ]
    loads = closed + opened
    if (capacity := asked.capacity) is not None:
        loads.append(
            Load(
                kind="capacity",
                gaps=capacity.gaps,
                gap_cv=capacity.gap_cv,
                min_rate_per_s=capacity.min_rate_per_s,
                max_rate_per_s=capacity.max_rate_per_s,
                probes=capacity.probes,
            )
        )
    return tuple(loads)


def _point(
    workload: Workload, load: Load, measure: Measure, arms: Mapping[str, PlannedArm]
) -> Point:
    told = {
        name: expected(replace(arm.server, acceptance=arm.acceptance), load, workload)
        for name, arm in arms.items()
    }
    stated = measure.expected_output_tok_per_s_per_user
    rates = [one.output_tok_per_s_per_user for one in told.values() if one is not None]
    work = work_of(
        load,
        workload,
        steady_s=measure.steady_s,
        requests_per_slot=measure.requests_per_slot,
        warmup_requests_per_slot=measure.warmup_requests_per_slot,
        expected_tok_per_s_per_user=rates or [stated],
    )
    return Point(
        workload=workload,
        load=load,
        work=work,
        expected=told,
        stated_tok_per_s_per_user=max(rates, default=stated),
    )
