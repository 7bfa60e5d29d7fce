"""Small runs for the tests of the store: every value follows from an index."""

from dataclasses import replace

from bench.clock import WallAnchor
from bench.model import (
    Api,
    Cell,
    CellStatus,
    ClientStats,
    Comparison,
    Distribution,
    EffectiveConfig,
    Finding,
    FindingKind,
    Launch,
    LaunchRecord,
    Load,
    Measurement,
    Plan,
    RequestSample,
    RequestStatus,
    Sampling,
    ServerConfig,
    Severity,
    TelemetryPoint,
    TokenSource,
    Verdict,
    Workload,
)
from bench.store import create_run, new_manifest

SCENARIO_TEXT = "name: demo\nquestion: Does it pay?  # µ\n"
WORKLOAD = Workload(
    name="chat",
    api=Api.CHAT,
    dataset="generated",
    max_output_tok=32,
    sampling=Sampling(temperature=0.0),
)
RUN_ID = "20261129T160346Z-demo-1a2b3c"


def cell(index: int, *, arm: str = "baseline", pair: int = 0) -> Cell:
    return Cell(
        cell_id=f"c{index:04d}",
        comparison_key=f"k{index % 2}",
        arm=arm,
        workload=WORKLOAD,
        load=Load(kind="closed", concurrency=2**index if index < 8 else index),
        pair=pair,
        requests=4,
        warmup_requests=2,
        steady_s=1.0,
        seed=7,
    )


def launch_id(ordinal: int, arm: str = "baseline") -> str:
    return f"L{ordinal:02d}-{arm}-p0"


def plan(cells: int = 4) -> Plan:
    """Two launches: baseline has the even cells, eagle the odd ones."""
    arms = ("baseline", "eagle")
    return Plan(
        scenario="demo",
        question="Does it pay?",
        launches=tuple(
            Launch(
                ordinal=ordinal,
                arm=arm,
                pair=0,
                server=ServerConfig(arguments=("--api-key", "abc")),
                server_key=f"s{ordinal}",
                cells=tuple(cell(i, arm=arm) for i in range(cells) if i % 2 == ordinal),
                estimated_s=1.0,
            )
            for ordinal, arm in enumerate(arms)
        ),
        arms=arms,
        pairs=1,
        simulated=True,
        speed=2,
        practical_margin=0.02,
        gpus=8,
    )


def samples(of: Cell) -> list[RequestSample]:
    start = 10**15 + int(of.cell_id[1:]) * 10**9
    rows = [
        RequestSample(
            cell_id=of.cell_id,
            index=i,
            phase="warmup" if i < 2 else "measure",
            slot=i % 2,
            prompt_id=f"p{i}",
            prompt_sha256="ab" * 32,
            seed=i,
            due_ns=start + i,
            sent_ns=start + i + 10,
            first_byte_ns=start + i + 1000,
            ended_ns=start + i + 9000,
            status=RequestStatus.OK,
            http_status=200,
            finish_reason="stop",
            prompt_tok=5,
            output_tok=6,
            token_source=TokenSource.SERVER,
            event_ns=(start + i + 1000, start + i + 5000, start + i + 9000),
            event_tok=(1, 3, 6),
            first_visible_ns=start + i + 1000,
            tokens_before_first_event=False,
            text_sha256="cd" * 32,
            text_block_hashes=(2**64 - 1, 0),
            text_chars=70,
            spec_verify_ct=2,
            spec_num_correct_drafts=3,
            spec_correct_drafts_histogram=(0, 1, 1),
        )
        for i in range(5)
    ]
    failed = RequestSample(
        cell_id=of.cell_id,
        index=5,
        phase="measure",
        slot=None,
        prompt_id="p5",
        prompt_sha256="ab" * 32,
        seed=5,
        due_ns=start,
        sent_ns=None,
        ended_ns=start + 1,
        status=RequestStatus.REFUSED,
        error_message="connection refused",
    )
    return [*rows, failed]


def telemetry(of: Cell) -> list[TelemetryPoint]:
    start = 10**15 + int(of.cell_id[1:]) * 10**9
    return [
        TelemetryPoint(
            t_ns=start + i,
            source="gpu",
            name="power_w",
            rank=i % 2,
            value=None if i == 3 else 400.0 + i,
        )
        for i in range(20)
    ]


def measurement(of: Cell, launch: str) -> Measurement:
    n = int(of.cell_id[1:])
    spread = Distribution(mean=10.0 + n, p50=9.0, p90=12.0, p95=13.0, p99=14.5, n=4)
    return Measurement(
        cell_id=of.cell_id,
        comparison_key=of.comparison_key,
        launch_id=launch,
        arm=of.arm,
        workload=of.workload.name,
        load=of.load.label,
        pair=of.pair,
        status=CellStatus.SUSPECT if n % 3 == 1 else CellStatus.VALID,
        simulated=True,
        request_ct=4,
        ok_ct=3,
        failed_ct=1,
        failures_by_kind=(("refused", 1),),
        output_tok_sum=18,
        window_rule="closed: all slots past warm-up to the first slot without work",
        window_start_ns=10**15,
        window_end_ns=10**15 + 10**9,
        window_s=1.0,
        window_output_tok=17.25,
        window_busy_slots_mean=1.9,
        requests_cut_at_end_ct=1,
        output_tok_per_s=100.0 + n,
        output_tok_per_s_per_gpu=12.5,
        output_tok_per_s_per_user=50.0,
        whole_run_output_tok_per_s=90.0,
        request_per_s=3.0,
        goodput_request_per_s=None,
        ttft_ms=spread,
        ttfo_ms=None,
        tpot_ms=spread,
        chunk_gap_ms=spread,
        e2e_ms=spread,
        output_tok=spread,
        prompt_tok=spread,
        spec_verify_ct=8,
        spec_num_correct_drafts=12,
        spec_num_proposed_drafts=24,
        spec_correct_drafts_histogram=(0, 4, 4),
        accept_len_tok=2.5,
        accept_len_server_tok=2.4,
        accept_at_position=(1.0, 0.5),
        accept_at_position_conditional=(1.0, 0.5),
        accept_rate=0.75,
        cycle_ms=20.0,
        cycle_from_gaps_ms=20.1,
        decode_tok_per_s_per_user=125.0,
        residual_share=0.01,
        prefill_share=0.1,
        queue_share=None,
        limit_tok_per_s=None,
        limit_share=None,
        capacity_rate_per_s=None,
        energy_j_per_output_tok=None,
        energy_coverage=None,
        cache_hit_ratio=0.0,
        client=ClientStats(
            send_late_p50_ms=0.1,
            send_late_p99_ms=0.4,
            loop_lag_p99_ms=None,
            cpu_share=0.25,
            events_per_s=300.0,
            max_in_flight=2,
        ),
    )


