"""Apache Otava on the same series, where SPECDYNO_OTAVA names a Python that has it.

It wants versions of numpy and scipy that do not go with ours, so it has an environment of its own:
python3 -m venv DIR && DIR/bin/pip install apache-otava==0.8.0; SPECDYNO_OTAVA=DIR/bin/python.
"""

import json
import os
import subprocess

import numpy as np
import pytest

from bench.nightly.detect import detect

PYTHON = os.environ.get("SPECDYNO_OTAVA")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="SPECDYNO_OTAVA does not name a Python with apache-otava"
)
SCRIPT = """
import json, sys
from otava.analysis import compute_change_points
for series in json.load(sys.stdin):
    found, _ = compute_change_points(series, window_len=30, max_pvalue=0.001, min_magnitude=0.01)
    print(json.dumps([int(change.index) for change in found]))
"""


def otava(series):
    done = subprocess.run(
        [PYTHON, "-c", SCRIPT],
        input=json.dumps(series),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(series):
    return [[move.index for move in found.moves] for found in detect(series)]


def noise(series, nights=90, sd=0.01, seed=0):
    return 100 * np.exp(np.random.default_rng(seed).normal(0, sd, (series, nights)))


def test_both_find_the_same_large_steps():
    y = noise(40)
    y[:, 30:] *= 0.94
    y[:, 60:] *= 1.05
    series = y.tolist()
    for a, b in zip(ours(series), otava(series), strict=True):
        assert len(a) == 2
        for mine in a:
            assert min(abs(mine - theirs) for theirs in b) <= 1


def test_of_quiet_series_and_odd_nights_ours_makes_fewer_alarms():
    quiet = noise(80, seed=1)
    rng = np.random.default_rng(2)
    odd = np.where(rng.random(quiet.shape) < 0.03, quiet * 0.9, quiet)
    for y, most in ((quiet, 1), (odd, 4)):
        series = y.tolist()
        mine = sum(map(bool, ours(series)))
        assert mine <= most
        assert mine < sum(map(bool, otava(series)))
