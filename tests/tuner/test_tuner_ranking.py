"""Which configuration goes to the final, and how launches are counted against a rival's."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.tuner_tables import Outcome, launches_for, own_launches
from tuner.confirm import ranked
from tuner.predict import Knowledge


def known(mean, sd):
    """Independent beliefs about configurations."""
    return Knowledge(
        mean=np.array(mean),
        cov=np.diag(np.square(sd)),
        cell_mean=np.array(mean)[:, None],
        log_accept_len=np.zeros((len(mean), 1)),
        launch_sd=0.02,
        quirk_sd=0.0,
    )


@pytest.mark.parametrize(
    ("ahead", "is_chosen"),
    [(-0.01, False), (0.01, False), (0.02, False), (0.03, True), (0.3, True)],
)
def test_what_was_never_launched_must_look_better_by_a_share_of_its_doubt(ahead, is_chosen):
    knowledge = known([0.0, ahead], [0.0, 0.1])  # a quarter of 0.1 counts against it
    everything, launched = np.array([True, True]), np.array([True, False])
    assert bool(ranked(knowledge, everything, launched)[0]) == is_chosen
    assert bool(ranked(knowledge, everything, everything)[0]) == (ahead > 0)


def test_what_may_not_be_launched_comes_last():
    knowledge = known([0.0, 0.5, 0.1], [0.0, 0.0, 0.0])
    allowed = np.array([True, False, True])
    assert list(ranked(knowledge, allowed, allowed)) == [2, 0, 1]


@pytest.mark.parametrize(
    ("regrets", "goal", "own", "rivals"),
    [
        ((1.0, 0.0, 0.0), 0.0, 20, 11),
        ((0.0, 0.0, 0.0), 0.0, 10, 1),
        ((0.0, 1.0, 0.0), 0.0, 40, 21),  # what does not last does not count
        ((3.0, 2.0, 1.0), 2.0, 20, 11),
    ],
)
def test_launches_at_equal_regret_are_those_from_which_on_it_lasts(regrets, goal, own, rivals):
    mine = [
        Outcome(
            half="other", landscape="one", seed=0, method="ours", launches=launches, regret=regret
        )
        for launches, regret in zip((10, 20, 40), regrets, strict=True)
    ]
    assert own_launches(mine, "other", goal, np.median) == own
    rival = [replace(outcome, method="tpe") for outcome in mine]
    assert launches_for(rival, "other", "tpe", goal, np.median) == rivals
