"""From a cell's requests and telemetry to its derived numbers and its findings."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.metrics import acceptance, latency, step, throughput
from bench.metrics.cache import cache_use
from bench.metrics.capacity import judged_probe, probes
from bench.metrics.checks import check_cell, status_of
from bench.metrics.configuration import speculative_setting
from bench.metrics.energy import window_energy
from bench.metrics.facts import CellFacts
from bench.metrics.series import group_series
from bench.metrics.window import (
    Window,
    busy_slots_mean,
    counts_guessed,
    cut_at_end,
    find_window,
    tokens_in,
)
from bench.model import CellStatus, Measurement, RequestStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.metrics.series import Series
    from bench.model import (
        Cell,
        ClientStats,
        EffectiveConfig,
        Finding,
        RequestSample,
        TelemetryPoint,
    )


def summarize(  # noqa: PLR0913  # one keyword for each thing that is known of a cell; a record for them would only rename it
    cell: Cell,
    samples: Sequence[RequestSample],
    telemetry: Sequence[TelemetryPoint],
    *,
    client: ClientStats | None,
    effective: EffectiveConfig | None,
    launch_id: str,
    gpus: int,
    simulated: bool,
    limit_tok_per_s: float | None = None,
    speed: int = 1,
    unread: str | None = None,
    gpus_unread: str | None = None,
) -> tuple[Measurement, tuple[Finding, ...]]:
    """Derive one cell's numbers (docs/metrics.md) and check them.

    Args:
        cell: What was asked.
        samples: Every request of the cell, warm-up and failed ones included, in any order.
        telemetry: Readings from before the cell's first send to after its last response, in any
            order.
        client: How the load worker did; None when unknown.
        effective: What the server said of itself; None when unknown.
        launch_id: The launch that the cell was measured in.
        gpus: How many GPUs the server used; 0 for none.
        simulated: Whether the server is a simulator.
        limit_tok_per_s: The memory-bandwidth floor for this cell, in output tokens a second of the
            whole server.
        speed: The clock's speed: the client's own delays, which are the world's, are this much
            longer on the clock.
        unread: Why readings of the server's metrics are missing; None when all is well.
        gpus_unread: The same of its GPUs.

    Returns:
        The measurement, its `status` set by the findings, and the findings.
    """
    series = group_series(telemetry)
    probe = judged_probe(probes(series)) if cell.load.kind == "capacity" else None
    ordered = sorted(
        # The numbers of a capacity search are those of the highest rate that met the limits.
        (s for s in samples if probe is None or probe.began_ns <= s.due_ns <= probe.ended_ns),
        key=lambda s: s.index,
    )
    measured = [s for s in ordered if s.phase == "measure"]
    ok = [s for s in measured if s.status is RequestStatus.OK]
    counters = acceptance.pool_counters(ok)
    window = find_window(cell.load, ordered)
    uses = cache_use(ok, ordered, series)
    inside = _inside(cell, ordered, window, ok) if isinstance(window, Window) else _Inside()
    depth = num_steps(effective, series)
    tau = acceptance.accept_len_tok(counters.num_correct_drafts, counters.verify_ct)
    at_position = acceptance.accept_at_position(counters.histogram, depth)
    # A plain decode step makes one token of each user's answer, a verify step tau of them.
    step_tok = tau if cell.arm_is_speculative else 1.0
    decode_tok_per_s = _ratio(step_tok and 1000 * step_tok, inside.cycle_ms)
    timed = () if step.hides_too_many(ok) else ok
    queue_share, prefill_share = step.queue_and_prefill_shares(ok, ordered, series)
    energy = window_energy(series, window, gpus=gpus) if isinstance(window, Window) else None
    failures = Counter(s.status.value for s in measured if s.status is not RequestStatus.OK)
    measurement = Measurement(
        cell_id=cell.cell_id,
        comparison_key=cell.comparison_key,
        launch_id=launch_id,
        arm=cell.arm,
        workload=cell.workload.name,
        load=cell.load.label,
        pair=cell.pair,
        status=CellStatus.VALID,  # until the checks below have spoken
        simulated=simulated,
        request_ct=len(measured),
        ok_ct=len(ok),
        failed_ct=len(measured) - len(ok),
        failures_by_kind=tuple(sorted(failures.items())),
        output_tok_sum=sum(s.output_tok or 0 for s in ok),
        window_rule=inside.rule or window.rule,
        window_start_ns=inside.start_ns,
        window_end_ns=inside.end_ns,
        window_s=inside.length_s,
        window_output_tok=inside.output_tok,
        window_busy_slots_mean=inside.busy_slots_mean,
        requests_cut_at_end_ct=inside.cut_at_end_ct,
        output_tok_per_s=inside.output_tok_per_s,
        output_tok_per_s_per_gpu=_ratio(inside.output_tok_per_s, gpus),
        output_tok_per_s_per_user=_ratio(inside.output_tok_per_s, inside.busy_slots_mean),
        whole_run_output_tok_per_s=throughput.whole_run_output_tok_per_s(ordered),
        request_per_s=inside.request_per_s,
        goodput_request_per_s=inside.goodput_request_per_s,
        ttft_ms=latency.distribution(latency.ttft_ms(s) for s in ok),
        ttfo_ms=latency.distribution(latency.ttfo_ms(s) for s in ok),
        tpot_ms=latency.distribution(latency.tpot_ms(s) for s in timed),
        chunk_gap_ms=latency.distribution(gap for s in ok for gap in latency.chunk_gaps_ms(s)),
        e2e_ms=latency.distribution(latency.e2e_ms(s) for s in ok),
        output_tok=latency.distribution(s.output_tok for s in ok),
        prompt_tok=latency.distribution(s.prompt_tok for s in ok),
        spec_verify_ct=counters.verify_ct,
        spec_num_correct_drafts=counters.num_correct_drafts,
        spec_num_proposed_drafts=counters.num_proposed_drafts,
        spec_correct_drafts_histogram=counters.histogram,
        accept_len_tok=tau,
        accept_len_server_tok=acceptance.accept_len_server_tok(
            counters.output_tok, counters.verify_ct
        ),
        accept_at_position=at_position,
        accept_at_position_conditional=acceptance.conditional_at_position(at_position),
        accept_rate=acceptance.accept_rate(counters.num_correct_drafts, counters.verify_ct, depth),
        cycle_ms=inside.cycle_ms,
        cycle_from_gaps_ms=inside.cycle_from_gaps_ms,
        decode_tok_per_s_per_user=decode_tok_per_s,
        residual_share=step.residual_share(inside.decode_tok_per_s, decode_tok_per_s),
        prefill_share=prefill_share,
        queue_share=queue_share,
        limit_tok_per_s=limit_tok_per_s,
        limit_share=_ratio(inside.output_tok_per_s, limit_tok_per_s),
        capacity_rate_per_s=probe.rate_per_s if probe and probe.met else None,
        energy_j_per_output_tok=_ratio(energy.energy_j if energy else None, inside.output_tok),
        energy_coverage=energy.coverage if energy else None,
        cache_hit_ratio=uses.hit_ratio if uses else None,
        client=client,
    )
    findings = check_cell(
        CellFacts(
            cell=cell,
            samples=ordered,
            measured=measured,
            ok=ok,
            series=series,
            window=window,
            counters=counters,
            measurement=measurement,
            client=client,
            effective=effective,
            gpus=gpus,
            simulated=simulated,
            speed=speed,
            unread=unread,
            gpus_unread=gpus_unread,
        )
    )
    return dataclasses.replace(measurement, status=status_of(findings)), findings


def num_steps(effective: EffectiveConfig | None, series: Series) -> int | None:
    """The draft depth, if it was one throughout: None when adaptive, varying or unknown."""
    depth = speculative_setting(effective, "num_steps")
    if not isinstance(depth, int) or speculative_setting(effective, "adaptive"):
        return None
    seen = {
        int(value)
        for readings in series.ranks("sglang:spec_num_steps").values()
        for value in readings.value
    }
    # A gauge that was not set yet reads 0.
    return depth if seen <= {0, depth} else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside:
    """What is taken from the window; all absent without one."""

    rule: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    length_s: float | None = None
    output_tok: float | None = None
    busy_slots_mean: float | None = None
    cut_at_end_ct: int = 0
    output_tok_per_s: float | None = None
    request_per_s: float | None = None
    goodput_request_per_s: float | None = None
    cycle_ms: float | None = None
    cycle_from_gaps_ms: float | None = None
    decode_tok_per_s: float | None = None


def _inside(
    cell: Cell, samples: Sequence[RequestSample], window: Window, ok: Sequence[RequestSample]
) -> _Inside:
    output_tok = tokens_in(samples, window)
    speculative = cell.arm_is_speculative
    timed = () if step.hides_too_many(ok) else samples
    decode = step.decode_in_window(timed, window, speculative=speculative)
    guessed = counts_guessed(samples, window)
    return _Inside(
        rule=f"{window.rule}; {guessed} cut requests had no running counts: equal shares"
        if guessed
        else window.rule,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        length_s=window.length_s,
        output_tok=output_tok,
        busy_slots_mean=busy_slots_mean(cell.load, samples, window),
        cut_at_end_ct=cut_at_end(samples, window),
        output_tok_per_s=_ratio(output_tok, window.length_s),
        request_per_s=throughput.request_per_s(samples, window),
        goodput_request_per_s=throughput.goodput_request_per_s(samples, window, cell.slo),
        cycle_ms=decode.cycle_ms,
        cycle_from_gaps_ms=step.cycle_from_gaps_ms(timed, window, speculative=speculative),
        decode_tok_per_s=decode.tok_per_s_per_user,
    )


def _ratio(total: float | None, divisor: float | None) -> float | None:
    """Their quotient; None when either is absent or the divisor is 0."""
    return None if total is None or not divisor else total / divisor
