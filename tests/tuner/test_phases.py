"""Two step counts that take turns in one launch: told apart exactly, or not at all."""

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from alternating_server import (
    PER_DRAFT_NS,
    STEP_NS,
    alternating_cell,
    coalesced,
    effective,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.model import RequestStatus
from bench.sglang.switch_lines import switch_sections
from bench.store import load_run, load_samples
from bench.store.reader import stored_table
from bench.store.records import telemetry_of
from tuner.evaluate.alternation import (
    alternation,
    alternation_arguments,
    alternation_config,
    alternation_obstacle,
)
from tuner.evaluate.phases import StepComparison, Untold, compare_steps

ONE_THREE = alternation(1, 3, 23)
CHAIN = [
    *("--model-path", "m", "--speculative-draft-model-path", "d"),
    *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "5"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "6"),
]


def compared(cell, asked, **more):
    given = {
        "samples": cell.samples,
        "telemetry": cell.telemetry,
        "log": "\n".join(cell.log),
        "effective": cell.effective,
        **more,
    }
    samples, telemetry, log = (given.pop(name) for name in ("samples", "telemetry", "log"))
    return compare_steps(samples, telemetry, log, asked=asked, **given)


def wrong(found, cell):
    """Batches of a phase that had other steps, by the truth."""
    return [
        at
        for phase in found.phases
        for at in range(phase.first, phase.first + phase.batches)
        if cell.steps[at] != phase.steps
    ]


# --------------------------------------------------------------------------- against the truth


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    steps=st.sampled_from([(0, 2), (1, 2), (1, 3), (2, 4), (3, 1)]),
    interval=st.integers(8, 40),
    concurrency=st.integers(1, 5),
    overlapped=st.booleans(),
)
def test_no_batch_is_ever_counted_to_the_wrong_steps(
    seed, steps, interval, concurrency, overlapped
):
    asked = alternation(*steps, interval)
    cell = alternating_cell(
        asked,
        seed=seed,
        requests=4 + 3 * concurrency,
        concurrency=concurrency,
        jitter_ns=1_500_000,
        overlapped=overlapped,
    )
    found = compared(cell, asked)
    if isinstance(found, StepComparison):
        assert wrong(found, cell) == []
        assert {phase.steps for phase in found.phases} == {asked.few, asked.many}
        assert found.gauge_agreed == found.gauge_compared
        assert found.simulated
    else:
        few = ("pairs of neighbouring phases", "either step count", "different parts")
        assert any(reason in found.reason for reason in few), found.reason


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_most_batches_are_told_and_the_figures_are_the_truth(concurrency, overlapped):
    cell = alternating_cell(
        ONE_THREE, requests=60, concurrency=concurrency, overlapped=overlapped, jitter_ns=500_000
    )
    found = compared(cell, ONE_THREE)
    assert isinstance(found, StepComparison), found
    assert wrong(found, cell) == []
    assert found.left_out < (0.4 if overlapped else 0.05)
    accept_len = {1: 1 + 0.7, 3: 1 + 0.7 + 0.7 * 0.6 + 0.7 * 0.6 * 0.5}
    for figures in (found.few, found.many):
        error = 4 / math.sqrt(figures.verify_ct)
        assert figures.accept_len_tok == pytest.approx(accept_len[figures.steps], abs=error)
        cycle_ms = (STEP_NS + PER_DRAFT_NS * figures.steps) / 1e6
        assert figures.cycle_ms == pytest.approx(cycle_ms, rel=0.02)
        assert figures.reach[0] == pytest.approx(0.7, abs=error)
        assert len(figures.reach) == figures.steps
    assert found.cycle.ci95_low <= 8 / 6 * 1.01
    assert found.cycle.ci95_high >= 8 / 6 * 0.99
    assert not found.ranks_only


