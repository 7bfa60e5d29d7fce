"""A mistake of the user ends in a message: what was asked, what was found, what to do."""

import json

import pytest
from bench_command import SCENARIOS, TINY, run_bench

QUICK = str(SCENARIOS / "quick.yaml")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("run", "missing.yaml"), 2, ["missing.yaml: no such scenario."]),
        (("run", "."), 2, ["is a folder, not a scenario"]),
        (("run", QUICK, "--only", "arm=x"), 2, ["no arm called 'x'", "arm=baseline, arm=eagle3"]),
        (("run", QUICK, "--only", "foo"), 2, ["wanted KEY=VALUE", "--only arm=baseline"]),
        (("run", QUICK, "--set", "measure.pair=1"), 2, ["measure.pair", "Did you mean pairs?"]),
        (("run", QUICK, "--sim", "--add-pairs", "-1"), 2, ["--add-pairs -1", "0 or more"]),
        (("run", QUICK, "--add-pairs", "many"), 2, ["--add-pairs", "integer"]),
        (("run", QUICK, "--sim", "--attach", "http://x"), 2, ["--sim and --attach"]),
        (("run", QUICK, "--attach", "x"), 2, ["`x` is not a URL", "http://host:port"]),
        (("run", QUICK, "--attach", "x=http://x"), 2, ["no arm called 'x'", "eagle3"]),
        (
            ("run", QUICK, "--attach", "http://a", "--attach", "http://b"),
            2,
            ["no arm twice", "--attach ARM=URL"],
        ),
        (("run", QUICK, "--sim-hardware", "h200-x8"), 2, ["--sim-hardware", "Add --sim"]),
        (("run", QUICK, "--sim", "--sim-hardware", "h100"), 2, ["'h100'", "h200-x8"]),
        (("run",), 2, ["Missing argument 'SCENARIO'"]),
        (("rum",), 2, ["No such command 'rum'"]),
        (("list", "--out", "nowhere"), 2, ["no results folder nowhere", "--out"]),
        (("show", "--out", "nowhere"), 2, ["no results folder nowhere"]),
        (("resume", "latest", "--out", "nowhere"), 2, ["no results folder nowhere"]),
        (("run", TINY, "--sim", "--out", "/dev/null/x"), 3, ["cannot write", "/dev/null/x"]),
    ],
)
def test_a_mistake_is_told(arguments, code, told, bench):
    found, out, err = bench(*arguments)
    assert found == code, err
    assert out == ""
    for text in told:
        assert text in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--attach", "http://127.0.0.1:9"),
            [
                "no cell was measured. Arm baseline: asked to measure the server at http://127.",
                ": no connection to 127.0.0.1:9, connection refused\n       Is the URL right, and",
                "server run?\n       Nothing was measured, and nothing is kept of this run.\n",
                "baseline: measuring the server at http://127.0.0.1:9\n",
            ],
        ),
        (
            ("--set", "server.launcher.command=[/no/such/program]"),
            ["cannot be run", "/no/such/program", "0 of 12 cells stored"],
        ),
    ],
)
def test_a_server_that_cannot_be_had_is_told(options, told, tmp_path):
    code, out, err = run_bench("run", QUICK, *options, cwd=tmp_path)
    assert (code, out) == (3, "")
    for text in told:
        assert text in err


def test_of_a_server_that_does_not_answer_no_part_run_is_left(bench, tmp_path):
    code, _, err = run_bench("run", QUICK, "--attach", "http://127.0.0.1:9", cwd=tmp_path)
    assert code == 3
    assert "ssl" not in err
    assert "launch" not in err  # nothing was launched
    assert bench("list")[1].startswith("no runs in results")


def test_a_message_of_several_lines_has_its_name_on_the_first_alone(bench, tmp_path):
    (tmp_path / "bad.yaml").write_text("name: x\nquestion: y\nserver: {gpu: 8}\n")
    _, _, err = bench("run", "bad.yaml")
    first, *others = err.splitlines()
    assert first.startswith("bench: bad.yaml:")
    assert len(others) > 2
    assert all(line.startswith("       bad.yaml:") for line in others)


@pytest.mark.parametrize("option", ["--api-key", "--admin-api-key"])
def test_a_key_is_read_from_one_place(option, bench):
    code, _, err = bench("run", QUICK, f"{option}-env", "A", f"{option}-file", "b")
    assert code == 2
    assert f"{option}-env and {option}-file" in err
    code, _, err = bench(
        "run", QUICK, "--attach", "http://x", "--exclusive", f"{option}-env", "NO"
    )
    assert code == 2
    assert "the environment variable NO, which is empty or not there" in err


def test_every_mistake_of_a_scenario_is_told_with_its_line(bench, tmp_path):
    (tmp_path / "bad.yaml").write_text("name: x\nquestion: y\nserver: {gpu: 8}\n")
    code, _, err = bench("run", "bad.yaml")
    assert code == 2
    assert "bad.yaml:3 server.gpu: unknown key. Did you mean gpus?" in err
    assert err.count("bad.yaml:") >= 4


def test_a_results_folder_without_runs(bench):
    code, out, _ = bench("list", "--out", ".")
    assert code == 0
    assert "bench run scenarios/quick.yaml --sim" in out
    assert bench("list", "--out", ".", "--json") == (0, '{\n  "runs": []\n}\n', "")
    code, _, err = bench("show", "--out", ".")
    assert code == 2
    assert "no run in" in err
    code, _, err = bench("resume", "latest", "--out", ".")
    assert code == 2
    assert "can be resumed" in err


def test_the_schema_is_json(bench):
    code, out, _ = bench("schema")
    assert code == 0
    assert json.loads(out)["type"] == "object"


def test_simulate_passes_its_arguments_on(tmp_path):
    code, _, err = run_bench("simulate", "--model-path", "x", "--no-such-option", cwd=tmp_path)
    assert code == 2
    assert "--no-such-option" in err
