"""The examples of docs/examples/nightly do what they say, with a stand-in for bench."""

import configparser
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from bench.nightly import load_suite, watch_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "nightly"


@pytest.fixture
def stand_in(tmp_path):
    """A bench that writes down its arguments and ends as it is told; and an sbatch likewise."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for place in (tmp_path / ".venv" / "bin" / "bench", tmp_path / "bench", tmp_path / "sbatch"):
        name = place.name
        place.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.asked\n'
            f'trap "echo stopped >> {tmp_path}/{name}.asked; exit 130" TERM\n'
            f"[ {name} = bench ] || exit 0\n"
            'if [ "$BENCH_SLEEPS" ]; then sleep 60 & wait $!; fi\nexit "${BENCH_ENDS:-0}"\n'
        )
        place.chmod(0o755)
    return tmp_path


def environment(stand_in, **more):
    path = f"{stand_in}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SLURM_SUBMIT_DIR": str(stand_in), **more}


def asked(stand_in, name="bench"):
    return (stand_in / f"{name}.asked").read_text().splitlines()


def test_the_suite_is_one():
    suite = load_suite(EXAMPLES / "suite.yaml")
    assert watch_of(suite).scenarios == ("quick",)


@pytest.mark.parametrize("ends", [0, 3, 5])
def test_slurm_ends_as_the_night_does_and_queues_the_next(stand_in, ends):
    script = str(EXAMPLES / "nightly.sbatch")
    done = subprocess.run(
        ["bash", script], env=environment(stand_in, BENCH_ENDS=str(ends)), check=False
    )
    assert done.returncode == ends
    assert asked(stand_in) == ["nightly run suite.yaml --quiet"]
    assert asked(stand_in, "sbatch") == [f"--begin=tomorrow+2hours {script}"]


def test_slurms_term_reaches_bench(stand_in):
    script = str(EXAMPLES / "nightly.sbatch")
    with subprocess.Popen(["bash", script], env=environment(stand_in, BENCH_SLEEPS="1")) as job:
        for _ in range(500):
            if (stand_in / "bench.asked").exists():
                break
            time.sleep(0.02)
        time.sleep(0.2)
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=30) == 130
    assert asked(stand_in)[-1] == "stopped"


@pytest.mark.parametrize("ends", [0, 5])
def test_the_github_step_ends_as_the_night_does(stand_in, ends):
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    steps = workflow["jobs"]["nightly"]["steps"]
    [step] = [step for step in steps if "run" in step]
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env=environment(stand_in, BENCH_ENDS=str(ends), **step["env"]),
        check=False,
    )
    assert done.returncode == ends
    [words] = asked(stand_in)
    assert words.startswith("nightly run suite.yaml --quiet --history /srv/specdyno/nightly")
    [kept] = [step for step in steps if step.get("if") == "always()"]
    assert "/srv/specdyno/nightly/index.html" in kept["with"]["path"]


def test_the_systemd_units_are_sound():
    units = {
        name: configparser.ConfigParser(strict=False, interpolation=None)
        for name in ("specdyno-nightly.service", "specdyno-nightly.timer")
    }
    for name, unit in units.items():
        unit.read(EXAMPLES / name)
    service = units["specdyno-nightly.service"]["Service"]
    assert service["Type"] == "oneshot"
    assert "nightly run" in service["ExecStart"]
    assert "OnCalendar" in units["specdyno-nightly.timer"]["Timer"]
    if shutil.which("systemd-analyze"):
        calendar = units["specdyno-nightly.timer"]["Timer"]["OnCalendar"]
        subprocess.run(["systemd-analyze", "calendar", calendar], check=True, capture_output=True)


def test_every_option_of_the_examples_is_one():
    from typer.main import get_command

    from bench.cli.nightly import app

    command = get_command(app)
    known = {option for p in command.commands["run"].params for option in p.opts}
    for path in EXAMPLES.iterdir():
        for line in path.read_text().splitlines():
            if "nightly run" in line and not line.lstrip().startswith("#"):
                words = line.partition("nightly run")[2].split()
                assert {word for word in words if word.startswith("--")} <= known, path