def test_intervals_cover_the_true_gain_as_often_as_they_say():
    true_gain = (1 + 0.7 + 0.42 + 0.21) / 8 / ((1 + 0.7) / 6)
    covered = 0
    for seed in range(40):
        found = compared(alternating_cell(ONE_THREE, seed=seed, requests=24), ONE_THREE)
        assert isinstance(found, StepComparison), found
        covered += found.gain.ci95_low <= true_gain <= found.gain.ci95_high
    assert covered >= 34  # 95 % of 40 is 38; below 34 has a chance of 0.3 %


def test_what_is_slower_in_a_whole_launch_is_in_both_sides():
    cell = alternating_cell(ONE_THREE, requests=40)
    slow = replace_times(cell, 1.3)
    plain, slowed = compared(cell, ONE_THREE), compared(slow, ONE_THREE)
    assert slowed.few.cycle_ms == pytest.approx(1.3 * plain.few.cycle_ms, rel=1e-4)
    assert slowed.gain.speedup == pytest.approx(plain.gain.speedup, rel=1e-4)
    assert slowed.gain.log_sd == pytest.approx(plain.gain.log_sd, rel=1e-3)


def replace_times(cell, factor):
    samples = [
        replace(
            sample,
            sent_ns=round(sample.sent_ns * factor),
            event_ns=tuple(round(at * factor) for at in sample.event_ns),
        )
        for sample in cell.samples
    ]
    telemetry = [replace(point, t_ns=round(point.t_ns * factor)) for point in cell.telemetry]
    return replace(cell, samples=samples, telemetry=telemetry)


def test_steps_0_only_ranks():
    asked = alternation(0, 3, 20)
    found = compared(alternating_cell(asked, requests=30), asked)
    assert found.ranks_only
    assert found.few.accept_len_tok == 1
    assert found.few.reach == ()


def test_other_cells_of_the_launch_do_not_matter():
    cell = alternating_cell(ONE_THREE, seed=5, requests=30)
    other = alternating_cell(ONE_THREE, seed=6, requests=17)
    alone = compared(cell, ONE_THREE)
    assert compared(replace(cell, log=other.log + cell.log), ONE_THREE) == alone
    assert compared(replace(cell, log=cell.log + other.log), ONE_THREE) == alone


# ------------------------------------------------------------------------------- by the log alone


def merged(cell, rng_seed=1):
    """The cell with some events lost: what a busy server does, which keeps the newest alone."""
    rng = random.Random(rng_seed)
    samples = [
        coalesced(sample, rng.randrange(1, len(sample.event_ns) - 1))
        if len(sample.event_ns) > 3
        else sample
        for sample in cell.samples
    ]
    return replace(cell, samples=samples)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    steps=st.sampled_from([(0, 2), (1, 2), (1, 3), (2, 4)]),
    interval=st.integers(8, 40),
    log_interval=st.integers(1, 6),
    concurrency=st.integers(1, 5),
    overlapped=st.booleans(),
)
def test_no_line_of_the_log_is_ever_counted_to_the_wrong_steps(
    seed, steps, interval, log_interval, concurrency, overlapped
):
    asked = alternation(*steps, interval)
    cell = alternating_cell(
        asked,
        seed=seed,
        requests=4 + 3 * concurrency,
        concurrency=concurrency,
        overlapped=overlapped,
        log_interval=log_interval,
        decode_lines=True,
    )
    found = compared(merged(cell), asked)
    if isinstance(found, StepComparison):
        assert found.source == "log"
        assert wrong(found, cell) == []
        assert found.gauge_agreed == found.gauge_compared
    else:
        few = ("pairs of neighbouring", "no decode lines", "different parts")
        assert any(reason in found.reason for reason in few), found.reason


