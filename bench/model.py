"""The frozen records that the rooms hand to one another; nothing here computes beyond naming.

Scenario edge types live in `bench.scenario`; what is here is what the plan makes of them and what
measuring yields. Units are in the names. A value that was not observed is None, never 0 and never
NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

BASELINE = "baseline"

# ----------------------------------------------------------------------------------- what is asked


class Api(StrEnum):
    """The HTTP API that requests go through."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherTemplate:
    """How a server is started through another program: argv lists with places to fill in.

    A place is `{argv}`, `{env}`, `{name}`, `{port}`, `{local_port}` (of this machine, to forward
    from) or `{term_s}` (docs/launchers.md). A word that is just `{argv}` or `{env}` becomes as
    many words as these have; inside a longer word they are quoted for a shell.

    Attributes:
        kind: `docker`, `ssh`, `srun`, `kubectl` or `template`.
        start: Starts the server; stays in the foreground, or ends with status 0 once it has.
        stop: Ends the server in order.
        force_stop: Ends it for certain and clears up; run last at every stop.
        alive: Ends with status 0, and prints something if and only if the server lives.
        log: Follows its log, where `start` does not print it.
        forward: Makes its port reachable, for as long as it runs.
        environ: Prints the environments of its processes as /proc/PID/environ has them; of
            several, each with the bytes 0, 1 and 0 behind it.
        variable: The words that pass one variable on, `{name}` and `{value}` filled in.
        bind: What the server is given as `--host`.
        base_url: Where bench reaches it.
        gpus_seen: Whether its GPUs are this machine's.
        gpu_watch: Prints its GPUs ten times a second, in nvidia-smi's CSV.
    """

    kind: str
    start: tuple[str, ...]
    stop: tuple[str, ...]
    force_stop: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    variable: tuple[str, ...] = ()
    bind: str = "127.0.0.1"
    base_url: str = "http://127.0.0.1:{port}"
    gpus_seen: Literal["local", "remote"] = "remote"
    gpu_watch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where an API key is read from; never the key itself."""

    kind: Literal["env", "file"]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything that decides what one server is; equal values need no restart (`server_key`).

    Attributes:
        arguments: SGLang's arguments as on its command line, without host and port, model and
            draft paths included.
        environment: Variables set for the server beside the inherited ones, sorted by name.
        launcher: `local` (a command run here), `template` (started through another program),
            `simulated` (the bundled simulator) or `attached` (already running).
        command: The argv before `arguments` of a local launcher, e.g. ("python3", "-m",
            "sglang.launch_server").
        resolve: The command of a Python in which SGLang can be imported, asked before a launch
            what it makes of the arguments; empty: nobody is asked.
        working_dir: Where the command runs; None: bench's own.
        url: Base URL of an attached server, else None.
        template: How a server of the launcher `template` is started.
        exclusive: Attached servers only: whether bench may abort and flush there between cells.
        api_key: Where the key of its requests is read from; None: there is none.
        gpus: How many GPUs the server uses; 0 for a CPU server.
        hardware: Name of the hardware card, if one was named: for simulation and estimates.
        target_card: Name of the target's model card, likewise.
        acceptance: Simulated servers only: name of an acceptance card, or P(at least k drafts
            accepted) for k = 1, 2, …
        simulation_seed: Simulated servers only: seeds launch noise and acceptance.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    launcher: Literal["local", "template", "simulated", "attached"] = "local"
    command: tuple[str, ...] = ()
    resolve: tuple[str, ...] = ()
    working_dir: str | None = None
    url: str | None = None
    template: LauncherTemplate | None = None
    exclusive: bool = False
    api_key: KeySource | None = None
    gpus: int = 0
    hardware: str | None = None
    target_card: str | None = None
    acceptance: str | tuple[float, ...] | None = None
    simulation_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters, always sent: a server's own defaults come from the model's files."""

    temperature: float
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the requests of a cell are.

    Attributes:
        name: Its name in the scenario.
        api: The API its requests use.
        dataset: `generated`, `jsonl` or `sharegpt`.
        dataset_path: The file of `jsonl` and `sharegpt`.
        categories: Categories of the generated prompts, empty for all.
        input_tok: Wanted prompt length in tokens (by the 4-bytes-a-token estimate unless a
            tokenizer is given); None: as they come.
        max_output_tok: The cap on generated tokens.
        sampling: Sent with every request.
        ignore_eos: Whether generation runs past the end of text to the cap; marked wherever
            results appear.
        chat_template_kwargs: As (key, value) pairs, e.g. (("thinking", False),).
        cache: `cold`, `primed` or `shared-prefix`.
        shared_prefix_share: Share of the prompt that is the same in all requests; only for
            `shared-prefix`.
        tokenizer_path: A tokenizer.json to measure prompt lengths and to count outputs that a
            server does not count.
        store_text: Whether output text is kept; else its hash only.
    """

    name: str
    api: Api
    dataset: Literal["generated", "jsonl", "sharegpt"]
    dataset_path: str | None = None
    categories: tuple[str, ...] = ()
    input_tok: int | None = None
    max_output_tok: int
    sampling: Sampling
    ignore_eos: bool = False
    chat_template_kwargs: tuple[tuple[str, bool | int | float | str], ...] = ()
    cache: Literal["cold", "primed", "shared-prefix"] = "cold"
    shared_prefix_share: float = 0.0
    tokenizer_path: str | None = None
    store_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How requests arrive.

    Attributes:
        kind: `closed` (a fixed number of slots, each always busy), `open` (a schedule of arrivals)
            or `capacity` (bisection over open rates for the highest that meets the limits).
        concurrency: Closed only: the number of slots.
        rate_per_s: Open only: mean arrivals a second.
        gaps: Open and capacity: how arrivals are spaced.
        gap_cv: Gamma gaps only: coefficient of variation (1 is Poisson).
        min_rate_per_s: Capacity only: the lowest rate tried.
        max_rate_per_s: Capacity only: the highest rate tried.
        probes: Capacity only: how many rates are tried.
    """

    kind: Literal["closed", "open", "capacity"]
    concurrency: int | None = None
    rate_per_s: float | None = None
    gaps: Literal["poisson", "constant", "gamma"] = "poisson"
    gap_cv: float = 1.0
    min_rate_per_s: float | None = None
    max_rate_per_s: float | None = None
    probes: int = 6

    @property
    def label(self) -> str:
        """`8` for a concurrency, `rate=4` for a rate, `capacity` for the search."""
        if self.kind == "closed":
            return str(self.concurrency)
        if self.kind == "open":
            return f"rate={self.rate_per_s:g}"
        return "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits a request must meet to count as goodput; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Every time-out there is, in seconds of the clock; passing one fails request or launch."""

    ready_s: float = 2700.0
    request_s: float = 600.0
    connect_s: float = 10.0
    drain_s: float = 120.0
    term_s: float = 30.0
    scrape_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement to make: arm × workload × load × pair.

    Attributes:
        cell_id: Hash of all that was asked and can change the numbers.
        comparison_key: The same hash without arm and pair: equal in the cells that are compared.
        requests: How many requests are sent after warm-up, fixed in advance and equal in every arm
            ("same work").
        warmup_requests: How many warm-up requests come before them (closed: a whole number a
            slot).
        steady_s: The least length of a window that is not called too short, in seconds.
        seed: The scenario's seed; request i of this workload uses `request_seed(seed, workload,
            i)`, never arm or pair.
        arm_is_speculative: Whether the arm's arguments turn speculation on.
    """

    cell_id: str
    comparison_key: str
    arm: str
    workload: Workload
    load: Load
    pair: int
    requests: int
    warmup_requests: int
    steady_s: float
    seed: int
    slo: Slo = field(default_factory=Slo)
    timeouts: Timeouts = field(default_factory=Timeouts)
    arm_is_speculative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of one server and the cells measured in it; the unit of replication.

    Attributes:
        ordinal: 0-based place in the plan.
        server_key: Hash of `server`: equal keys need no restart.
        estimated_s: What starting and measuring is expected to take, in seconds of the world.
        cells_s: What each of its cells is expected to take of that; the rest is its start.
    """

    ordinal: int
    arm: str
    pair: int
    server: ServerConfig
    server_key: str
    cells: tuple[Cell, ...]
    estimated_s: float
    cells_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Launches in an order such that stopping at any time leaves the most useful answer.

    Attributes:
        practical_margin: Speedups within ± this share of 1 are SAME (0.02 is 2 %).
        simulated: Whether the servers are simulated: then every output says so.
        speed: The clock's speed, 1 unless simulated.
        findings: What is worth knowing of the arms before anything is measured.
    """

    scenario: str
    question: str
    launches: tuple[Launch, ...]
    arms: tuple[str, ...]
    pairs: int
    simulated: bool
    speed: int
    practical_margin: float
    gpus: int
    findings: tuple[Finding, ...] = ()


# -------------------------------------------------------------------------------- what is observed


class RequestStatus(StrEnum):
    """How a request ended. Only OK counts tokens; every other kind stays in the row count."""

    OK = "ok"
    REFUSED = "refused"  # no connection could be made
    HTTP_ERROR = "http_error"  # an HTTP status other than 200
    SERVER_ERROR_IN_STREAM = "server_error_in_stream"  # an error event inside an HTTP 200
    INCOMPLETE_STREAM = (
        "incomplete_stream"  # the stream ended without [DONE] or without a finish reason
    )
    MALFORMED_STREAM = "malformed_stream"  # bytes that are not what the API promises
    ABORTED = "aborted"  # finish reason "abort"
    EMPTY_OUTPUT = "empty_output"  # ended as it should, with no generated token
    TIMEOUT = "timeout"  # our request time-out passed
    DISCONNECTED = "disconnected"  # the connection broke mid-way
    CANCELLED = "cancelled"  # bench stopped it: end of an open-loop cell's drain, Ctrl-C
    WORKER_LOST = "worker_lost"  # the load worker died with it


class TokenSource(StrEnum):
    """Who counted the output tokens."""

    SERVER = "server"
    RETOKENIZED = "retokenized"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """One request, in raw integers; times are clock ns, lists are per token-bearing event.

    Attributes:
        cell_id: The cell it belongs to.
        index: 0-based place in the cell's order of requests, warm-up included (warm-up comes
            first).
        phase: `warmup` or `measure`.
        slot: Closed loop: the slot that sent it, else None.
        prompt_id: Which prompt of the dataset.
        prompt_sha256: Hash of what was sent as prompt, salt included: equal across arms when the
            work was the same.
        seed: The sampling seed sent.
        due_ns: When the schedule wanted it sent.
        sent_ns: When its bytes were handed to the socket; None: never sent.
        first_byte_ns: First byte of the response; None: none came.
        ended_ns: Last byte of the stream, or the moment it failed.
        status: How it ended.
        error_message: What the server or the socket said, redacted and cut to 500 characters; None
            when ok.
        http_status: None when no response came.
        finish_reason: `stop`, `length`, …; None when none arrived.
        prompt_tok: The server's count of prompt tokens.
        cached_tok: Prompt tokens served from the prefix cache; None when the server does not say.
        output_tok: The server's own count of generated tokens (reasoning included), or the
            tokenizer's; None: unknown.
        reasoning_tok: The server's count of reasoning tokens; None when it does not say.
        token_source: Who counted; None when nobody did.
        event_ns: Clock time of each event that carried at least one generated token.
        event_tok: Cumulative generated tokens after each of these events; None where the server
            gave no running count.
        first_visible_ns: First event with visible (non-reasoning) output.
        tokens_before_first_event: Whether more tokens than the first event could have carried were
            generated before it (reasoning hidden by the server): then no decode speed is given.
            None: cannot be told.
        read_ct: Transport reads that carried this response's body.
        text_sha256: Hash of the visible text; None when failed.
        text_block_hashes: 64-bit hashes of the text's prefixes at every 64 characters: where two
            outputs part is found without keeping either.
        text: The visible text, only with `store_text`.
        text_chars: Length of the visible text.
        bigram_ct: Word pairs in the output text.
        distinct_bigram_ct: Distinct ones among them; few of many is a repetition loop.
        spec_verify_ct: Verify steps the request took part in (SGLang meta_info; None: none
            reported).
        spec_num_correct_drafts: Accepted draft tokens over these steps, bonus not counted.
        spec_num_proposed_drafts: Proposed draft tokens (tree nodes when topk > 1).
        spec_correct_drafts_histogram: Element k: how many steps accepted exactly k drafts.
        num_retractions: How often the server threw it out of the batch for want of KV memory.
        queue_ns: Time in the server's queue, by its own account.
        dp_rank: Which data-parallel rank served it.
    """

    cell_id: str
    index: int
    phase: Literal["warmup", "measure"]
    slot: int | None
    prompt_id: str
    prompt_sha256: str
    seed: int
    due_ns: int
    sent_ns: int | None
    first_byte_ns: int | None = None
    ended_ns: int
    status: RequestStatus
    error_message: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    prompt_tok: int | None = None
    cached_tok: int | None = None
    output_tok: int | None = None
    reasoning_tok: int | None = None
    token_source: TokenSource | None = None
    event_ns: tuple[int, ...] = ()
    event_tok: tuple[int, ...] | None = None
    first_visible_ns: int | None = None
    tokens_before_first_event: bool | None = None
    read_ct: int = 0
    text_sha256: str | None = None
    text_block_hashes: tuple[int, ...] = ()
    text: str | None = None
    text_chars: int = 0
    bigram_ct: int = 0
    distinct_bigram_ct: int = 0
    spec_verify_ct: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_num_proposed_drafts: int | None = None
    spec_correct_drafts_histogram: tuple[int, ...] | None = None
    num_retractions: int | None = None
    queue_ns: int | None = None
    dp_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryPoint:
    """One reading of one series.

    Attributes:
        t_ns: Clock time of the reading (for scrapes: when the answer arrived).
        source: `server` (the /metrics scrape), `gpu` (NVML) or `client` (the load worker itself).
        name: Metric name with its unit, e.g. `sglang:num_running_reqs`, `power_w`, `loop_lag_ms`.
        rank: Data-parallel rank or GPU index; None where there is just one.
        value: None when the source had no value (an unsupported counter, a NaN sample).
    """

    t_ns: int
    source: Literal["server", "gpu", "client"]
    name: str
    rank: int | None = None
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStats:
    """How the load worker itself did during one cell; milliseconds are of the clock.

    Attributes:
        send_late_p50_ms: Median of sent − due.
        send_late_p99_ms: 99th percentile of the same.
        loop_lag_p99_ms: 99th percentile of how late the worker's event loop ran a timer.
        cpu_share: CPU seconds of the worker over wall seconds (1.0 is one core).
        events_per_s: Token-bearing events handled a second of the world.
        max_in_flight: Highest number of requests in flight at once.
        workers: Worker processes.
    """

    send_late_p50_ms: float | None
    send_late_p99_ms: float | None
    loop_lag_p99_ms: float | None
    cpu_share: float | None
    events_per_s: float | None
    max_in_flight: int
    workers: int = 1


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
    CONCURRENCY_NOT_REACHED = "concurrency_not_reached"
    SERVER_QUEUED = "server_queued"
    SERVER_RETRACTED = "server_retracted"
    KV_FULL = "kv_full"
    FOREIGN_TRAFFIC = "foreign_traffic"
    WINDOW_TOO_SHORT = "window_too_short"
    NO_WINDOW = "no_window"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """What a server says it is, read back after its start; the arm's identity.

    Attributes:
        speculative: Resolved speculative settings (`algorithm`, `num_steps`, `eagle_topk`,
            `num_draft_tokens`, …); None values are settings the server leaves unset.
        other: Every other resolved server argument, as text, for telling non-speculative
            differences.
        version: The engine's version.
        engine: `sglang`.
        simulated: Whether the server is the bundled simulator (it says so itself).
        max_total_num_tokens: KV capacity in tokens.
        decode_graph_batch_sizes: Captured CUDA-graph batch sizes; None when unknown, empty when
            none.
    """

    speculative: tuple[tuple[str, str | int | float | bool | None], ...]
    other: tuple[tuple[str, str], ...]
    version: str | None
    engine: str = "sglang"
    simulated: bool = False
    max_total_num_tokens: int | None = None
    decode_graph_batch_sizes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """What became of one launch; stored in the manifest.

    Attributes:
        launch_id: `L00-baseline-p0`: ordinal, arm, pair (a resumed launch gets a suffix).
        argv: The whole command line as started, secrets redacted; empty for an attached server.
        started_ns: When the process was started.
        ready_ns: When the first real generation had come back; None: never.
        stopped_ns: When it was gone and its port closed; None: still running or attached.
        exit_code: Its exit code; negative for a signal; None when unknown or attached.
        effective: What the server said of itself; None when it never got ready.
        log_file: Name of the log in the run's folder; None: attached.
        failure: Why it failed, one line; None when it did not.
    """

    launch_id: str
    ordinal: int
    arm: str
    pair: int
    server_key: str
    argv: tuple[str, ...]
    started_ns: int
    ready_ns: int | None = None
    stopped_ns: int | None = None
    exit_code: int | None = None
    effective: EffectiveConfig | None = None
    log_file: str | None = None
    failure: str | None = None
