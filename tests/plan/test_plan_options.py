from __future__ import annotations

import pytest

from bench.errors import InputError, ScenarioError
from bench.model import KeySource
from bench.plan import make_plan

CHAIN = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
URL = "http://127.0.0.1:30000"


def _points(plan) -> set[tuple[str, str, str, int]]:
    return {
        (cell.arm, cell.workload.name, cell.load.label, cell.pair)
        for launch in plan.launches
        for cell in launch.cells
    }


def test_only_leaves_what_has_any_of_a_keys_values_and_all_keys(loaded, small):
    whole = make_plan(loaded(small))
    plan = make_plan(
        loaded(small),
        only=["load=1", "load=rate=2", "load=2", "pair=1", "workload=chat"],
    )
    assert _points(plan) == {
        (arm, "chat", load, 1) for arm in ("baseline", "eagle3") for load in ("1", "rate=2")
    }
    by_id = {cell.cell_id: cell for launch in whole.launches for cell in launch.cells}
    for launch in plan.launches:
        for cell in launch.cells:
            assert cell == by_id[cell.cell_id]


def test_only_an_arm_keeps_the_baseline(loaded, small):
    small["arms"]["more"] = {"speculative": CHAIN}
    plan = make_plan(loaded(small), only=["arm=more", "pair=0"])
    assert plan.arms == ("baseline", "more")
    assert [launch.arm for launch in plan.launches] == ["baseline", "more"]
    alone = make_plan(loaded(small), only=["arm=baseline"])
    assert {launch.arm for launch in alone.launches} == {"baseline"}


def test_a_filter_does_not_change_the_work_or_the_speed(loaded, with_sim):
    whole = make_plan(loaded(with_sim), simulated=True)
    part = make_plan(loaded(with_sim), simulated=True, only=["load=1", "arm=baseline"])
    assert part.speed == whole.speed
    ids = {cell.cell_id for launch in whole.launches for cell in launch.cells}
    assert all(cell.cell_id in ids for launch in part.launches for cell in launch.cells)


@pytest.mark.parametrize(
    ("only", "found", "hint"),
    [
        (["arm=eagel3"], "no arm called 'eagel3'", "arm=baseline, arm=eagle3"),
        (["load=4"], "no load called '4'", "load=1, load=8, load=rate=2, load=2"),
        (["pair=3"], "no pair called '3'", "pair=0, pair=1, pair=2"),
        (["workload="], "no workload called ''", "workload=chat, workload=long"),
        (["arms=x"], "arm, workload, load, pair", "--only arm=baseline"),
        (["baseline"], "wanted KEY=VALUE", "--only arm=baseline"),
        (["workload=long", "load=8"], "no cell has all of these", "loads of its own"),
    ],
)
def test_only_what_there_is_not(loaded, small, only, found, hint):
    with pytest.raises(InputError) as caught:
        make_plan(loaded(small), only=only)
    assert found in str(caught.value)
    assert hint in caught.value.hint


# ------------------------------------------------------------------------------------- attached


def test_attached_servers_are_one_pair_without_starts(loaded, small):
    plan = make_plan(loaded(small), attach={"eagle3": URL + "/", "baseline": "https://h/x"})
    assert plan.pairs == 1
    assert {(launch.arm, launch.server.url) for launch in plan.launches} == {
        ("baseline", "https://h/x"),
        ("eagle3", URL),
    }
    for launch in plan.launches:
        assert (launch.server.launcher, launch.server.command) == ("attached", ())
    assert "--speculative-num-steps" in plan.launches[1].server.arguments  # what it should be


def test_cells_of_attached_servers_alternate(loaded, small):
    plan = make_plan(loaded(small), attach={"eagle3": URL, "baseline": "https://h/x"})
    assert [launch.ordinal for launch in plan.launches] == list(range(8))
    assert all(len(launch.cells) == 1 for launch in plan.launches)
    order = [(launch.arm, launch.cells[0].load.label) for launch in plan.launches]
    assert order[:4] == [("baseline", "1"), ("eagle3", "1"), ("eagle3", "8"), ("baseline", "8")]
    alone = make_plan(loaded(small), attach={"eagle3": URL})
    assert [len(launch.cells) for launch in alone.launches] == [4]


