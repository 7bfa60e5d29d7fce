"""How an answer is told, piece by piece."""

from dataclasses import replace

import pytest

from bench.cli.answer import cell_names, exit_code, finding_lines, print_answer
from bench.cli.output import duration, many, resume_command
from bench.model import CellStatus, Finding, FindingKind, Severity, Verdict
from bench.store import RunStatus, load_run


@pytest.fixture
def stored(finished):
    """The finished run with every cell VALID and no findings."""
    run = load_run(finished.folder)
    return replace(
        run,
        measurements=tuple(replace(m, status=CellStatus.VALID) for m in run.measurements),
        comparisons=tuple(replace(c, status=CellStatus.VALID) for c in run.comparisons),
        findings=(),
    )


def told(stored, capsys):
    print_answer(stored, as_json=False)
    return capsys.readouterr().out


def having(stored, status, **of):
    """The run with another status in the cells that are like `of`."""
    return replace(
        stored,
        measurements=tuple(
            replace(m, status=status) if all(getattr(m, k) == v for k, v in of.items()) else m
            for m in stored.measurements
        ),
    )


# ------------------------------------------------------------------------------------ exit codes


def test_valid_cells_answer(stored):
    assert exit_code(stored) == 0


def test_undecided_is_an_answer(stored):
    comparisons = [replace(c, verdict=Verdict.UNDECIDED) for c in stored.comparisons]
    assert exit_code(replace(stored, comparisons=tuple(comparisons))) == 0


def test_one_comparison_with_a_valid_cell_is_an_answer(stored):
    suspect = having(stored, CellStatus.SUSPECT, load="1")
    assert exit_code(having(suspect, CellStatus.SUSPECT, arm="eagle3")) == 0


def test_no_comparison_with_a_valid_cell_is_none(stored, capsys):
    suspect = having(stored, CellStatus.SUSPECT)
    assert exit_code(suspect) == 4
    assert "has a VALID cell: these figures answer nothing yet (exit status 4)" in told(
        suspect, capsys
    )
    assert "exit status" not in told(stored, capsys)


def test_valid_cells_without_a_comparison_answer_nothing_when_one_was_asked_for(stored):
    nothing = tuple(replace(c, speedup=None) for c in stored.comparisons)
    assert exit_code(replace(stored, comparisons=nothing)) == 4
    assert exit_code(replace(stored, comparisons=())) == 4


def test_one_arm_alone_is_answered_by_a_valid_cell(stored):
    baseline = tuple(m for m in stored.measurements if m.arm == "baseline")
    plan = tuple(launch for launch in stored.manifest.plan if launch.arm == "baseline")
    alone = replace(
        stored,
        manifest=replace(stored.manifest, plan=plan),
        measurements=baseline,
        comparisons=(),
    )
    assert exit_code(alone) == 0
    assert exit_code(having(alone, CellStatus.SUSPECT)) == 4


# ---------------------------------------------------------------------------------------- lines


def test_a_comparison_is_one_row(stored, capsys):
    first, second = stored.comparisons
    changed = replace(
        first,
        ci95_low=1.234,
        ci95_high=1.456,
        speedup=1.345,
        verdict=Verdict.FASTER,
        status=CellStatus.SUSPECT,
        reason=None,
    )
    text = told(replace(stored, comparisons=(changed, second)), capsys)
    (row,) = [line for line in text.splitlines() if "1.345" in line]
    assert row.startswith("chat         1  eagle3")
    assert "1.345 [1.234, 1.456]" in row
    assert row.endswith("FASTER, SUSPECT")


def test_a_verdict_between_equal_servers_is_marked(stored, capsys):
    first, *_ = stored.comparisons
    alike = replace(first, verdict=Verdict.FASTER, same_server_as=("baseline", "wide"))
    text = told(replace(stored, comparisons=(alike,)), capsys)
    assert "FASTER, same server as baseline, wide" in text


def test_what_would_decide_is_told(stored, capsys):
    first, second = stored.comparisons
    run = replace(
        stored,
        comparisons=(
            replace(first, verdict=Verdict.UNDECIDED, more_pairs_needed=4, reason=None),
            replace(second, verdict=Verdict.UNDECIDED, more_pairs_needed=None, reason=None),
        ),
    )
    text = " ".join(told(run, capsys).split())
    assert "UNDECIDED for eagle3 chat load 1 (+4)" in text
    assert "run anew with --add-pairs 4." in text
    assert "UNDECIDED for eagle3 chat load 2: more pairs would hardly decide it." in text


