"""Spaces that are too large to be held: counted, admitted a setting at a time, taken up again."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_sweep_running import Engine, NotStartedError, again, begin, run

from bench.errors import ScenarioError
from bench.model.study import TrialState
from bench.scenario import load_scenario
from bench.sglang.failures import FailureClass
from bench.store.study import JOURNAL, STUDY, read_study, studies_in
from benchmarks import large_space as planted
from tuner.cli.space_text import print_space
from tuner.space import Axes, Configuration, Server, Setting, effective, read_tune
from tuner.space.candidates import candidates_of
from tuner.space.large import (
    MOST_CONFIGURATIONS,
    choice_of,
    counts_of,
    one_change,
    setting_at,
    setting_axes,
)
from tuner.sweep.admitting import (
    Tried,
    fatal_values,
    worth_of_another,
)
from tuner.sweep.beginning import Asked, prepare
from tuner.sweep.events import TrialEnded
from tuner.sweep.policy import SEARCHING, Search
from tuner.sweep.running import Sweep

KIMI = Path(__file__).parents[2] / "scenarios" / "kimi.yaml"
DRAFTS = Axes(algorithms=("EAGLE3",), num_steps=(1, 3), eagle_topk=(1,), num_draft_tokens=(4, 8))
AXES = setting_axes(
    {"--page-size": [None, "16", "64"]},
    {"A": ["1", "2"], "B": [None]},
    {"pair": [Setting(), Setting(environment=(("C", "1"), ("D", "2")))]},
)
VALUES = ", ".join(str(value) for value in range(1, 10))
LARGE = (
    "tune.bundles={}",
    f"tune.environment={{A: [{VALUES}], B: [{VALUES}], C: [{VALUES}], D: [{VALUES}]}}",
)


def prepared(*overrides):
    return prepare(Asked(scenario=KIMI, simulated=True, overrides=overrides))


# ---------------------------------------------------------------------------------------- the axes


def test_the_users_own_value_comes_first_and_axes_of_one_value_are_none():
    assert [axis.name for axis in AXES] == ["--page-size", "A", "pair"]
    assert all(axis.values[0] == Setting() for axis in AXES)
    assert [len(axis.values) for axis in AXES] == [3, 3, 2]


def test_a_choice_is_read_from_the_configuration_that_it_becomes():
    for choice in [(0, 0, 0), (2, 1, 0), (0, 2, 1), (1, 1, 1)]:
        setting = setting_at(AXES, choice)
        asked = Configuration(arguments=setting.arguments, environment=setting.environment)
        configuration, _ = effective(asked, Server())
        assert choice_of(AXES, configuration) == choice


def test_the_axes_take_turns_with_one_change():
    assert list(one_change(AXES)) == [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0), (0, 2, 0)]


def test_what_cannot_be_looked_at_is_counted_as_at_least():
    counts = counts_of(AXES, DRAFTS, Server())
    each = 1 + 2 * 2
    assert (counts.raw, counts.looked_at) == (each * 18, each * 6)
    assert not counts.is_whole
    assert counts.legal == counts.looked_at
    assert counts.distinct == 3 * 6  # off and two chains at each setting


# ---------------------------------------------------------------------------------- the candidates


def test_of_a_small_space_all_is_held():
    candidates = prepared().candidates
    assert candidates.large is None
    assert any(c.environment for c in candidates.searched)


def test_of_a_large_space_the_drafts_at_the_users_own_setting_are_held():
    candidates = prepared(*LARGE).candidates
    large = candidates.large
    assert large.counts.raw == 10**4 * (1 + 6 * 2 * 2)
    assert not large.counts.is_whole
    assert large.counts.distinct == 17 * 37
    assert {c.setting for c in candidates.searched} == {((), ())}
    assert len(candidates.arms) == len(candidates.space.configurations)
    assert candidates.adaptive == len(candidates.searched)
    assert candidates.searched[candidates.present].label == "EAGLE3 3-1-4"


def test_a_space_that_can_be_looked_at_is_counted_as_a_whole():
    values = "[null, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    more = f"tune.environment={{A: {values}, B: {values}}}"
    large = prepared("tune.bundles={}", more).candidates.large
    assert large.counts.is_whole
    assert large.counts.distinct == 17 * 100 > MOST_CONFIGURATIONS


@pytest.mark.parametrize("as_json", [True, False])
def test_a_million_millions_are_counted_and_told(capsys, as_json):
    values = ", ".join(str(value) for value in range(1, 100))
    more = ", ".join(f"V{at}: [{values}]" for at in range(6))
    print_space(prepared("tune.bundles={}", f"tune.environment={{{more}}}"), as_json=as_json)
    told = capsys.readouterr().out
    if as_json:
        found = json.loads(told)
        assert found["raw"] == 10**12 * 25
        assert found["looked_at"] < 25_000
        assert found["held"] == 17 < found["distinct"]
    else:
        assert f"{10**12 * 25} raw points, at least" in told
        assert "Not all points were looked at" in told


@pytest.mark.parametrize(
    ("drafts", "told"),
    [
        (
            [
                "tune.num_steps={from: 1, to: 64}",
                "tune.eagle_topk=[1, 2, 4, 8]",
                "tune.num_draft_tokens={from: 1, to: 1024}",
            ],
            "drafts at one setting are too many",
        ),
        (
            ["tune.num_steps={from: 1, to: 40}", "tune.num_draft_tokens={from: 4, to: 64}"],
            "distinct drafts at one setting are too many",
        ),
    ],
)
def test_too_many_drafts_are_refused(drafts, told):
    loaded = load_scenario(KIMI, [*LARGE, *drafts])
    with pytest.raises(ScenarioError, match=told):
        candidates_of(loaded, read_tune(loaded), simulated=True)


def test_a_setting_that_cannot_matter_is_none_of_a_large_space():
    values = "[null, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    axes = f"tune.environment={{NCCL_NTHREADS: {values}, NCCL_BUFFSIZE: {values}, A: {values}}}"
    large = prepared("sim.hardware=h200-x8", "tune.bundles={}", axes).candidates.large
    assert large.nccl_is_idle
    assert large.at((1, 1, 0)).configurations == ()
    assert large.at((1, 1, 1)).configurations
    assert not prepared("tune.bundles={}", axes).candidates.large.nccl_is_idle


# --------------------------------------------------------------------------------------- admitting


def test_another_setting_is_worth_less_where_those_tried_added_nothing():
    nothing = [Tried(choice=(at,), added=-0.02) for at in range(10)]
    much = [Tried(choice=(at,), added=0.03 * at) for at in range(10)]
    failed = [Tried(choice=(at,), added=None, starts=False) for at in range(10)]
    start = worth_of_another([], 0.02)
    assert worth_of_another(nothing, 0.02) < start / 2
    assert worth_of_another(much, 0.02) > start
    assert 0 < worth_of_another(failed, 0.02) < start / 2
    assert worth_of_another([], 0.10) < start


def test_a_value_is_blamed_where_all_else_has_run():
    tried = [
        Tried(choice=(1, 0, 0), added=None, starts=False),
        Tried(choice=(0, 1, 0), added=0.01),
        Tried(choice=(0, 1, 2), added=None, starts=False),
        Tried(choice=(0, 2, 1), added=None, starts=False),  # one of two
        Tried(choice=(2, 0, 0), added=None),  # started, and broke a limit
    ]
    assert fatal_values(tried) == {(0, 1), (2, 2)}


class Seen:
    """What a search over a planted space launched."""

    def __init__(self, monkeypatch):
        self.launched = []
        original = Search.ask

        def ask(search):
            proposal = original(search)
            if proposal is not None:
                self.launched.append(search.configurations[proposal.configuration])
                self.configurations = search.configurations
            return proposal

        monkeypatch.setattr(Search, "ask", ask)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_setting_off_the_users_own_is_found_in_a_million_configurations(seed, monkeypatch):
    seen = Seen(monkeypatch)
    space = planted.planted(seed)
    own = 100 * (space.best - float(space.drafts.objective.max()))
    regret = planted.ours(space, seed, 40)
    assert own > 10  # what the user's own setting loses, per cent
    assert regret < own / 2
    assert len(seen.launched) <= 40
    # Held: nothing twice, and no more than a launch of each value that does not start.
    assert len(set(seen.configurations)) == len(seen.configurations) <= 1333
    fails = [c for c in seen.launched if space.adds(planted.choice_of(planted.AXES, c)) is None]
    assert len(fails) <= 2


def test_the_same_seed_launches_the_same(monkeypatch):
    first, second = Seen(monkeypatch), Seen(monkeypatch)
    planted.ours(planted.planted(1), 1, 14)
    launched = list(second.launched)
    second.launched.clear()
    planted.ours(planted.planted(1), 1, 14)
    assert second.launched == launched
    assert first.launched == [*launched, *launched]
    assert any(c.environment for c in launched)


# ------------------------------------------------------------------------------------ whole sweeps

TUNE = f"""\
tune:
  num_steps: [1, 2, 3, 4, 5]
  eagle_topk: [1]
  environment: {{A: [{VALUES}], B: [{VALUES}], C: [{VALUES}], D: [{VALUES}]}}
  budget: {{launches: 24}}