def test_an_attached_server_is_read_only_unless_it_is_exclusive(loaded, small):
    key = KeySource(kind="env", place="MY_KEY")
    for exclusive in (False, True):
        plan = make_plan(loaded(small), attach={"": URL}, exclusive=exclusive, api_key=key)
        server = plan.launches[0].server
        assert (server.exclusive, server.api_key) == (exclusive, key)


def test_an_admin_key_comes_from_the_option_or_the_scenario(loaded, small):
    small["server"]["admin_api_key"] = {"env": "OURS"}
    ours, theirs = (KeySource(kind="env", place=place) for place in ("OURS", "THEIRS"))
    for option, used in ((None, ours), (theirs, theirs)):
        plan = make_plan(loaded(small), attach={"": URL}, admin_api_key=option)
        assert plan.launches[0].server.admin_api_key == used
        assert plan.launches[0].server.api_key is None
    assert make_plan(loaded(small)).launches[0].server.admin_api_key == ours


def test_workers_are_the_servers_or_an_arms_own(loaded, small):
    small["server"]["worker_urls"] = ["http://w1:30000/", "http://w2:30000"]
    small["arms"]["eagle3"]["worker_urls"] = ["https://w3/x"]
    wanted = {
        "baseline": ("http://w1:30000", "http://w2:30000"),
        "eagle3": ("https://w3/x",),
    }
    for options in ({}, {"attach": {"baseline": URL, "eagle3": "http://r:1"}}):
        plan = make_plan(loaded(small), **options)
        assert {launch.arm: launch.server.worker_urls for launch in plan.launches} == wanted
    small["arms"]["eagle3"]["worker_urls"] = []
    plan = make_plan(loaded(small), only=["arm=eagle3"])
    found = {launch.arm: launch.server.worker_urls for launch in plan.launches}
    assert found["eagle3"] == ()


def test_a_simulated_server_has_no_workers(loaded, with_sim):
    with_sim["server"]["worker_urls"] = ["http://w1:1"]
    plan = make_plan(loaded(with_sim), simulated=True)
    assert {launch.server.worker_urls for launch in plan.launches} == {()}


def test_ids_of_a_server_without_workers_are_what_they_were(loaded, small):
    def ids():
        plan = make_plan(loaded(small))
        return [cell.cell_id for launch in plan.launches for cell in launch.cells]

    before = ids()
    small["server"]["worker_urls"] = []
    assert ids() == before
    small["server"]["worker_urls"] = ["http://w1:1"]
    assert not set(ids()) & set(before)


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        (["w1:30000"], "server.worker_urls.0: 'w1:30000' is no http or https URL"),
        (["http://w1", "http://w1/"], "server.worker_urls.1: 'http://w1/' is given twice"),
        (["http://me:secret-8@w1"], "'w1' has more than scheme, host, port and path"),
        (["http://w1:0"], "has the port 0"),
    ],
)
def test_worker_urls_that_are_none_are_rejected_with_their_line(loaded, small, urls, said):
    small["server"]["worker_urls"] = urls
    with pytest.raises(InputError) as caught:
        make_plan(loaded(small))
    assert said in str(caught.value)
    assert "s.yaml:" in str(caught.value)
    assert "secret-8" not in str(caught.value)


def test_where_a_key_is_read_from_changes_no_id(loaded, small):
    ids = []
    for api_key in ({"env": "A"}, {"file": "./key"}, None):
        small["server"]["api_key"] = small["server"]["admin_api_key"] = api_key
        plan = make_plan(loaded(small))
        ids.append([launch.server_key for launch in plan.launches])
        ids[-1] += [cell.cell_id for launch in plan.launches for cell in launch.cells]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize(
    ("attach", "only", "arms"),
    [
        ({"": URL}, [], ["baseline"]),
        ({"": URL}, ["arm=eagle3"], ["eagle3"]),
        ({"": URL, "eagle3": URL}, [], ["baseline", "eagle3"]),
        ({"eagle3": URL}, [], ["eagle3"]),
        ({}, [], ["baseline", "eagle3"] * 3),
    ],
)
def test_whose_a_url_is(loaded, small, attach, only, arms):
    plan = make_plan(loaded(small), attach=attach, only=only)
    if attach:
        assert list(plan.arms) == sorted(arms)
    else:
        assert sorted(launch.arm for launch in plan.launches) == sorted(arms)