def test_a_load_without_a_speedup_shows_its_cells(stored, capsys):
    first, second = stored.comparisons
    lost = replace(second, speedup=None, baseline_value=None, arm_value=None, reason="no pair")
    text = told(replace(stored, comparisons=(first, lost)), capsys)
    assert "TTFT p50" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("chat ")]
    assert [row[1:4] for row in rows[2:]] == [["2", "baseline", "0"], ["2", "eagle3", "0"]]
    assert "No verdict for eagle3 chat load 2: no pair." in text


def test_missing_cells_are_named_and_how_to_go_on(stored, capsys):
    part = replace(
        stored,
        published=False,
        status=RunStatus.INTERRUPTED,
        measurements=stored.measurements[:1],
        comparisons=(),
    )
    text = " ".join(told(part, capsys).split())
    assert "This run was not finished (interrupted): 1 of 4 cells stored" in text
    assert "missing: baseline chat load 2 pair 0, eagle3 chat load 1 pair 0" in text
    assert f"`bench resume {part.run_id} --out " in text
    writing = " ".join(told(replace(part, status=RunStatus.RUNNING), capsys).split())
    assert "This run is being written: 1 of 4 cells finished so far" in writing
    assert "bench resume" not in writing
    done = " ".join(told(replace(part, published=True), capsys).split())
    assert "Only 1 of 4 cells could be measured; missing: " in done


# ------------------------------------------------------------------------------------- findings


def finding(kind, severity, message, **more):
    return Finding(kind=kind, severity=severity, message=message, advice="do this", **more)


def test_findings_are_told_by_kind_the_gravest_first(stored):
    names = cell_names(stored)
    cells = list(names)
    findings = [
        finding(FindingKind.LENGTHS_CENSORED, Severity.NOTE, "n1", cell_id=cells[0]),
        finding(FindingKind.CLIENT_LATE, Severity.SUSPECT, "s1", cell_id=cells[1]),
        finding(FindingKind.LENGTHS_CENSORED, Severity.NOTE, "n2", cell_id=cells[2]),
        finding(FindingKind.ERROR_RATE, Severity.INVALID, "i1", cell_id=cells[3]),
        finding(FindingKind.SIMULATED, Severity.NOTE, "told in the headline"),
    ]
    assert [line for _, line in finding_lines(findings, names)] == [
        "INVALID error_rate, eagle3 chat load 2 pair 0: i1",
        "    do this",
        "SUSPECT client_late, baseline chat load 2 pair 0: s1",
        "    do this",
        "NOTE lengths_censored in 2 cells, e.g. baseline chat load 1 pair 0: n1",
        "    do this",
    ]


def test_findings_of_the_whole_run_are_all_told_with_the_first_in_full(stored):
    findings = [
        finding(FindingKind.LAUNCH_FAILED, Severity.INVALID, "arm a: boom\nits last lines:\n  x"),
        finding(FindingKind.LAUNCH_FAILED, Severity.INVALID, "arm b: boom\nits last lines:\n  y"),
    ]
    assert [line for _, line in finding_lines(findings, {})] == [
        "INVALID launch_failed: arm a: boom\n    its last lines:\n      x",
        "    arm b: boom",
        "    do this",
    ]


def test_findings_name_their_arm(stored):
    kind = FindingKind.CONFIG_DIFFERS_BESIDE_SPECULATION
    findings = [finding(kind, Severity.NOTE, "x: 1 -> 2.", arm=arm) for arm in ("a3", "b3")]
    assert [line for _, line in finding_lines(findings, {})] == [
        "NOTE config_differs_beside_speculation, arm a3: x: 1 -> 2.",
        "    arm b3: x: 1 -> 2.",
        "    do this",
    ]


# ----------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (9e4, "25.0 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_counted_words():
    assert [many(n, "cell") for n in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert many(2, "launch") == "2 launches"


def test_the_resume_command_names_the_folder_only_when_it_must(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resume_command("R", tmp_path / "results") == "bench resume R"
    assert resume_command("R", tmp_path / "my runs") == "bench resume R --out 'my runs'"
    assert resume_command("R", tmp_path.parent) == f"bench resume R --out {tmp_path.parent}"