def findings(of: Cell) -> list[Finding]:
    if int(of.cell_id[1:]) % 3 != 1:
        return []
    return [
        Finding(
            kind=FindingKind.WINDOW_TOO_SHORT,
            severity=Severity.SUSPECT,
            message=f"the window of {of.cell_id} is 0.5 s",
            advice="measure longer",
            cell_id=of.cell_id,
            arm=of.arm,
        )
    ]


SIMULATED = Finding(
    kind=FindingKind.SIMULATED,
    severity=Severity.NOTE,
    message="servers were simulated",
    advice="measure real ones",
)

COMPARISON = Comparison(
    arm="eagle",
    workload="chat",
    load="1",
    metric="output_tok_per_s",
    speedup=1.25,
    ci95_low=1.2,
    ci95_high=1.3,
    pairs=3,
    degrees_of_freedom=2.0,
    verdict=Verdict.FASTER,
    more_pairs_needed=None,
    break_even_accept_len_tok=1.4,
    accept_len_tok=2.5,
    cycle_ms=20.0,
    baseline_step_ms=14.0,
    baseline_value=100.0,
    arm_value=125.0,
    status=CellStatus.VALID,
    reason=None,
    config_differences=(("page_size", "1", "64"),),
)


def launch_record(ordinal: int, arm: str) -> LaunchRecord:
    return LaunchRecord(
        launch_id=launch_id(ordinal, arm),
        ordinal=ordinal,
        arm=arm,
        pair=0,
        server_key=f"s{ordinal}",
        argv=("python3", "-m", "sglang.launch_server", "--api-key", "[redacted]"),
        started_ns=10**15,
        ready_ns=10**15 + 5,
        effective=EffectiveConfig(
            speculative=(
                ("algorithm", None if arm == "baseline" else "EAGLE3"),
                ("num_steps", 3),
                ("threshold", 0.5),
            ),
            other=(("page_size", "1"),),
            version="0.5.23",
            simulated=True,
            decode_graph_batch_sizes=(1, 2),
        ),
        log_file=f"logs/{launch_id(ordinal, arm)}.log",
    )


def manifest(run_id: str = RUN_ID, *, cells: int = 4, fingerprint=None):
    made = new_manifest(
        plan(cells),
        run_id=run_id,
        scenario_text=SCENARIO_TEXT,
        command_line=["bench", "run", "demo.yaml"],
        fingerprint=fingerprint or {"identity": {"gpus": [{"driver": "570.1"}], "python": "3.11"}},
        plan_arguments={"only": ["load=1"], "add_pairs": 0},
    )
    anchor = WallAnchor(wall_ns=1_795_968_226_000_000_000, clock_ns=10**15, speed=2)
    session = replace(made.sessions[0], wall_anchor=anchor, started_at="2026-11-29T16:03:46+00:00")
    return replace(made, sessions=(session,), started_at=session.started_at)


def begin(out, run_id: str = RUN_ID, *, cells: int = 4):
    return create_run(out, scenario_text=SCENARIO_TEXT, manifest=manifest(run_id, cells=cells))


def launches_of(writer) -> list[tuple[str, Cell]]:
    return [
        (launch_id(launch.ordinal, launch.arm), c)
        for launch in plan_of(writer).launches
        for c in launch.cells
    ]


def plan_of(writer) -> Plan:
    return plan(sum(len(launch.cells) for launch in writer.manifest.plan))


def fill(writer, *, limit: int | None = None) -> list[str]:
    """Write the plan's cells that are missing, at most `limit` of them; returns their ids."""
    written = []
    for launch in plan_of(writer).launches:
        record = launch_record(launch.ordinal, launch.arm)
        writer.write_launch(record)
        writer.log_path(record.launch_id).write_text("server log\n")
        for one in launch.cells:
            if one.cell_id in writer.finished_cells() or len(written) == limit:
                continue
            write(writer, one, record.launch_id)
            written.append(one.cell_id)
    return written


def write(writer, one: Cell, launch: str) -> None:
    writer.write_cell(
        one, launch, samples(one), telemetry(one), measurement(one, launch), findings(one)
    )


def published(out, run_id: str = RUN_ID, *, cells: int = 4):
    with begin(out, run_id, cells=cells) as writer:
        fill(writer)
        return writer.publish([], [COMPARISON], [SIMULATED])