@pytest.mark.parametrize(
    ("attach", "only", "found"),
    [
        ({"eagel3": URL}, [], "no arm called 'eagel3'"),
        ({"": URL, "baseline": URL}, [], "two URLs for the arm baseline"),
        ({"baseline": URL}, ["arm=eagle3"], "no server is attached for it"),
        ({"": "127.0.0.1:30000"}, [], "is no http or https URL"),
        ({"": "http://"}, [], "is no http or https URL"),
        ({"": "http://h:99999"}, [], "is no URL"),
        ({"": "http://[::1"}, [], "is no URL"),
        ({"": "http://h/?a=b"}, [], "more than scheme"),
        ({"": "http://user:secret@h/"}, [], "more than scheme"),
    ],
)
def test_what_cannot_be_attached(loaded, small, attach, only, found):
    with pytest.raises(InputError) as caught:
        make_plan(loaded(small), attach=attach, only=only)
    assert found in str(caught.value)
    assert caught.value.hint


def test_a_secret_in_a_url_is_not_repeated(loaded, small):
    with pytest.raises(InputError) as caught:
        make_plan(loaded(small), attach={"": "http://user:secret@h/"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"simulated": True}, "does not say what is simulated"),
        ({"sim_hardware": "h200-x8"}, "nothing is simulated"),
        ({"simulated": True, "attach": {"": URL}}, "an attached one runs already"),
        ({"add_pairs": -1}, "wanted 0 or more"),
        ({"add_pairs": 1, "attach": {"": URL}}, "are no pairs"),
        ({"exclusive": True}, "no server is attached"),
        ({"api_key": KeySource(kind="env", place="A")}, "--api-key-env: no server is attached"),
        (
            {"admin_api_key": KeySource(kind="file", place="a")},
            "--admin-api-key-file: no server is attached",
        ),
    ],
)
def test_options_that_do_not_go_together(loaded, small, options, found):
    with pytest.raises(InputError) as caught:
        make_plan(loaded(small), **options)
    assert found in str(caught.value)
    assert caught.value.hint


# -------------------------------------------------------------------- rejections with a position


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sim.hardware", "h100-x8", "no hardware card 'h100-x8'"),
        ("sim.target", "kimi", "no target card 'kimi'"),
        ("sim.acceptance", "eagle", "no acceptance card 'eagle'"),
        ("arms.eagle3.sim", {"acceptance": "eagle"}, "no acceptance card 'eagle'"),
        ("arms.eagle3.speculative", {"algorithm": "EAGLE3", "num_steps": 3}, "without"),
        ("arms.eagle3.speculative", {"algorithm": "EAGLE3", "eagle_topk": 1}, "num-steps"),
    ],
)
def test_what_is_rejected_late_has_file_and_line_too(loaded, with_sim, key, value, said):
    *parents, last = key.split(".")
    here = with_sim
    for part in parents:
        here = here[part]
    here[last] = value
    scenario = loaded(with_sim)
    with pytest.raises(ScenarioError) as caught:
        make_plan(scenario)
    where, _, text = str(caught.value).partition(": ")
    line, _, rejected = where.partition(" ")
    assert rejected.startswith(key)
    assert line == scenario.source.position(rejected)
    assert said in text


def test_a_speculative_arm_needs_an_acceptance_to_be_simulated(loaded, with_sim):
    del with_sim["sim"]["acceptance"]
    with pytest.raises(ScenarioError, match=r"s.yaml:\d+ arms.eagle3: how many drafts"):
        make_plan(loaded(with_sim), simulated=True)
    make_plan(loaded(with_sim))  # a real one tells by itself


def test_a_card_of_the_command_line_is_told_as_such(loaded, with_sim):
    with pytest.raises(InputError) as caught:
        make_plan(loaded(with_sim), simulated=True, sim_hardware="h20")
    assert not isinstance(caught.value, ScenarioError)