@pytest.mark.parametrize("concurrency", [1, 4])
def test_both_accounts_tell_the_same(concurrency):
    cell = alternating_cell(
        ONE_THREE, requests=60, concurrency=concurrency, log_interval=3, decode_lines=True
    )
    streams, log = compared(cell, ONE_THREE), compared(merged(cell), ONE_THREE)
    assert (streams.source, log.source) == ("streams", "log")
    assert log.gauge_compared > 10
    for of_streams, of_log in ((streams.few, log.few), (streams.many, log.many)):
        error = 4 / math.sqrt(of_log.verify_ct)
        assert of_log.accept_len_tok == pytest.approx(of_streams.accept_len_tok, abs=error)
        assert of_log.cycle_ms == pytest.approx(of_streams.cycle_ms, rel=0.02)
        assert of_log.reach is None


def test_a_log_without_lines_between_switches_does_not_tell():
    cell = alternating_cell(ONE_THREE, requests=30, log_interval=40, decode_lines=True)
    assert "--decode-log-interval 2" in refused(merged(cell))


def test_a_log_that_lost_lines_does_not_tell():
    cell = merged(alternating_cell(ONE_THREE, requests=30, log_interval=3, decode_lines=True))
    switches = [at for at, line in enumerate(cell.log) if "Switch" in line]
    for lost in (
        {switches[3]},
        {switches[3], switches[4]},
        set(range(switches[3] + 1, switches[4])),
    ):
        log = [line for at, line in enumerate(cell.log) if at not in lost]
        reason = refused(replace(cell, log=log))
        assert "lost" in reason or "parts of the log" in reason


def test_a_log_that_the_gauge_contradicts_does_not_tell():
    cell = merged(alternating_cell(ONE_THREE, requests=30, log_interval=3, decode_lines=True))
    assert "gauge" in refused(replace(cell, telemetry=contradicting(cell.telemetry)))


def contradicting(telemetry):
    return [
        replace(point, value=4 - point.value) if "num_steps" in point.name else point
        for point in telemetry
    ]


# ------------------------------------------------------------------------------- what is refused


CELL = alternating_cell(ONE_THREE, seed=3, requests=30)


def refused(cell, asked=ONE_THREE, **more):
    found = compared(cell, asked, **more)
    assert isinstance(found, Untold), found
    return found.reason


def with_sample(cell, place, **changes):
    samples = list(cell.samples)
    samples[place] = replace(samples[place], **changes)
    return replace(cell, samples=samples)


def test_a_log_that_lost_a_switch_is_not_believed():
    lines = [at for at, line in enumerate(CELL.log) if "Switch" in line]
    for lost in (lines[0], lines[len(lines) // 2], lines[-1]):
        log = CELL.log[:lost] + CELL.log[lost + 1 :]
        assert "agrees with the log" in refused(replace(CELL, log=log))


def test_a_switch_between_other_requests_is_not_believed():
    lines = [at for at, line in enumerate(CELL.log) if "Switch" in line]
    log = list(CELL.log)
    moved = log.pop(lines[4])
    later = next(at for at in range(lines[4], len(log)) if "Prefill" in log[at])
    later = next(at for at in range(later + 1, len(log)) if "Prefill" in log[at])
    log.insert(later + 1, moved)
    assert "agrees with the log" in refused(replace(CELL, log=log))


def test_other_traffic_is_noticed():
    log = list(CELL.log)
    log.insert(10, "[2026-01-01 00:00:00] Prefill batch, #new-seq: 1, #new-token: 9")
    assert "other traffic" in refused(replace(CELL, log=log))
    assert "other traffic" in refused(replace(CELL, samples=CELL.samples[:-1]))
    assert "other traffic" in refused(replace(CELL, log=[]))


def test_events_must_be_steps():
    sample = CELL.samples[4]
    assert "several steps came in one event" in refused(
        replace(CELL, samples=[*CELL.samples[:4], coalesced(sample, 5), *CELL.samples[5:]])
    )
    assert "differ" in refused(with_sample(CELL, 4, spec_correct_drafts_histogram=(1, 2)))
    too_many = sample.spec_num_correct_drafts + 90
    assert "differ" in refused(with_sample(CELL, 4, spec_num_correct_drafts=too_many))
    assert "token counts" in refused(with_sample(CELL, 4, event_tok=None))
    assert "does not tell" in refused(with_sample(CELL, 4, spec_verify_ct=None))
    assert "retracted" in refused(with_sample(CELL, 4, num_retractions=1))
    assert "failed (timeout)" in refused(with_sample(CELL, 4, status=RequestStatus.TIMEOUT))
    assert "ranks" in refused(with_sample(with_sample(CELL, 4, dp_rank=0), 5, dp_rank=1))


def test_another_interval_or_other_steps_than_were_asked_are_noticed():
    assert "agrees with the log" in refused(CELL, alternation(1, 3, 22))
    assert "other than between" in refused(CELL, alternation(2, 3, 23))
    deeper = with_sample(CELL, 4, **deepened(CELL.samples[4]))
    assert "accepted 4 drafts of 3" in refused(deeper)


def deepened(sample):
    """As if its last step had accepted four drafts, one cut off."""
    made = [b - a for a, b in pairwise(sample.event_tok)]
    correct = [tokens - 1 for tokens in made[:-1]] + [4]
    return {
        "spec_num_correct_drafts": sum(correct),
        "spec_correct_drafts_histogram": tuple(correct.count(k) for k in range(5)),
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"adaptive": False}, "does not adapt"),
        ({"eagle_topk": 4}, "trees"),
        ({"num_steps": 5}, "began with 5"),
    ],
)
def test_a_server_that_does_not_alternate_is_noticed(changes, said):
    assert said in refused(CELL, effective=effective(ONE_THREE, **changes))


