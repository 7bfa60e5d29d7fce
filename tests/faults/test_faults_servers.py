"""Faults of the whole server: starts that fail, servers that die, hang or will not end."""

import pytest
from rehearsal import SPECULATIVE, rehearse

from bench.errors import ServerError


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    """A run whose arms start slowly, fail to start or hang in it."""
    arms = {
        "baseline": ["slow-boot:s=10", "ignore-term"],
        "no-room": ["oom-load"],
        "no-room-for-graphs": ["oom-capture"],
        "stuck": ["hang-capture"],
    }
    return rehearse(tmp_path_factory.mktemp("starts"), arms, timeouts={"ready_s": 30, "term_s": 2})


def test_a_slow_start_is_waited_for_and_told(starts):
    (launch,) = starts.launches("baseline")
    assert launch.failure is None
    assert launch.ready_ns - launch.started_ns > 10e9
    assert starts.log("baseline").count("Multi-thread loading shards") == 10
    assert starts.cell("baseline").failed_ct == 0


def test_a_server_that_ignores_term_is_killed(starts):
    assert starts.launches("baseline")[0].exit_code == -9


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ("no-room", "cuda_oom: torch.OutOfMemoryError: CUDA out of memory."),
        ("no-room-for-graphs", "CUDA out of memory"),
        ("stuck", "hang_in_graph_capture"),
    ],
)
def test_a_start_that_fails_is_told_with_its_kind_and_the_others_are_measured(starts, arm, told):
    (launch,) = starts.launches(arm)
    assert launch.ready_ns is None
    message = starts.message(arm, "launch_failed")
    assert told in message
    assert f"logs/{launch.launch_id}.log" in message
    assert {m.arm for m in starts.run.measurements} == {"baseline"}


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """A run whose servers die or hang in the first start, or in every one."""
    hung = {"sim": {"faults": ["hang:cell=1:launch=*-p0"]}, "speculative": SPECULATIVE}
    watched = {
        "sim": {"faults": ["hang:cell=1:launch=*-p0"]},
        "speculative": SPECULATIVE,
        "arguments": ["--watchdog-timeout 3"],
    }
    arms = {
        "baseline": ["crash:cell=2:after=2:launch=*-p0"],
        "hangs": hung,
        "watched": watched,
        "dies": ["crash:cell=1"],
    }
    return rehearse(
        tmp_path_factory.mktemp("deaths"),
        arms,
        loads={"concurrency": [1, 2]},
        timeouts={"request_s": 6, "drain_s": 2},
        overrides=("sim.measure.requests_per_slot=1",),
    )


def loads(run, arm):
    return {m.load: m.failed_ct for m in run.run.measurements if m.arm == arm}


def test_a_server_that_crashes_is_started_again_and_no_cell_is_lost(deaths):
    assert loads(deaths, "baseline") == {"1": 0, "2": 0}
    died, again = deaths.launches("baseline")
    assert (died.exit_code, again.failure) == (-9, None)
    assert "at load 2 of chat: cuda_illegal_access: torch.AcceleratorError" in died.failure
    of_cells = [m.launch_id for m in deaths.run.measurements if m.arm == "baseline"]
    assert of_cells == [died.launch_id, again.launch_id]
    assert again.launch_id in deaths.message("baseline", "launch_split")


def test_requests_of_a_server_that_hangs_time_out_and_it_is_started_again(deaths):
    found = loads(deaths, "hangs")
    assert found["2"] == 0
    assert found["1"] == deaths.cell("hangs", "1").request_ct
    assert dict(deaths.cell("hangs", "1").failures_by_kind) == {"timeout": found["1"]}
    assert deaths.cell("hangs", "1").status == "INVALID"
    hung, again = deaths.launches("hangs")
    assert "it still had requests" in hung.failure
    assert again.failure is None


def test_a_server_that_its_watchdog_ends_is_started_again(deaths):
    assert loads(deaths, "watched") == {"1": 0, "2": 0}
    died, again = deaths.launches("watched")
    assert "hang: " in died.failure
    assert "watchdog timeout" in died.failure
    assert again.failure is None


def test_a_server_that_always_dies_costs_its_own_cells_alone(deaths):
    assert loads(deaths, "dies") == {}
    assert len(deaths.launches("dies")) == 2
    assert "cuda_illegal_access" in deaths.message("dies", "launch_failed")


def test_a_run_of_which_nothing_is_left_says_why(tmp_path):
    with pytest.raises(ServerError, match="no cell was measured") as caught:
        rehearse(tmp_path, {"baseline": ["oom-load"]})
    assert "cuda_oom" in str(caught.value)
    assert "lower --mem-fraction-static" in (caught.value.hint or "")
