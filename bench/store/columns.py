"""What is on disk: every table and every column, in one place, with its meaning.

The three parquet tables are made from the records of `bench.model`; the columns here are their
fields, in their order, but for the two event lists, which are stored as differences. The other
tables are views, which `bench.store.frames` makes from manifests. docs/results.md lists all of
this for readers (a test keeps it complete).
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1
"""Of manifest and tables together; older runs go through `bench.store.upgrade`, newer are refused.

History:
    1 (2026-11): the first.
"""

DISTRIBUTION_FIELDS = ("mean", "p50", "p90", "p95", "p99", "n")


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Its name, with the unit.
        kind: A key of `bench.store.schema.arrow_types()`; a trailing `?`: it may be null.
        doc: What it means, in one line.
    """

    name: str
    kind: str
    doc: str

    @property
    def optional(self) -> bool:
        """Whether a row may have no value here."""
        return self.kind.endswith("?")

    @property
    def base_kind(self) -> str:
        """The kind without the mark of nullability."""
        return self.kind.removesuffix("?")


SAMPLES = (
    Column("cell_id", "text", "The cell the request belongs to."),
    Column("index", "int64", "0-based place in the cell's order; warm-up comes first."),
    Column("phase", "text", "`warmup` or `measure`."),
    Column("slot", "int64?", "Closed loop: the slot that sent it."),
    Column("prompt_id", "text", "Which prompt of the dataset."),
    Column("prompt_sha256", "text", "Hash of what was sent: equal across arms for the same work."),
    Column("seed", "int64", "The sampling seed sent."),
    Column("due_ns", "int64", "When the schedule wanted it sent."),
    Column("sent_ns", "int64?", "When its bytes were handed to the socket; null: never sent."),
    Column("first_byte_ns", "int64?", "First byte of the response; null: none came."),
    Column("ended_ns", "int64", "Last byte of the stream, or the moment it failed."),
    Column("status", "text", "How it ended: `ok`, or the kind of failure."),
    Column("error_message", "text?", "What server or socket said, redacted; null when ok."),
    Column("http_status", "int64?", "Null when no response came."),
    Column("finish_reason", "text?", "`stop`, `length`, …; null when none arrived."),
    Column("prompt_tok", "int64?", "The server's count of prompt tokens."),
    Column("cached_tok", "int64?", "Prompt tokens from the prefix cache; null: not told."),
    Column("output_tok", "int64?", "Generated tokens, reasoning included; see `token_source`."),
    Column("reasoning_tok", "int64?", "The server's count of reasoning tokens; null: not told."),
    Column("token_source", "text?", "Who counted: `server` or `retokenized`; null: nobody."),
    Column(
        "event_ns_delta",
        "list<int64>",
        "Times of the events with generated tokens: the first after `sent_ns` (after 0 when "
        "never sent), each other after the one before.",
    ),
    Column(
        "event_tok_delta",
        "list<int64>?",
        "Generated tokens in each of these events; null: the server gave no running count.",
    ),
    Column("first_visible_ns", "int64?", "First event with visible (non-reasoning) output."),
    Column(
        "tokens_before_first_event",
        "bool?",
        "Whether tokens were generated unseen before the first event; null: cannot be told.",
    ),
    Column("read_ct", "int64", "Transport reads that carried the response's body."),
    Column("text_sha256", "text?", "Hash of the visible text; null when failed."),
    Column("text_block_hashes", "list<uint64>", "Hashes of its prefixes at every 64 characters."),
    Column("text", "text?", "The visible text, only with `store_text: true`."),
    Column("text_chars", "int64", "Length of the visible text in characters."),
    Column("bigram_ct", "int64", "Word pairs in the output text."),
    Column("distinct_bigram_ct", "int64", "Distinct ones among them; few of many: a loop."),
    Column("spec_verify_ct", "int64?", "Verify steps it took part in; null: none reported."),
    Column(
        "spec_num_correct_drafts", "int64?", "Draft tokens accepted in them, bonus not counted."
    ),
    Column(
        "spec_num_proposed_drafts", "int64?", "Draft tokens proposed (tree nodes if topk > 1)."
    ),
    Column(
        "spec_correct_drafts_histogram",
        "list<int64>?",
        "Element k: steps that accepted exactly k.",
    ),
    Column(
        "num_retractions",
        "int64?",
        "How often it lost its place in the batch for want of KV memory.",
    ),
    Column("queue_ns", "int64?", "Time in the server's queue, by its own account."),
    Column("dp_rank", "int64?", "Which data-parallel rank served it."),
)

TELEMETRY = (
    Column("launch_id", "text", "The launch during which it was read."),
    Column("cell_id", "text", "The cell during which it was read."),
    Column("t_ns", "int64", "When it was read (for scrapes: when the answer arrived)."),
    Column("source", "text", "`server` (/metrics), `gpu` (NVML) or `client` (the load worker)."),
    Column("name", "text", "Metric name, e.g. `sglang:num_running_reqs`, `power_w`."),
    Column("rank", "int64?", "Data-parallel rank or GPU index; null where there is just one."),
    Column("value", "float64?", "Null when the source had no value."),
)

