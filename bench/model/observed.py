"""What is observed while measuring: requests, telemetry, the client, the launch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


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
        events_per_read: Token-bearing events a transport read: events of one read share its time.
        in_flight_mean: Requests in flight on average from the first send to the last end.
        second_reader_ct: Responses that aiohttp's own reader had to read (compressed by a proxy,
            say): their time stamps are as good, but cost more.
        resent_ct: Requests that were sent twice, because the server had hung up on the connection
            while they were on their way to it; they are timed from the second sending.
        proven_event_per_s: How many events a second the self-test has proved this client good for
            on this machine; None: it was not run.
    """

    send_late_p50_ms: float | None
    send_late_p99_ms: float | None
    loop_lag_p99_ms: float | None
    cpu_share: float | None
    events_per_s: float | None
    max_in_flight: int
    workers: int = 1
    events_per_read: float | None = None
    in_flight_mean: float | None = None
    second_reader_ct: int | None = None
    resent_ct: int | None = None
    proven_event_per_s: float | None = None


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
        load_s: What loading weights took of that by its log, target and draft, in seconds; None:
            its log does not tell.
        capture_s: The same of capturing CUDA graphs.
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
    load_s: float | None = None
    capture_s: float | None = None
