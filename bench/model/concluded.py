"""What follows from it: findings, a cell's measurement, arms compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The records are read back by their type hints, which must resolve.
from bench.model.observed import ClientStats  # noqa: TC001


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Percentiles of one quantity over requests or events; its field names the unit."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    n: int


class FindingKind(StrEnum):
    """The closed list of reasons for distrust, each with advice (`bench.metrics.ADVICE`)."""

    CLIENT_LATE = "client_late"
    CLIENT_SATURATED = "client_saturated"
    CLIENT_NOT_PROVEN = "client_not_proven"
    READS_COALESCED = "reads_coalesced"
    REQUESTS_RESENT = "requests_resent"
    CONCURRENCY_NOT_REACHED = "concurrency_not_reached"
    SERVER_QUEUED = "server_queued"
    SERVER_RETRACTED = "server_retracted"
    KV_FULL = "kv_full"
    FOREIGN_TRAFFIC = "foreign_traffic"
    WINDOW_TOO_SHORT = "window_too_short"
    NO_WINDOW = "no_window"
    FEW_REQUESTS = "few_requests"
    DRIFTING = "drifting"
    CACHE_NOT_AS_STATED = "cache_not_as_stated"
    ERROR_RATE = "error_rate"
    THROTTLED = "throttled"
    OUTPUT_DEGENERATE = "output_degenerate"
    OUTPUT_DIVERGES = "output_diverges"
    COUNTERS_DISAGREE = "counters_disagree"
    STREAM_COALESCED = "stream_coalesced"
    TOKENS_HIDDEN = "tokens_hidden"
    TOKENS_RETOKENIZED = "tokens_retokenized"
    TOKENS_UNKNOWN = "tokens_unknown"
    WORK_NOT_THE_SAME = "work_not_the_same"
    LENGTHS_CENSORED = "lengths_censored"
    IGNORE_EOS = "ignore_eos"
    SERVER_RESTARTED = "server_restarted"
    CONFIG_NOT_AS_ASKED = "config_not_as_asked"
    ARGUMENTS_ADVICE = "arguments_advice"
    ARGUMENTS_DISAGREE = "arguments_disagree"
    ARMS_ALIKE = "arms_alike"
    CONFIG_DIFFERS_BESIDE_SPECULATION = "config_differs_beside_speculation"
    NO_CUDA_GRAPH = "no_cuda_graph"
    ACCEPTANCE_MISSING = "acceptance_missing"
    ACCEPT_COLLAPSED = "accept_collapsed"
    CYCLE_DISAGREES = "cycle_disagrees"
    GPU_SPIN_HANG = "gpu_spin_hang"
    TELEMETRY_MISSING = "telemetry_missing"
    NO_REPEATS = "no_repeats"
    SIMULATED = "simulated"
    SIMULATION_SPEED = "simulation_speed"
    SIMULATION_LATE = "simulation_late"
    LAUNCH_SPLIT = "launch_split"
    LAUNCH_FAILED = "launch_failed"
    ENVIRONMENT_LOST = "environment_lost"
    ENVIRONMENT_NOT_PROVED = "environment_not_proved"
    ACCESS_REFUSED = "access_refused"
    DIFFERENT_MACHINES = "different_machines"
    BUDGET_DROPPED = "budget_dropped"


class Severity(StrEnum):
    """What a finding does to its cell: a note leaves it VALID, the others set its status."""

    NOTE = "note"
    SUSPECT = "suspect"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason for distrust (or a note), with what was found and what to do.

    Attributes:
        cell_id: The cell it concerns; None: the whole run.
        arm: The arm it concerns; None: all.
        message: What was found, with figures.
        advice: What to do.
    """

    kind: FindingKind
    severity: Severity
    message: str
    advice: str
    cell_id: str | None = None
    arm: str | None = None


class CellStatus(StrEnum):
    """Whether a cell's numbers may be used."""

    VALID = "VALID"
    SUSPECT = "SUSPECT"
    INVALID = "INVALID"


