"""Study files that are damaged: what each command says, and that the others are not in the way."""

import json

import pytest
from studies import make_study, study_folder
from typer.testing import CliRunner

from bench.errors import StoreError
from bench.store.manifest import read_manifest
from bench.store.study import JOURNAL, STUDY, read_study
from tuner.cli.commands import app
from tuner.space import Configuration
from tuner.study.journal import open_journal

TEXT = '{"format": 1, "trials": ' + "[" * 100_000


@pytest.fixture
def folder(tmp_path):
    return study_folder(tmp_path / "results", make_study())


def damaged(folder, *keys, value):
    """The folder, with one value of its study.json otherwise."""
    plain = json.loads((folder / STUDY).read_text())
    at = plain
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    (folder / STUDY).write_text(json.dumps(plain))


DAMAGES = [
    (("conclusion", "deploy"), 99, "its conclusion's `deploy` is configuration 99 of 30"),
    (("conclusion", "best"), 99, "its conclusion's `best` is configuration 99 of 30"),
    (("conclusion", "baseline"), -1, "its conclusion's `baseline` is configuration -1 of 30"),
    (("conclusion", "present"), 30, "its conclusion's `present` is configuration 30 of 30"),
    (("conclusion", "answer"), "maybe", "its conclusion's answer is 'maybe'"),
    (("conclusion", "gain"), 1e6, "its conclusion has `gain` 1e+06, which no log ratio is"),
    (("conclusion", "cells", 1, "best"), 99, "cell 1 has as best configuration 99 of 30"),
    (("conclusion", "cells", 1, "cell"), 4, "its conclusion has cell 4 of 4"),
    (("configurations",), [], "it has no configurations"),
    (("configurations", 4, "place"), 5, "configuration 4 says that it is configuration 5"),
    (("configurations", 4, "cell_gain"), [0.1], "configuration 4 has `cell_gain` of 1 cells"),
    (("configurations", 4, "accept_len_tok"), [], "has `accept_len_tok` of 0 cells where"),
    (("configurations", 4, "gain"), 1e6, "configuration 4 has `gain` 1e+06"),
    (("cells",), [], "it has no cells"),
    (("trials", 1, "configuration"), 999, "trial 1 is of configuration 999 of 30"),
    (("trials", 1, "configuration"), -3, "trial 1 is of configuration -3 of 30"),
    (("trials", 1, "also_excluded"), [30], "trial 1 excludes configuration 30 of 30"),
    (("trials", 1, "value"), [1.0], "trial 1 has `value` of 1 cells where the study has 4"),
    (("trials", 1, "tpot_p99_ms"), [], "trial 1 has `tpot_p99_ms` of 0 cells"),
    (("trials", 1, "started_at"), "yesterday", "trial 1 has the time 'yesterday'"),
    (("trials", 1, "ended_at"), "2026-11-30T01:00:00", "which is no ISO 8601 time in UTC"),
    (("present",), 77, "what is in use configuration 77 of 30"),
    (("objective",), "beauty", "its objective is 'beauty'"),
    (("launch_sd",), 1e300, "the study has `launch_sd` 1e+300"),
    (("speed",), 0, "its clock's speed is 0"),
]


@pytest.mark.parametrize(("keys", "value", "why"), DAMAGES)
def test_a_study_that_does_not_hold_together_is_none(folder, keys, value, why):
    assert read_study(folder) == make_study()
    damaged(folder, *keys, value=value)
    with pytest.raises(StoreError) as refused:
        read_study(folder)
    assert str(refused.value).startswith(f"{folder / STUDY} does not hold together: ")
    assert why in str(refused.value)
    assert f"bench show {folder.name}" in refused.value.hint


@pytest.mark.parametrize("command", ["show", "export", "report"])
def test_commands_refuse_it(folder, command):
    damaged(folder, "conclusion", "deploy", value=99)
    told = CliRunner().invoke(app, [command, str(folder)])
    assert isinstance(told.exception, StoreError)  # `main` makes exit 2 and two lines of it
    assert "does not hold together" in str(told.exception)


def test_status_lists_the_others(folder, tmp_path):
    other = folder.with_name(folder.name.replace("1a2b3c", "000000"))
    other.mkdir()
    (other / STUDY).write_bytes((folder / STUDY).read_bytes())
    damaged(other, "cells", value=[])
    told = CliRunner().invoke(app, ["status", "--out", str(tmp_path / "results")])
    assert told.exit_code == 0
    assert f"{folder.name}  complete" in told.stdout
    assert f"{other / STUDY} does not hold together: it has no cells." in told.stderr


def test_json_nested_without_end_is_damage_like_any_other(folder):
    (folder / STUDY).write_text(TEXT)
    with pytest.raises(StoreError, match="cannot be read"):
        read_study(folder)
    (folder / "manifest.json").write_text(TEXT)
    with pytest.raises(StoreError, match="is damaged"):
        read_manifest(folder)


def test_a_stopped_study_is_made_anew_from_its_journal(folder):
    part = folder.rename(folder.with_name(f".partial-{folder.name}"))
    (part / JOURNAL).touch()
    (part / STUDY).write_text("{")
    with pytest.raises(StoreError) as refused:
        read_study(part)
    assert refused.value.hint == (
        f"`tuner resume {folder.name}` makes it anew from the study's journal."
    )


# ---------------------------------------------------------------------------------- the journal


def opened(folder, study):
    """The journal of a study's folder, as a sweep that is taken up opens it."""
    space = tuple(
        Configuration(
            algorithm=c.algorithm,
            num_steps=c.num_steps,
            eagle_topk=c.eagle_topk,
            num_draft_tokens=c.num_draft_tokens,
            environment=c.environment,
        )
        for c in study.configurations
    )
    return open_journal(folder, study.study_id, space, study.trials)


LINES = ["[]", "7", "null", '"text"', "{}", '{"op_code": "1"}', '{"op_code": 4, "trial_id": []}']


@pytest.mark.parametrize("line", [*LINES, '{"op_code": 1, "worker_id": ' + "[" * 100_000])
@pytest.mark.parametrize("is_first", [True, False])
def test_json_that_is_no_line_of_a_journal_is_damage(folder, line, is_first):
    study = make_study()
    if not is_first:
        opened(folder, study)
    with (folder / JOURNAL).open("a") as journal:
        journal.write(f"{line}\n")
    assert opened(folder, study).trials() == list(study.trials)
    assert line in (folder / "study.damaged").read_text()
    assert opened(folder, study).trials() == list(study.trials)


@pytest.mark.parametrize(("key", "value"), [("configuration", 999), ("number", 7), ("value", 1)])
def test_a_journal_that_does_not_hold_together_is_made_anew(folder, key, value):
    study = make_study()
    opened(folder, study)
    text = (folder / JOURNAL).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    told = [line["user_attrs"]["trial"] for line in lines if "trial" in line.get("user_attrs", {})]
    told[1][key] = value
    (folder / JOURNAL).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert opened(folder, study).trials() == list(study.trials)
    assert (folder / "study.damaged").is_file()