def test_a_gauge_that_says_otherwise_is_believed():
    points = contradicting(CELL.telemetry)
    assert "gauge" in refused(replace(CELL, telemetry=points))
    assert compared(replace(CELL, telemetry=[]), ONE_THREE).gauge_compared == 0


def test_too_few_phases_are_no_comparison():
    asked = alternation(1, 3, 200)
    assert "longer cell" in refused(alternating_cell(asked, requests=8), asked)


def test_step_counts_that_meet_different_parts_of_outputs_are_not_compared():
    asked = alternation(1, 2, 20)
    # Every draft is accepted: a phase of each is one output, and its first half is of steps 1.
    cell = alternating_cell(
        asked, requests=30, accept=(1.0, 1.0), before=0, output_tok=1 + 40 + 60, spread=0
    )
    assert "different parts of the outputs" in refused(cell, asked)
    other = alternating_cell(asked, requests=30, accept=(1.0, 1.0), before=0, output_tok=101)
    assert isinstance(compared(other, asked), StepComparison)


# ------------------------------------------------------------------------- what can be asked for


@settings(deadline=None, max_examples=50)
@given(
    steps=st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda s: s[0] != s[1]),
    interval=st.integers(8, 60),
    accepted=st.lists(st.integers(0, 9), min_size=200, max_size=200),
)
def test_the_configuration_alternates_whatever_is_accepted(
    steps, interval, accepted, tmp_path_factory
):
    from bench.simulator.adaptive import Adaptive, read_tiers

    path = tmp_path_factory.mktemp("config") / "adaptive.json"
    path.write_text(alternation_config(*steps, interval))
    lines = []
    server = Adaptive(
        read_tiers(str(path)), initial_steps=max(steps), graph_batch_sizes=(), log=lines.append
    )
    seen = []
    for correct in accepted:
        seen.append(server.steps_for(1 + correct % 3))
        server.verified([min(correct, seen[-1])] * (1 + correct % 3))
    assert seen == [
        max(steps) if at // interval % 2 == 0 else min(steps) for at in range(len(seen))
    ]
    sections = switch_sections(["Prefill batch, #new-seq: 1, #new-token: 9", *lines])
    assert len(sections[0].switches) == 200 // interval