"""
ADDS = {"A": {"1": 0.0, "2": -0.05}, "B": {"1": 0.08}, "C": {"1": -0.03}, "D": {"1": 0.06}}


class Machine(Engine):
    """Servers whose variables matter: a value that `ADDS` does not name costs 2 %."""

    def __init__(self):
        super().__init__()
        self.started = []
        self.fatal = set()

    async def start_server(self, config, **rest):
        variables = {n: v for n, v in dict(config.environment).items() if n in ADDS}
        self.started.append(variables)
        if self.fatal & {*variables.items()}:
            raise NotStartedError(FailureClass.BAD_ARGUMENTS)
        server = await super().start_server(config, **rest)
        added = sum(ADDS[n].get(v, -0.02) for n, v in variables.items())
        self.factor *= float(np.exp(-added))
        return server


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    made.install(monkeypatch)
    return made


class Killed(BaseException):
    """As a kill -9 does: nothing is told any more."""


def killed_after(tmp_path, trials):
    """A sweep that is gone when so many launches were over."""
    prepared_, writer = begin(tmp_path, TUNE)

    def on_trial(event):
        if isinstance(event, TrialEnded) and event.trial.number + 1 == trials:
            raise Killed

    async def whole():
        await Sweep(prepared_, writer, on_event=lambda _e: None, on_trial=on_trial).run()

    with writer, pytest.raises(Killed):
        asyncio.run(whole())
    return writer.folder


def searched(study):
    """What was launched before the final, whose order is drawn anew."""
    return [
        study.configurations[t.configuration].label for t in study.trials if t.why in SEARCHING
    ]


def test_a_sweep_finds_the_setting_that_adds_most(machine, tmp_path):
    study = read_study(run(*begin(tmp_path, TUNE)))
    deployed = study.configurations[study.conclusion.deploy]
    assert {("B", "1"), ("D", "1")} <= set(deployed.environment)
    assert deployed.num_steps == 3
    assert study.conclusion.answer == "deploy"
    assert [c.place for c in study.configurations] == list(range(len(study.configurations)))
    assert len({c.arm for c in study.configurations}) == len(study.configurations)
    assert "--speculative-adaptive" in dict(study.configurations[-1].arguments)
    assert any("at least" in note and "distinct" in note for note in study.notes)
    by_place = {c.place: c for c in study.configurations}
    for trial in study.trials:
        if trial.why != "guest":
            assert machine.started[trial.number] == dict(by_place[trial.configuration].environment)


@pytest.mark.parametrize("lost", [None, STUDY, JOURNAL])
def test_a_killed_sweep_goes_on_as_if_it_had_not_been(machine, tmp_path, lost):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = read_study(run(*begin(tmp_path / "whole", TUNE)))
    folder = killed_after(tmp_path / "killed", 10)
    before = read_study(folder)
    assert len(before.configurations) > 7 + 1  # a setting was admitted
    if lost is not None:
        (folder / lost).write_bytes(b"{")
    study = read_study(run(*again(tmp_path / "killed")))
    kept = before.configurations[:-1]  # the adaptive mode comes last
    assert [c.label for c in study.configurations[: len(kept)]] == [c.label for c in kept]
    assert [c.arm for c in study.configurations[: len(kept)]] == [c.arm for c in kept]
    assert searched(study)[:10] == searched(whole)[:10]
    if lost != JOURNAL:  # there the steps between are gone, by which its scales were fitted
        assert searched(study) == searched(whole)
    assert study.conclusion.deploy == whole.conclusion.deploy


def test_a_setting_that_was_cut_off_is_tried_again(machine, tmp_path):
    prepared_, writer = begin(tmp_path, TUNE)

    def loads(_cell):
        if machine.started[-1]:
            raise Killed

    machine.loads = loads
    with pytest.raises(Killed):
        run(prepared_, writer)
    machine.loads = None
    cut_off = machine.started[-1]
    [folder] = studies_in(tmp_path / "results")
    assert read_study(folder).trials[-1].state is TrialState.RUNNING
    study = read_study(run(*again(tmp_path)))
    tried = [v for v in machine.started[machine.started.index(cut_off) + 1 :] if v]
    assert tried[0] == cut_off
    assert study.conclusion.answer == "deploy"


def test_a_setting_that_does_not_start_is_left_with_all_that_have_its_value(machine, tmp_path):
    machine.fatal = {("A", "1"), ("C", "1")}
    study = read_study(run(*begin(tmp_path, TUNE)))
    for value in machine.fatal:
        assert sum(value in variables.items() for variables in machine.started) == 1
    excluded = [c for c in study.configurations if c.excluded]
    assert excluded
    assert all(machine.fatal & {*c.environment} for c in excluded)
    assert {("B", "1"), ("D", "1")} <= set(
        study.configurations[study.conclusion.deploy].environment
    )


def test_guests_keep_their_place_behind_what_is_admitted():
    space = planted.planted(0)
    own = planted.at_setting((0,) * len(planted.SIZES))
    unexplored = planted.unexplored_of(space, 0)
    rules = replace(planted.Rules(budget=9), guests=(len(own),))
    search = Search(unexplored.predictor(own), own, rules, unexplored)
    search.exclude(3, "it crashed")
    search.admit(planted.at_setting((1,) + (0,) * 7)[:2])
    assert search._guests == [len(own) + 2]
    search.admit(planted.at_setting((2,) + (0,) * 7)[:3])
    assert search._guests == [len(own) + 5]
    assert search.excluded == {3: "it crashed"}
    assert len(search.configurations) == len(own) + 5
