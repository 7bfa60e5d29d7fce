"""The kinds `nccl_by_load` and `allreduce_sizes` beyond the cases that are recorded."""

import pytest
from case_checks_nccl import by_load, by_size
from case_fields import agrees, mistakes

DEFAULT, RING, WIDE = {}, {"NCCL_ALGO": "Ring"}, {"NCCL_MIN_NCHANNELS": "32"}


def rows(*settings):
    return [{"env": env, "tok_s": tok_s} for env, tok_s in settings]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (  # one wins everywhere
            rows((RING, {"1": 90, "8": 500}), (WIDE, {"1": 70, "8": 400})),
            {"best": {"1": 0, "8": 0}, "single_best_for_all": 0},
        ),
        (  # within noise of what is in use: kept
            rows((RING, {"1": 101}), (DEFAULT, {"1": 100})),
            {"best": {"1": 1}, "single_best_for_all": 1},
        ),
        (  # clear of it
            rows((RING, {"1": 110}), (DEFAULT, {"1": 100}), (WIDE, {"1": 50})),
            {"best": {"1": 0}, "gain": {"1": 1.1}, "single_best_for_all": 0},
        ),
        (  # a tie without a default: the first
            rows((RING, {"1": 90}), (WIDE, {"1": 90})),
            {"best": {"1": 0}, "gain": {"1": 1.0}},
        ),
        (  # a setting was not measured at a load, and one nowhere
            rows((RING, {"1": 90}), (WIDE, {"1": 80, "8": 10}), (DEFAULT, {"8": None})),
            {"best": {"1": 0, "8": 1}, "gain": {"8": None}, "single_best_for_all": None},
        ),
        (  # repeats: a difference within their noise keeps the default
            rows((DEFAULT, {"1": [100, 104, 97]}), (RING, {"1": [103, 99, 104]})),
            {"best": {"1": 0}},
        ),
        (
            rows((DEFAULT, {"1": [100, 101, 100]}), (RING, {"1": [130, 131, 131]})),
            {"best": {"1": 1}},
        ),
        ([], {"best": {}, "gain": {}, "single_best_for_all": None}),
    ],
)
def test_winners_by_load(given, expected):
    assert not mistakes(expected, by_load(given))


def table(*lines):
    return [
        {"kb": kb, "nccl_us": nccl, "oneshot_us": oneshot}
        for kb, nccl, oneshot in (line.split(",") for line in lines)
    ]


@pytest.mark.parametrize(
    ("given", "between", "wins"),
    [
        (table("4,20,4", "128,50,45", "384,80,120"), [128, 384], [4, 128]),
        (table("384,80,120", "4,20,4", "128,50,45"), [128, 384], [4, 128]),  # unsorted
        (table("4,20,4", "8,20,5"), None, [4, 8]),  # none
        (table("4,20,4", "8,5,6", "16,20,7"), [[4, 8], [8, 16]], [4, 16]),  # twice
        (table("4,20,4", "8,,5", "16,6,9"), [4, 16], [4]),  # a size that one lacks
    ],
)
def test_crossovers(given, between, wins):
    found = by_size(given)
    assert agrees(between, found["crossover_between_kb"])
    assert found["oneshot_wins_kb"] == wins


def test_messages_of_any_model_and_batch():
    found = by_size(table("4,20,4", "8,20,5"))
    expected = {
        "msg_kb_hidden7168_bs1": {"no_spec": 14.0, "ndt4": 56.0, "ndt8": 112.0},
        "msg_kb_hidden4096_bs8": {"no_spec": 64.0, "ndt5": 320.0},
    }
    assert not mistakes(expected, found)
    assert mistakes({"msg_kb_hidden7168_bs1": {"no_spec": 28.0}}, found)
    assert mistakes({"msg_kb_hidden7168_bs1": {"twice": 28.0}}, found)