def test_the_configuration_is_one_entry_for_all_batches():
    assert json.loads(alternation_config(3, 1, 50)) == {
        "1": {
            "candidate_steps": [1, 3],
            "down_hysteresis": 1000.0,
            "up_hysteresis": -1000.0,
            "ceiling_coeff": 0,
            "update_interval": 50,
            "warmup_batches": 0,
        }
    }


@pytest.mark.parametrize("steps", [(1, 1), (-1, 2)])
def test_no_two_step_counts_are_refused(steps):
    with pytest.raises(InputError, match="cannot take turns"):
        alternation_config(*steps, 20)


def test_a_short_interval_is_refused():
    with pytest.raises(InputError, match="every 3 verify batches"):
        alternation_config(1, 3, 3)


def test_a_chain_of_eagle_may_alternate(tmp_path):
    path = tmp_path / "adaptive.json"
    path.write_text(alternation_config(1, 3, 23))
    assert alternation_obstacle(CHAIN, ONE_THREE, str(path)) is None
    argv = alternation_arguments(CHAIN, ONE_THREE, str(path))
    assert argv[: len(CHAIN)] == tuple(CHAIN)
    assert argv[-2:] == ("--decode-log-interval", "2")
    assert alternation_obstacle(CHAIN, ONE_THREE, "not/there/yet.json") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("--speculative-eagle-topk 4", "topk is 4"),
        ("--speculative-algorithm STANDALONE", "STANDALONE cannot adapt"),
        ("--tp-size 8 --dp-size 8 --enable-dp-attention", "attention data parallelism"),
        ("--enable-two-batch-overlap", "two-batch overlap"),
        ("--dp-size 2", "own count"),
        ("--device cpu", "--disable-cuda-graph"),
    ],
)
def test_where_it_may_not_the_reason_is_told(changes, said, tmp_path):
    path = tmp_path / "adaptive.json"
    path.write_text(alternation_config(1, 3, 23))
    assert said in (alternation_obstacle([*CHAIN, *changes.split()], ONE_THREE, str(path)) or "")


def test_without_speculation_nothing_alternates():
    plain = ["--model-path", "m"]
    assert "no EAGLE" in (alternation_obstacle(plain, ONE_THREE, "x.json") or "")


def test_on_a_cpu_without_graphs_it_may():
    more = ["--device", "cpu", "--disable-cuda-graph"]
    assert alternation_obstacle([*CHAIN, *more], ONE_THREE, "x.json") is None


def test_lines_of_the_real_server_are_read():
    log = (Path(__file__).parents[1] / "lab" / "scenes" / "adaptive" / "server.log").read_text()
    sections = switch_sections(log.splitlines())
    switches = [switch for section in sections for switch in section.switches]
    assert len(switches) == log.count("Switch adaptive runtime state") > 5
    assert all(one.after == two.before for one, two in pairwise(switches))
    decodes = [placed for section in sections for placed in section.decodes]
    assert len(decodes) == log.count("Decode batch,")
    assert any(placed.since_switch for placed in decodes)
    assert sum(section.started_ct for section in sections) == sum(
        int(line.split("#new-seq: ")[1].split(",")[0])
        for line in log.splitlines()
        if "Prefill batch," in line
    )


def test_lines_of_other_ranks_are_theirs():
    prefill = "[2026-01-01 00:00:00 {}] Prefill batch, #new-seq: 2, #new-token: 9, #queue-req: 0"
    decode = (
        "[2026-01-01 00:00:00 {}] Decode batch, #running-req: 2, #token: 9, accept len: 2.00, "
        "gen throughput (token/s): 9.00, #queue-req: 0"
    )
    flushed = "[2026-01-01 00:00:00 {}] Cache flushed successfully!"
    log = [line.format(rank) for line in (flushed, prefill, decode) for rank in ("TP0", "TP1")]
    [section] = switch_sections(log)
    assert (section.started_ct, len(section.decodes), section.switches) == (2, 1, ())


# ------------------------------------------------------------------- simulated, beside its truth


