"""Random faults at random times: a run ends whole, consistent and with no process left.

`SPECDYNO_ENDURANCE_H=1` makes it an hour of simulated time (about ten minutes of the world).
"""

import math
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from ordeal import SPEED, Ordeal

HOURS = float(os.environ.get("SPECDYNO_ENDURANCE_H", "0"))
EXAMPLE_S = 40.0
"""Simulated seconds that an example takes at least."""
EXAMPLES = max(2, math.ceil(HOURS * 3600 / EXAMPLE_S))

FIRST = "launch=*-p0"  # not those started again

of_starts = st.sampled_from(
    ["slow-boot:s=4", f"oom-load:{FIRST}", f"oom-capture:{FIRST}", f"hang-capture:{FIRST}"]
)
of_servers = st.builds(
    "{}:{}:{}".format,
    st.sampled_from(["crash", "hang"]),
    st.sampled_from(["cell=1", "cell=1:after=2", "cell=1:at=0.3", "at=0.5", "at=0.8"]),
    st.just(FIRST),
)
of_states = st.sampled_from(
    [
        *("throttle:by=2", "drift:per_min=5", "counters:cell=1", "clock-step:s=-86400"),
        *("accept-collapse:cell=1", "ignore-term", "nan", "long-lines:cell=1"),
    ]
)
of_requests = st.builds(
    "{}:cell=1:p={}".format,
    st.sampled_from(
        ["stall:s=0.5", "stall", "error", "reset", "status-503", "status-400", "repeat"]
    ),
    st.sampled_from([0.05, 0.3]),
)
faults = st.lists(st.one_of(of_states, of_requests, of_servers, of_starts), max_size=3)
# The baseline has no drafts whose acceptance could collapse: such a plan is refused.
faults_of_baseline = faults.map(
    lambda drawn: [fault for fault in drawn if not fault.startswith("accept-collapse")]
)
blows = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "INT",
                "TERM",
                "KILL",
                "bench.simulator",
                "bench.load.worker",
                "bench.server.supervisor",
            ]
        ),
        st.floats(0.2, 4.0),
    ),
    min_size=1,
    max_size=3,
)
spent_s = []
"""Simulated seconds of each example so far."""


@pytest.mark.timeout(300 if HOURS == 0 else HOURS * 7200)
@seed(20261129)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(baseline=faults_of_baseline, arm=faults, blows=blows)
def test_random_faults_and_blows_end_in_a_whole_run(baseline, arm, blows):
    if HOURS and sum(spent_s) > HOURS * 3600:
        return
    with tempfile.TemporaryDirectory(prefix="specdyno-ordeal-") as folder:
        ordeal = Ordeal(Path(folder), {"baseline": baseline, "eagle3": arm})
        published = ordeal.go_through(blows)
        ordeal.is_consistent(published)
    spent_s.append(ordeal.world_s * SPEED)
    print(f"{sum(spent_s):.0f} simulated seconds: {baseline} {arm} {blows}")