class Verdict(StrEnum):
    """The answer of one comparison."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One cell's derived numbers, defined in docs/metrics.md; a row of measurements.parquet."""

    cell_id: str
    comparison_key: str
    launch_id: str
    arm: str
    workload: str
    load: str
    pair: int
    status: CellStatus
    simulated: bool
    # counts over the cell (warm-up left out)
    request_ct: int
    ok_ct: int
    failed_ct: int
    failures_by_kind: tuple[tuple[str, int], ...]
    output_tok_sum: int
    # the window
    window_rule: str
    window_start_ns: int | None
    window_end_ns: int | None
    window_s: float | None
    window_output_tok: float | None
    window_busy_slots_mean: float | None
    requests_cut_at_end_ct: int
    # throughput
    output_tok_per_s: float | None
    output_tok_per_s_per_gpu: float | None
    output_tok_per_s_per_user: float | None
    whole_run_output_tok_per_s: float | None
    request_per_s: float | None
    goodput_request_per_s: float | None
    # latency
    ttft_ms: Distribution | None
    ttfo_ms: Distribution | None
    tpot_ms: Distribution | None
    chunk_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    output_tok: Distribution | None
    prompt_tok: Distribution | None
    # acceptance
    spec_verify_ct: int | None
    spec_num_correct_drafts: int | None
    spec_num_proposed_drafts: int | None
    spec_correct_drafts_histogram: tuple[int, ...] | None
    accept_len_tok: float | None
    accept_len_server_tok: float | None
    accept_at_position: tuple[float, ...] | None
    accept_at_position_conditional: tuple[float, ...] | None
    accept_rate: float | None
    # a step
    cycle_ms: float | None
    cycle_from_gaps_ms: float | None
    decode_tok_per_s_per_user: float | None
    residual_share: float | None
    prefill_share: float | None
    queue_share: float | None
    limit_tok_per_s: float | None
    limit_share: float | None
    capacity_rate_per_s: float | None
    # hardware
    energy_j_per_output_tok: float | None
    energy_coverage: float | None
    cache_hit_ratio: float | None
    # the client
    client: ClientStats | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm against the baseline at one workload and load.

    Attributes:
        metric: What was compared: `output_tok_per_s` (closed), `inverse_mean_tpot` (open) or
            `capacity_rate_per_s`.
        speedup: Geometric mean over pairs of arm / baseline; None without a usable pair.
        ci95_low: Lower end of the 95 % t-interval on the log ratios; None with fewer than two
            pairs.
        ci95_high: Its upper end.
        pairs: Pairs of launches that entered.
        degrees_of_freedom: Of the interval; None without one.
        verdict: None without repeats.
        more_pairs_needed: For UNDECIDED: how many more pairs would decide at the spread seen.
        break_even_accept_len_tok: cycle_ms / baseline step_ms: speculation pays only above it.
        accept_len_tok: The arm's, pooled over its pairs.
        cycle_ms: The arm's, pooled.
        baseline_step_ms: The baseline's, pooled.
        baseline_value: Mean of the compared metric over the baseline's cells that entered.
        arm_value: The same for the arm.
        status: The worst status of the cells that entered, or of those that kept it from being
            made.
        reason: Why there is no speedup or no verdict; None when there is one.
        config_differences: Non-speculative resolved server values that differ: (name, baseline,
            arm).
        same_server_as: Arms that were asked for something else and whose server was the same, by
            its own account: what differs between them is noise.
    """

    arm: str
    workload: str
    load: str
    metric: str
    speedup: float | None
    ci95_low: float | None
    ci95_high: float | None
    pairs: int
    degrees_of_freedom: float | None
    verdict: Verdict | None
    more_pairs_needed: int | None
    break_even_accept_len_tok: float | None
    accept_len_tok: float | None
    cycle_ms: float | None
    baseline_step_ms: float | None
    baseline_value: float | None
    arm_value: float | None
    status: CellStatus
    reason: str | None
    config_differences: tuple[tuple[str, str, str], ...] = ()
    same_server_as: tuple[str, ...] = ()
