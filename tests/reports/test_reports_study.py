"""The page of a study says what study.json says, as far as the study got, and nothing else."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import stored_run
from test_reports_page import HOSTILE, read

sys.path.insert(0, str(Path(__file__).parents[1] / "tuner"))
from studies import (
    LOSING,
    make_study,
    study_folder,
    with_cells,
    with_steps_launch,
)

from bench.errors import StoreError
from bench.model import Verdict
from bench.model.study import SpaceCounts, TrialState, of_their_configuration
from bench.store.study import write_study
from reports import (
    STUDY_PAGE,
    page_html,
    page_markdown,
    run_page,
    study_page,
    write_data,
    write_study_page,
)
from reports.blocks import Command, Drawing
from reports.render import blocks_of
from reports.study_effects import communications_of, effects_of
from reports.study_predictions import accuracy_of, gain_predictions
from reports.study_wording import study_sentences

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"
UNREAD = "no such file"


def signed(log_ratio):
    return f"{round(100 * math.expm1(log_ratio), 1) + 0.0:+.1f}".replace("-", "−")


def rows_of(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def nothing_known(study, **changes):
    """The study before its first launch."""
    blank = {"gain": None, "gain_sd": None, "cell_gain": None, "accept_len_tok": None}
    return replace(
        study,
        configurations=tuple(
            replace(c, launches=0, excluded=None, **blank) for c in study.configurations
        ),
        trials=(),
        launch_sd=None,
        conclusion=None,
        argv=(),
        status="running",
        **changes,
    )


def failed(trial):
    cells = (None,) * len(trial.value)
    return replace(
        trial,
        state=TrialState.FAILED,
        failure_class="infrastructure",
        failure="no answer",
        launch_s=None,
        measured_s=None,
        value=cells,
        accept_len_tok=cells,
        ttft_p99_ms=cells,
        tpot_p99_ms=cells,
        memory_headroom_gib=None,
        gain=None,
    )


PART_STUDIES = {
    "empty": lambda: nothing_known(make_study()),
    "one trial": lambda: replace(
        nothing_known(make_study()), trials=make_study(concluded=False).trials[:1]
    ),
    "all failed": lambda: replace(
        nothing_known(make_study()),
        status="complete",
        trials=tuple(failed(t) for t in make_study(concluded=False).trials),
    ),
    "running": lambda: make_study(concluded=False),
    "no gpus": lambda: replace(make_study(), gpus=0),
    "off alone": lambda: replace(
        nothing_known(make_study()), configurations=make_study().configurations[:1]
    ),
    "no verdict": lambda: replace(
        make_study(),
        conclusion=replace(make_study().conclusion, verdict=None, search_gain=None, cells=()),
    ),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("study"), simulated=True)


@pytest.fixture(scope="module")
def page(run):
    return study_page(make_study(simulated=True), run)


def test_the_text_of_a_study(page):
    text = "\n".join(read(page_html(page)).text) + "\n"
    assert text == (GOLDEN / "study.txt").read_text()


def test_the_markdown_of_a_study(page):
    assert page_markdown(page) == (GOLDEN / "study.md").read_text()


def test_it_says_simulated_on_the_page_and_in_every_figure(page):
    html = page_html(page)
    figures = sum(isinstance(block, Drawing) for block in blocks_of(page))
    assert figures == 4
    assert html.count("SIMULATED – not measured on hardware") == figures
    assert 'class="band"' in html
    assert "SIMULATED" not in page_html(study_page(make_study(), UNREAD))


@given(
    gain=st.floats(-0.6, 0.9),
    half=st.floats(0.001, 0.2),
    optimism=st.floats(0, 0.1),
    answer=st.sampled_from(["deploy", "leave_off", "keep_present", "undecided"]),
)
@settings(deadline=None, max_examples=50)
def test_the_answer_holds_the_figures_of_the_conclusion(gain, half, optimism, answer):
    study = make_study(answer=answer, present=4)
    conclusion = replace(
        study.conclusion,
        gain=gain,
        ci95_low=gain - half,
        ci95_high=gain + half,
        optimism=optimism,
        search_gain=gain + optimism,
    )
    answered, searched, *_ = study_sentences(replace(study, conclusion=conclusion))
    assert f"{signed(gain)} % tok/s" in answered
    assert f"[{signed(gain - half)}, {signed(gain + half)}]" in answered
    assert f"said {signed(gain + optimism)} %" in searched
    luck = 100 * math.expm1(optimism)
    assert (
        f"{f'{luck:.1f} %' if luck >= 0.05 else 'none'} of this is expected to be luck" in searched
    )


@pytest.mark.parametrize(
    ("answer", "begins"),
    [
        ("deploy", "Deploy EAGLE3 3-1-4: "),
        ("leave_off", "Leave speculation off: the best of it, EAGLE3 3-1-4, is at "),
        ("keep_present", "Keep what you have, EAGLE3 4-1-5: "),
        ("undecided", "UNDECIDED: the best that was found, EAGLE3 3-1-4, is at "),
    ],
)
def test_every_answer_is_said_plainly(answer, begins):
    assert study_sentences(make_study(answer=answer, present=4))[0].startswith(begins)


def test_what_is_gained_over_the_present_setting_is_said():
    told = study_sentences(make_study(present=4))
    assert any(
        line.startswith("Over what you have in use, EAGLE3 4-1-5, that is ") for line in told
    )
    assert not any("in use" in line for line in study_sentences(make_study()))


def test_only_better_cells_beyond_noise_are_named():
    study = with_cells(make_study(), (3, True), (4, True), (2, False), (3, True))
    told = study_sentences(study)
    assert told[-1] == (
        "Better than EAGLE3 3-1-4 by more than noise: EAGLE3 2-1-3 in chat-2k at 64 requests at "
        "once."
    )


def test_a_part_study_has_no_conclusion_and_says_how_far_it_got():
    study = make_study(concluded=False)
    page = study_page(study, UNREAD)
    done = f"11 of {study.launches_budget} launches"
    assert f"This study is not finished: {done}, no conclusion." in page.warnings
    assert page.answer[0] == f"There is no conclusion yet: {done}."
    assert "Nothing has confirmed it" in page.answer[1]
    assert not any(isinstance(b, Command) and "sglang" in b.text for b in blocks_of(page))


@pytest.mark.parametrize("make", PART_STUDIES.values(), ids=PART_STUDIES)
def test_any_study_has_a_page(make):
    page = study_page(make(), UNREAD)
    read(page_html(page))
    assert page.answer
    assert page_markdown(page)
    assert any(UNREAD in line for line in page.warnings)


def test_the_tables_hold_the_study(tmp_path):
    study = make_study()
    written = {file.stem: file for file in write_data(study_page(study, UNREAD), tmp_path)}
    rows = {name: rows_of(file) for name, file in written.items()}
    known = {c.label: c for c in study.configurations}
    assert len(rows["configurations"]) == len(known)
    for row in rows["configurations"]:
        c = known[row["configuration"]]
        assert float(row["ln_gain"]) == c.gain
        assert [float(row[f"ln_gain_{at}"]) for at in range(1, 5)] == list(c.cell_gain)
    for row, trial in zip(rows["launches"], study.trials, strict=True):
        assert row["configuration"] == study.configurations[trial.configuration].label
        assert (float(row["ln_gain"]) if row["ln_gain"] else None) == trial.gain
        told = [row[f"value_{at}"] for at in range(1, 5)]
        assert [float(v) if v else None for v in told] == list(trial.value)
    for row, cell in zip(rows["study_cells"], study.conclusion.cells, strict=True):
        assert float(row["estimated_ln_gain"]) == cell.gain
        assert row["best"] == study.configurations[cell.best].label
    counted = {row["what"]: int(row["count"]) for row in rows["space"]}
    assert counted["points of the axes"] == study.raw
    assert counted["legal"] == study.raw - sum(count for _, count, _ in study.illegal)
    assert counted["distinct"] == len(study.configurations)


def test_cost_adds_up(tmp_path):
    study = make_study()
    write_data(study_page(study, UNREAD), tmp_path)
    *parts, every = rows_of(tmp_path / "cost.csv")
    assert int(every["launches"]) == len(study.trials)
    for name in ("launches", "failed", "hours", "gpu_hours"):
        assert math.isclose(sum(float(p[name]) for p in parts), float(every[name]))
    assert math.isclose(float(every["gpu_hours"]), study.gpus * float(every["hours"]))


def test_without_gpus_no_gpu_hours_are_told():
    html = page_html(study_page(replace(make_study(), gpus=0), UNREAD))
    assert "GPU hours</th>" not in html
    assert "the servers ran without GPUs" in html


def test_a_shell_makes_of_the_command_what_the_study_says():
    argv = (*make_study().argv, "--served-model-name", "a b'c $HOME", "--json", '{"x": 1}')
    page = study_page(replace(make_study(), argv=argv), UNREAD)
    command = next(b.text for b in blocks_of(page) if isinstance(b, Command))
    shell = ["bash", "-c", f"set -- {command}\nprintf '%s\\0' \"$@\""]
    told = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    assert tuple(told.split("\0")[:-1]) == argv


def test_the_environment_stands_beside_the_command():
    page = study_page(make_study(deploy=18), UNREAD)
    told = [b.text for b in blocks_of(page) if isinstance(b, Command)]
    assert told[0] == "export NCCL_PROTO=LL"


def test_hostile_words_are_inert():
    study = make_study()
    first = replace(study.configurations[3], label=HOSTILE)
    trial = replace(study.trials[3], failure=HOSTILE)
    study = replace(
        study,
        question=HOSTILE,
        notes=(HOSTILE,),
        illegal=((HOSTILE, 1, HOSTILE),),
        configurations=(*study.configurations[:3], first, *study.configurations[4:]),
        trials=(*study.trials[:3], trial, *study.trials[4:]),
    )
    reader = read(page_html(study_page(study, UNREAD)))
    assert reader.tags.count("script") == 1
    assert "img" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]


def test_a_broken_limit_and_marks_of_the_final_weaken_it():
    study = make_study()
    last = replace(study.trials[-1], breaks=("TPOT p99 is 120 ms",), marks=("drifting",))
    last = replace(last, configuration=study.conclusion.deploy)
    page = study_page(replace(study, trials=(*study.trials[:-1], last)), UNREAD)
    told = " ".join(read(page_html(page)).text)
    assert "TPOT p99 is 120 ms" in told
    assert "Of the 8 launches of the final: drifting in 1." in told


# --- the launch in which two step counts take turns


def words_of(study):
    return " ".join(read(page_html(study_page(study, UNREAD))).text)


def data_of(study, folder):
    return {file.name: file.read_text() for file in write_data(study_page(study, UNREAD), folder)}


def test_the_launch_of_two_step_counts_counts_for_no_configuration(tmp_path):
    study = make_study()
    plain = data_of(study, tmp_path / "without")
    told = data_of(with_steps_launch(study), tmp_path / "with")
    changed = {name for name in plain if plain[name] != told[name]}
    assert changed == {"launches.csv", "cost.csv"}
    page = study_page(with_steps_launch(study), UNREAD)
    assert page.series == study_page(study, UNREAD).series
    assert "A limit is not kept" not in page_html(page)
    assert gain_predictions(with_steps_launch(study)) == gain_predictions(study)


def drawn_gains(study):
    page = study_page(study, UNREAD)
    order = next(b for b in blocks_of(page) if isinstance(b, Drawing) and b.name == "order")
    (axes,) = order.figure.axes
    return sorted(x for line in axes.lines if line.get_gid() for x in line.get_xdata())


def test_the_launch_of_two_step_counts_is_not_drawn_among_the_gains():
    study = make_study()
    assert drawn_gains(with_steps_launch(study)) == drawn_gains(study)
    assert drawn_gains(study)


def test_before_a_final_marks_of_two_step_counts_weaken_nothing():
    study = make_study(concluded=False)
    assert "drifting" in words_of(
        replace(study, trials=(replace(study.trials[0], marks=("drifting",)), *study.trials[1:]))
    )
    page = study_page(with_steps_launch(study), UNREAD)
    assert not any(getattr(b, "title", "") == "Marked launches" for b in blocks_of(page))


@pytest.mark.parametrize(
    ("launch_id", "named"),
    [
        ("L20-steps-2-3-p0", "2 and 3 steps in turn, else as EAGLE3 3-1-4"),
        (None, "two step counts in turn, else as EAGLE3 3-1-4"),
    ],
)
def test_the_launch_of_two_step_counts_is_listed_as_what_it_is(tmp_path, launch_id, named):
    study = with_steps_launch(make_study(), launch_id=launch_id)
    write_data(study_page(study, UNREAD), tmp_path)
    row = rows_of(tmp_path / "launches.csv")[-1]
    assert (row["configuration"], row["why"]) == (named, "two step counts in turn")
    assert float(row["ln_gain"]) == -0.2
    assert row["predicted_ln_gain"] == ""  # it is of one step count
    assert "two step counts took turns: its figures are of both" in words_of(study)
    assert of_their_configuration(study.trials) == study.trials[:-1]


# --- what it says beside the answer


def test_the_measured_gain_of_a_cell_is_that_of_the_measured_figures_beside_it(tmp_path):
    study = make_study()
    write_data(study_page(study, UNREAD), tmp_path)
    for row in rows_of(tmp_path / "study_cells.csv"):
        ratio = float(row["deployed_value"]) / float(row["baseline_value"])
        assert math.isclose(float(row["ln_gain"]), math.log(ratio), abs_tol=1e-9)
    assert "it need not be that ratio" in words_of(study)


def test_what_was_not_launched_has_an_estimated_gain_alone(tmp_path):
    write_data(study_page(make_study(answer="undecided", deploy=7), UNREAD), tmp_path)
    for row in rows_of(tmp_path / "study_cells.csv"):
        assert not {"deployed_value", "ln_gain"} & row.keys()  # empty columns are left out
        assert row["estimated_ln_gain"]


def test_gains_of_cells_are_over_the_baseline_that_the_answer_is_over(tmp_path):
    study = make_study()
    other = study.configurations[15].cell_gain  # off with NCCL_PROTO=LL
    better = replace(study, conclusion=replace(study.conclusion, baseline=15))
    write_data(study_page(better, UNREAD), tmp_path)
    for at, row in enumerate(rows_of(tmp_path / "study_cells.csv")):
        told = float(row["estimated_ln_gain"])
        assert math.isclose(told, study.conclusion.cells[at].gain - other[at], abs_tol=1e-9)


def test_the_environment_is_whole_and_without_secrets():
    told = (("HF_TOKEN", "[redacted]"), ("NCCL_DEBUG", "WARN"), ("NCCL_PROTO", "LL"))
    page = study_page(replace(make_study(deploy=18), environment=told), UNREAD)
    first = next(b for b in blocks_of(page) if isinstance(b, Command))
    assert first.title == "Environment variables"
    assert first.text.splitlines() == [
        "# HF_TOKEN holds a secret: export it before.",
        "export NCCL_DEBUG=WARN",
        "export NCCL_PROTO=LL",
    ]
    assert "It needs no environment variables." in words_of(replace(make_study(), environment=()))


def test_the_space_is_counted_as_before_the_sweep(tmp_path):
    study = replace(make_study(), counts=SpaceCounts(raw=98, looked_at=98, legal=94, distinct=29))
    write_data(study_page(study, UNREAD), tmp_path)
    counted = {row["what"]: int(row["count"]) for row in rows_of(tmp_path / "space.csv")}
    assert counted["distinct (without speculation counted)"] == 29
    assert counted["for comparison alone: SGLang's adaptive mode"] == 1
    assert counted["legal"] == 94


def test_of_a_space_that_is_held_in_part_the_whole_is_counted(tmp_path):
    study = replace(
        make_study(), counts=SpaceCounts(raw=5000, looked_at=400, legal=390, distinct=210)
    )
    write_data(study_page(study, UNREAD), tmp_path)
    counted = {row["what"]: int(row["count"]) for row in rows_of(tmp_path / "space.csv")}
    assert counted["points of the axes"] == 5000
    assert counted["distinct, at least (without speculation counted)"] == 210


def test_what_is_kept_is_named_once_and_why_is_a_sentence():
    kept = study_sentences(make_study(answer="keep_present", present=3))[0]
    assert kept.count("EAGLE3 3-1-4") == 1
    assert "by more than noise. It is at +74.0 %" in kept
    study = make_study(answer="undecided")
    why = "only one of the final's 2 blocks is whole, and a verdict needs two"
    told = study_sentences(replace(study, conclusion=replace(study.conclusion, reason=why)))[0]
    assert "decides nothing. Only one of the final's" in told


def test_with_one_workload_loads_are_named_as_such():
    study = make_study()
    cells = tuple(replace(c, workload="chat", load=str(8**at)) for at, c in enumerate(study.cells))
    assert "accept length load 8" in words_of(replace(study, cells=cells))
    assert "chat-2k · 8" in words_of(study)


def test_limits_are_said_in_words():
    told = words_of(make_study())
    assert "Limits to keep: p99 TPOT at most 100 ms." in told


# --- the axes, predictions, communication


@given(
    steps=st.lists(st.floats(-0.3, 0.3), min_size=8, max_size=8),
    other=st.floats(-0.2, 0.2),
)
@settings(deadline=None, max_examples=50)
def test_effects_of_axes_that_add_up_are_exact(steps, other):
    study = make_study()
    chains = [c for c in study.configurations if c.eagle_topk in {None, 1}]
    told = [
        replace(
            c,
            excluded=None,
            gain=(steps[c.num_steps - 1] if c.num_steps else 0.0)
            + (other if c.environment else 0),
        )
        for c in chains
    ]
    effects = effects_of(replace(study, configurations=tuple(told)))
    by_steps = [e for e in effects if e.axis == "steps"]
    assert by_steps[0].reference is None
    for e in by_steps[1:]:
        assert math.isclose(e.gain, steps[int(e.value) - 1] - steps[0], abs_tol=1e-12)
        assert e.matched == 2
    (variable,) = [e for e in effects if e.axis == "NCCL_PROTO" and e.reference]
    assert math.isclose(variable.gain, other, abs_tol=1e-12)


def test_settings_that_move_together_are_one_axis():
    study = make_study()
    told = tuple(
        replace(c, environment=(*c.environment, ("NCCL_ALGO", "Ring"))) if c.environment else c
        for c in study.configurations
    )
    (effect,) = [
        e
        for e in effects_of(replace(study, configurations=told))
        if e.axis.startswith("NCCL") and e.reference
    ]
    assert (effect.axis, effect.value) == ("NCCL_PROTO, NCCL_ALGO", "LL, Ring")
    assert effect.matched == 13


def test_an_axis_with_one_value_is_none():
    study = make_study()
    alike = tuple(
        c for c in study.configurations if not c.environment and c.eagle_topk in {None, 1}
    )
    assert {e.axis for e in effects_of(replace(study, configurations=alike))} == {"steps"}


@given(shift=st.floats(-0.1, 0.1), sd=st.floats(0.001, 0.1))
@settings(deadline=None, max_examples=50)
def test_how_good_predictions_were_is_counted(shift, sd):
    study = make_study()
    trials = tuple(
        replace(t, predicted_gain=t.gain - shift, predicted_gain_sd=sd)
        if t.gain is not None and t.predicted_gain is not None
        else t
        for t in study.trials
    )
    predictions = gain_predictions(replace(study, trials=trials))
    accuracy = accuracy_of(predictions)
    assert accuracy.count == sum(t.configuration != 0 and t.gain is not None for t in study.trials)
    assert math.isclose(accuracy.error, math.expm1(shift), abs_tol=1e-12)
    assert math.isclose(accuracy.absolute_error, abs(accuracy.error), abs_tol=1e-12)
    if abs(abs(shift) - 1.96 * sd) > 1e-9:
        assert accuracy.covered == (accuracy.count if abs(shift) < 1.96 * sd else 0)
    firsts = [p.trial for p in predictions if p.first]
    assert len({study.trials[n].configuration for n in firsts}) == len(firsts)
    assert accuracy_of(()) is None


def test_one_prediction_has_one_error_on_the_page(tmp_path):
    study = make_study()
    trials = tuple(
        replace(t, predicted_gain=t.gain + 0.4345 if t.number == 4 else None) for t in study.trials
    )
    page = study_page(replace(study, trials=trials), UNREAD)
    table = next(b for b in blocks_of(page) if getattr(b, "name", "") == "prediction_accuracy")
    _, _, count, error, absolute, _ = (value.text for value in table.rows[0])
    assert (count, error, absolute) == ("1", "−35.24 %", "35.24 %")


@pytest.mark.parametrize(
    ("ahead", "launches", "winner", "sure"),
    [
        (0.2, 1, "NCCL_PROTO=LL", "beyond noise"),
        (0.001, 1, "as the server chooses", "within noise"),
        (0.2, 0, "as the server chooses", "predicted, not measured"),
        (-0.2, 1, "as the server chooses", "best other: NCCL_PROTO=LL"),
    ],
)
def test_a_winner_of_communication_is_beyond_noise(tmp_path, ahead, launches, winner, sure):
    study = make_study()
    plain = study.configurations[3]
    other = replace(
        study.configurations[18],
        launches=launches,
        cell_gain=tuple(gain + ahead for gain in plain.cell_gain),
    )
    told = (*study.configurations[:18], other, *study.configurations[19:])
    study = replace(study, configurations=told)
    assert [c.default for c in communications_of(study)] == [True, False]
    write_data(study_page(study, UNREAD), tmp_path)
    rows = rows_of(tmp_path / "communication_winners.csv")
    assert {row["winner"] for row in rows} == {winner}
    assert all(sure in row["says"] for row in rows)
    assert all(math.isclose(float(row["ln_gain"]), ahead, abs_tol=1e-9) for row in rows)


def test_without_such_axes_there_is_no_communication():
    study = make_study()
    study = replace(
        study,
        configurations=study.configurations[:15],
        trials=tuple(replace(t, also_excluded=()) for t in study.trials if t.configuration < 15),
    )
    assert communications_of(study) == ()
    page = study_page(study, UNREAD)
    assert not next(s for s in page.sections if s.anchor == "communication").blocks


# --- in its folder


def test_it_is_written_beside_the_study(tmp_path):
    folder = study_folder(tmp_path, make_study(law=LOSING, answer="leave_off"))
    file = write_study_page(folder)
    assert file == folder / STUDY_PAGE
    assert "Leave speculation off" in file.read_text()
    assert str(tmp_path) not in file.read_text()


def test_a_run_that_is_no_study_is_refused(run):
    with pytest.raises(StoreError, match="is no study"):
        write_study_page(run.folder)


def test_the_run_of_a_study_points_to_its_page(tmp_path):
    stored = stored_run(tmp_path, more_arms=12, pairs=1, loads=(1,), per_slot=2)
    write_study(stored.folder, make_study())
    stored = replace(stored, comparisons=())
    page = run_page(stored)
    assert page.answer[0].startswith("These are the launches of a tuning study.")
    told = " ".join(read(page_html(page)).text)
    assert f"`tuner report {stored.run_id}` writes the study's page." in told
    assert "The first 8 of 13 arms." in told
    write_study_page(stored.folder)
    assert ("href", STUDY_PAGE) in read(page_html(run_page(stored))).attributes


def test_the_verdicts_word_is_on_the_page():
    study = make_study()
    for verdict in Verdict:
        told = replace(study, conclusion=replace(study.conclusion, verdict=verdict))
        assert verdict.value in study_sentences(told)[0]


def test_the_file_is_read_as_it_was_written(tmp_path):
    study = make_study(simulated=True)
    folder = study_folder(tmp_path, study)
    html = write_study_page(folder).read_text()
    plain = json.loads((folder / "study.json").read_text())
    assert f"{signed(plain['conclusion']['gain'])} % tok/s" in html


def test_a_short_final_says_how_often_each_was_launched():
    study = make_study()
    final = [t for t in study.trials if t.block is not None]
    places = {study.conclusion.best, study.conclusion.baseline}
    assert {t.configuration for t in final} >= places
    kept = [
        t
        for t in study.trials
        if t.block in {None, 0} or (t.block == 1 and t.configuration == study.conclusion.best)
    ]
    short = replace(study, trials=tuple(kept))
    [line] = [s for s in study_sentences(short) if "confirmed" in s]
    assert "confirmed in 2 launches beside 1 of speculation off: FASTER" in line