def simulated_scenario(folder):
    config = folder / "adaptive.json"
    config.write_text(alternation_config(1, 3, 23))
    chain = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    words = f"--speculative-adaptive --speculative-adaptive-config {config}"
    path = folder / "alternating.yaml"
    made = {
        "name": "alternating",
        "question": "Which of two step counts is faster?",
        "target": {"path": "moonshotai/Kimi-K2.5", "revision": "main"},
        "draft": {"path": "lightseekorg/kimi-k2.5-eagle3", "revision": "main"},
        "server": {
            "gpus": 8,
            "arguments": [
                "--tp-size 8",
                "--max-running-requests 8",
                "--max-total-tokens 65536",
                "--cuda-graph-bs-decode 1 2 4 8",
                "--enable-metrics",
                "--decode-log-interval 4",
            ],
        },
        "arms": {"baseline": {}, "alternating": {"speculative": chain, "arguments": words}},
        "workloads": {
            "generate": {
                "api": "generate",
                "input_tok": 256,
                "max_output_tok": 110,
                "sampling": {"temperature": 0},
            }
        },
        "loads": {"concurrency": [1, 4]},
        "measure": {"steady_s": 5, "requests_per_slot": 8, "pairs": 1},
        "sim": {
            "hardware": "h200-x8",
            "target": "kimi-k2.5",
            "acceptance": "kimi-k2.5-eagle3",
            "speed": 5,
        },
    }
    path.write_text(json.dumps(made))  # YAML has all of JSON
    return path


@pytest.fixture(scope="module")
def simulated_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alternating")
    command = Path(sys.executable).with_name("bench")
    scenario = simulated_scenario(folder)
    options = ["--sim", "--only", "arm=alternating", "--no-report", "--json"]
    done = subprocess.run(
        [command, "run", scenario, *options, "--out", folder / "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    return next((folder / "out").glob("*/*/manifest.json")).parent


@pytest.mark.parametrize("load", ["1", "4"])
def test_a_simulated_cell_is_told_as_the_simulator_ran_it(simulated_run, load):
    run = load_run(simulated_run)
    launch = next(x for x in run.manifest.launches if x.arm == "alternating")
    [measured] = [m for m in run.measurements if (m.arm, m.load) == ("alternating", load)]
    samples = [s for s in load_samples(simulated_run) if s.cell_id == measured.cell_id]
    table = stored_table(simulated_run, run.manifest, "telemetry")
    rows = [at for at, c in enumerate(table["cell_id"].to_pylist()) if c == measured.cell_id]
    log = simulated_run / launch.log_file
    asked = alternation(1, 3, 23)
    found = compare_steps(
        samples,
        telemetry_of(table.take(rows)),
        log.read_text(),
        asked=asked,
        effective=launch.effective,
    )
    assert isinstance(found, StepComparison), found
    began = min(s.sent_ns for s in samples)
    ended = max(s.event_ns[-1] for s in samples)
    told = map(json.loads, log.with_suffix(".truth.jsonl").read_text().splitlines())
    truth = [
        step
        for step in told
        if step["kind"] == "step"
        and step["step"] == "decode"
        and began <= step["start_ns"]
        and step["end_ns"] <= ended
    ]
    steps = [step["num_steps"] for step in truth]
    # Decode lines are counted on from batches that came before the cell.
    shifts = range(4) if found.source == "log" else (0,)
    assert any(
        all(
            set(steps[phase.first - shift : phase.end - shift]) == {phase.steps}
            for phase in found.phases
        )
        for shift in shifts
    )
    assert found.simulated
    assert found.gauge_agreed >= 0.9 * found.gauge_compared
    assert found.few.accept_len_tok < found.many.accept_len_tok
    pooled = [found.few.verify_ct, found.many.verify_ct]
    assert sum(pooled) <= sum(s.spec_verify_ct for s in samples) * 1.05
    assert found.gain.pairs >= 3