MEASUREMENTS = (
    Column("cell_id", "text", "Hash of all that was asked and can change the numbers."),
    Column("comparison_key", "text", "The same without arm and pair: equal in compared cells."),
    Column("launch_id", "text", "The launch it was measured in (manifest: `launches`)."),
    Column("arm", "text", "The arm; `baseline` is without speculation."),
    Column("workload", "text", "Name of the workload."),
    Column("load", "text", "`8` (concurrency), `rate=4` or `capacity`."),
    Column("pair", "int64", "0-based pair of launches."),
    Column("status", "text", "`VALID`, `SUSPECT` or `INVALID`; the findings say why."),
    Column(
        "simulated", "bool", "Whether the server was simulated: then no number is of any hardware."
    ),
    Column("request_ct", "int64", "Requests, failed ones included, warm-up left out."),
    Column("ok_ct", "int64", "Those that ended as the protocol says."),
    Column("failed_ct", "int64", "Those that did not."),
    Column("failures_by_kind", "map<text,int64>", "Failed requests by kind."),
    Column("output_tok_sum", "int64", "Generated tokens of the ok requests."),
    Column("window_rule", "text", "How the window was found."),
    Column("window_start_ns", "int64?", "Its start; null: there is no window."),
    Column("window_end_ns", "int64?", "Its end."),
    Column("window_s", "float64?", "Its length in seconds."),
    Column("window_output_tok", "float64?", "Tokens inside it, interpolated at the edges."),
    Column("window_busy_slots_mean", "float64?", "Mean number of busy slots over it."),
    Column("requests_cut_at_end_ct", "int64", "Requests that its end cut."),
    Column("output_tok_per_s", "float64?", "Tokens inside the window / its length."),
    Column("output_tok_per_s_per_gpu", "float64?", "The same a GPU of the server."),
    Column("output_tok_per_s_per_user", "float64?", "The same a busy slot."),
    Column("whole_run_output_tok_per_s", "float64?", "All tokens / (first send to last token)."),
    Column("request_per_s", "float64?", "Requests ended a second of the window."),
    Column("goodput_request_per_s", "float64?", "Those that met all stated limits."),
    Column("ttft_ms", "distribution?", "Start to the first event with a generated token."),
    Column("ttfo_ms", "distribution?", "Start to the first event with visible output."),
    Column("tpot_ms", "distribution?", "Time a token after the first event."),
    Column("chunk_gap_ms", "distribution?", "Gap between events: not inter-token latency."),
    Column("e2e_ms", "distribution?", "Start to the last byte."),
    Column("output_tok", "distribution?", "Generated tokens a request."),
    Column("prompt_tok", "distribution?", "Prompt tokens a request."),
    Column("spec_verify_ct", "int64?", "Verify steps, summed over requests."),
    Column("spec_num_correct_drafts", "int64?", "Accepted draft tokens, likewise."),
    Column("spec_num_proposed_drafts", "int64?", "Proposed draft tokens, likewise."),
    Column(
        "spec_correct_drafts_histogram",
        "list<int64>?",
        "Element k: steps that accepted exactly k.",
    ),
    Column("accept_len_tok", "float64?", "1 + correct drafts / verify steps."),
    Column("accept_len_server_tok", "float64?", "Completion tokens / verify steps."),
    Column("accept_at_position", "list<float64>?", "Element k-1: P(at least k accepted)."),
    Column("accept_at_position_conditional", "list<float64>?", "The same, given that k-1 were."),
    Column("accept_rate", "float64?", "Share of the depth used: correct / (verify * num_steps)."),
    Column("cycle_ms", "float64?", "Decode time / verify steps (baseline: / tokens)."),
    Column("cycle_from_gaps_ms", "float64?", "The same as the median gap between events."),
    Column("decode_tok_per_s_per_user", "float64?", "Accept length / cycle."),
    Column("residual_share", "float64?", "What that leaves unexplained of the decode speed."),
    Column("prefill_share", "float64?", "Share of end-to-end time spent in prefill."),
    Column("queue_share", "float64?", "Share of it spent in the server's queue."),
    Column("limit_tok_per_s", "float64?", "What memory bandwidth would allow."),
    Column("limit_share", "float64?", "Share of that reached."),
    Column(
        "capacity_rate_per_s",
        "float64?",
        "Capacity cells: the highest rate of arrivals that met every limit.",
    ),
    Column("energy_j_per_output_tok", "float64?", "GPU energy a generated token in the window."),
    Column("energy_coverage", "float64?", "Share of the window with energy readings."),
    Column("cache_hit_ratio", "float64?", "Prompt tokens from the prefix cache / all."),
    Column("client", "client?", "How the load worker itself did."),
)

CLIENT = (
    Column("send_late_p50_ms", "float64?", "Median of sent - due."),
    Column("send_late_p99_ms", "float64?", "99th percentile of the same."),
    Column("loop_lag_p99_ms", "float64?", "99th percentile of the event loop's lateness."),
    Column("cpu_share", "float64?", "CPU seconds over wall seconds; 1.0 is one core."),
    Column("events_per_s", "float64?", "Token-bearing events a second of the world."),
    Column("max_in_flight", "int64", "Highest number of requests in flight at once."),
    Column("workers", "int64", "Worker processes."),
    Column("events_per_read", "float64?", "Events a transport read: these share a time stamp."),
    Column("in_flight_mean", "float64?", "Requests in flight on average, first send to last end."),
    Column("second_reader_ct", "int64?", "Responses that aiohttp's own reader had to read."),
    Column("resent_ct", "int64?", "Requests sent twice, as the server hung up unannounced."),
    Column("proven_event_per_s", "float64?", "What the self-test proved the client good for."),
)

RUNS = (
    Column("question", "text", "What the scenario asks."),
    Column("speed", "int64", "The clock's speed: 1 but for simulations."),
    Column("started_at", "timestamp", "When the run began, UTC."),
    Column("finished_at", "timestamp?", "When it was published, UTC."),
    Column("cell_ct", "int64", "Cells measured."),
    Column("planned_cell_ct", "int64", "Cells planned."),
    Column("launch_ct", "int64", "Launches made, failed ones included."),
    Column("specdyno_version", "text", "The version that measured."),
    Column("path", "text", "The run's folder."),
)

COMPARISONS = (
    Column("arm", "text", "The arm that is compared with the baseline."),
    Column("workload", "text", "Name of the workload."),
    Column("load", "text", "`8` (concurrency), `rate=4` or `capacity`."),
    Column("metric", "text", "`output_tok_per_s`, `inverse_mean_tpot` or `capacity_rate_per_s`."),
    Column("speedup", "float64?", "Geometric mean over pairs of arm / baseline."),
    Column("ci95_low", "float64?", "Lower end of its 95 % interval; null below two pairs."),
    Column("ci95_high", "float64?", "Its upper end."),
    Column("pairs", "int64", "Pairs of launches that entered."),
    Column("degrees_of_freedom", "float64?", "Of the interval."),
    Column("verdict", "text?", "`FASTER`, `SLOWER`, `SAME`, `UNDECIDED`; null: no repeats."),
    Column("more_pairs_needed", "int64?", "UNDECIDED: how many more would decide."),
    Column("break_even_accept_len_tok", "float64?", "Speculation pays only above this."),
    Column("accept_len_tok", "float64?", "The arm's, pooled over its pairs."),
    Column("cycle_ms", "float64?", "The arm's, pooled."),
    Column("baseline_step_ms", "float64?", "The baseline's, pooled."),
    Column("baseline_value", "float64?", "Mean of the metric over the baseline's cells."),
    Column("arm_value", "float64?", "The same for the arm."),
    Column("status", "text", "The worst status of the cells that entered or should have."),
    Column("reason", "text?", "Why there is no speedup or no verdict."),
    Column("config_differences", "differences", "Other server values that differ."),
    Column(
        "same_server_as",
        "list<text>",
        "Arms that asked for something else and got the same server: their difference is noise.",
    ),
)

FINDINGS = (
    Column("kind", "text", "One of a closed list of reasons for distrust."),
    Column("severity", "text", "`note` changes nothing; `suspect` and `invalid` set the status."),
    Column("message", "text", "What was found, with figures."),
    Column("advice", "text", "What to do."),
    Column("cell_id", "text?", "The cell it concerns; null: the whole run."),
    Column("arm", "text?", "The arm it concerns; null: all."),
)

IDENTITY = (
    Column("run_id", "text", "The run the row is of."),
    Column("scenario", "text", "The run's scenario."),
    Column("simulated", "bool", "Whether simulated servers were measured."),
)
"""Columns in front of every DataFrame; not in the files, where the run's folder says it."""

ENGINE = (
    Column("engine", "text?", "The engine that was measured; null when no launch told."),
    Column("engine_version", "text?", "Its version."),
)
"""Columns that follow `IDENTITY` where a row is of one launch or, in `runs`, of the first."""

CELL_KEYS = (
    Column("launch_id", "text?", "The launch of the row's cell."),
    Column("arm", "text?", "The arm of the row's cell."),
    Column("workload", "text?", "Its workload."),
    Column("load", "text?", "Its load."),
    Column("pair", "int64?", "Its pair."),
)
"""Columns that follow these in the DataFrames of samples and telemetry."""

STORED_TABLES = {"samples": SAMPLES, "telemetry": TELEMETRY, "measurements": MEASUREMENTS}
"""The parquet files of a run, by name."""
