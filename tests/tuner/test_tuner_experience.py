"""What trees accept elsewhere, as a prior of what they accept here."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.specbundle import TABLE
from tuner.predict import Experience, Predictor, Reading, Record, points_of
from tuner.predict.acceptance import CELLS_ALIKE, TREE_SD, Drafts, predict_acceptance
from tuner.predict.experience import foresee, model_name, records_of
from tuner.predict.published import published_records
from tuner.space import Configuration

TREE, LIKE = (5, 3, 6), (7, 4, 8)
SHAPES = [(0, 0, 1), (3, 1, 4), (7, 1, 8), TREE, LIKE]
EXCESSES = st.floats(-0.3, 0.3).filter(lambda excess: abs(excess) > 0.01)


def record(excess, *, target="t", draft="d", workload="w", origin="s", load="1", shape=TREE):
    steps, topk, tokens = shape
    return Record(
        origin=origin,
        target=target,
        draft=draft,
        workload=workload,
        load=load,
        num_steps=steps,
        eagle_topk=topk,
        num_draft_tokens=tokens,
        excess=excess,
    )


def at(*records, workloads=("w",)):
    experience = Experience(records=records, target="t", draft="d", workloads=workloads)
    return foresee(experience, SHAPES)


def mean(*records):
    return float(at(*records).mean[SHAPES.index(TREE), 0])


def sd(*records):
    return float(at(*records).sd[SHAPES.index(TREE), 0])


def many(count, excess, **of):
    return [record(excess, workload=f"w{at}", **of) for at in range(count)]


# ------------------------------------------------------------------------------ without experience


def test_without_records_it_is_what_the_rule_says_of_itself():
    known = at(workloads=("w", "v"))
    assert (known.mean == 0).all()
    assert known.sd[SHAPES.index(TREE)] == pytest.approx([TREE_SD] * 2)
    assert known.among_cells == pytest.approx(
        TREE_SD**2 * np.array([[1, CELLS_ALIKE], [CELLS_ALIKE, 1]])
    )


def predictor(experience):
    space = [
        Configuration(),
        *(
            Configuration(algorithm="EAGLE3", num_steps=s, eagle_topk=k, num_draft_tokens=n)
            for s, k, n in SHAPES[1:]
        ),
    ]
    points = points_of(space, [(8, 0.0)], np.ones(1), None)
    return Predictor(points, experience=experience)


def readings():
    return [
        Reading(
            configuration=place,
            at=float(place),
            log_value=np.log([speed]),
            log_accept_len=np.log([length]),
            reach=np.full((1, 7), np.nan),
        )
        for place, (speed, length) in enumerate([(100.0, 1.0), (150.0, 2.4), (140.0, 2.9)])
    ]


def test_an_experience_without_records_changes_nothing():
    empty = Experience(records=(), target="t", draft="d", workloads=("w",))
    without, with_it = predictor(None).learn(readings()), predictor(empty).learn(readings())
    assert (without.mean == with_it.mean).all()
    assert (without.cov == with_it.cov).all()


def test_experience_moves_trees_and_leaves_chains():
    told = Experience(records=(record(0.2),), target="t", draft="d", workloads=("w",))
    before, after = predictor(None).learn(readings()), predictor(told).learn(readings())
    moved = after.log_accept_len[:, 0] - before.log_accept_len[:, 0]
    assert moved[:3] == pytest.approx([0, 0, 0], abs=1e-6)
    assert moved[3] > 0.05
    assert np.linalg.eigvalsh(after.cov).min() > -1e-9


# --------------------------------------------------------------------------------- what it does


@settings(max_examples=25, deadline=None)
@given(excess=EXCESSES, few=st.integers(1, 4), more=st.integers(1, 6))
def test_more_records_of_a_target_move_the_mean_towards_theirs(excess, few, more):
    first, then = mean(*many(few, excess)), mean(*many(few + more, excess))
    assert abs(then - excess) < abs(first - excess) < abs(excess)
    assert sd(*many(few + more, excess)) < sd() * 1.2


@settings(max_examples=25, deadline=None)
@given(excess=EXCESSES, count=st.integers(1, 6))
def test_what_is_further_away_tells_less(excess, count):
    own = mean(*many(count, excess))
    of_another_draft = mean(*many(count, excess, draft="e"))
    of_another_target = mean(*many(count, excess, draft="e", target="u"))
    assert abs(own) > abs(of_another_draft) > abs(of_another_target) > 0
    assert own * excess > 0


def test_the_same_workload_tells_most():
    assert mean(record(0.2)) > mean(record(0.2, workload="v")) > 0.02
    assert mean(record(0.2, target="u", draft="e")) > mean(
        record(0.2, target="u", draft="e", workload="v")
    )


def test_a_tree_tells_less_of_one_that_is_unlike():
    near = mean(record(0.2, shape=LIKE))
    far = mean(record(0.2, shape=(1, 8, 9)))
    assert mean(record(0.2)) > near > far > 0


def test_unlike_targets_teach_that_an_unknown_one_is_uncertain():
    alike = [r for t in "uvxyz" for r in many(3, 0.1, target=t, draft=t)]
    unlike = [
        r
        for t, excess in zip("uvxyz", (0.4, -0.3, 0.3, -0.4, 0.1), strict=True)
        for r in many(3, excess, target=t, draft=t)
    ]
    assert sd(*unlike) > sd(*alike)
    assert mean(*alike) == pytest.approx(0.1, abs=0.05)


def test_all_loads_of_a_workload_are_foreseen_alike():
    known = at(record(0.2, load="1"), record(0.2, load="8"), workloads=("w", "w", "v"))
    one, other, another_workload = known.mean[SHAPES.index(TREE)]
    assert one == pytest.approx(other)
    assert one > another_workload


def test_what_was_measured_here_outweighs_what_was_elsewhere():
    steps, topk, tokens = np.array(SHAPES).T
    drafts = Drafts(
        steps=steps, topk=topk, tokens=tokens, family=(steps > 0).astype(int), eagle=steps > 0
    )
    known = at(*(record(excess, workload=f"w{excess}") for excess in (0.1, 0.16, 0.2, 0.24, 0.3)))
    tree, like = SHAPES.index(TREE), SHAPES.index(LIKE)
    unknown = np.full((1, 7), np.nan)
    chains = [(1, np.log([2.4]), unknown), (2, np.log([2.9]), unknown)]
    before = predict_acceptance(drafts, np.ones(1), chains, foreseen=known)
    low = before.mean[tree, 0] - 0.3
    after = predict_acceptance(
        drafts, np.ones(1), [*chains, (tree, np.array([low]), unknown)], foreseen=known
    )
    assert after.mean[tree, 0] == pytest.approx(low, abs=0.02)
    assert after.mean[like, 0] < before.mean[like, 0] - 0.1
    assert after.objective_cov[like, like] < before.objective_cov[like, like]


@settings(max_examples=25, deadline=None)
@given(
    excesses=st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=6),
    loads=st.lists(st.sampled_from("128"), min_size=6, max_size=6),
)
def test_variances_are_never_negative(excesses, loads):
    records = [
        record(excess, load=load, shape=(TREE, LIKE)[i % 2])
        for i, (excess, load) in enumerate(zip(excesses, loads, strict=False))
    ]
    known = at(*records, workloads=("w", "v"))
    trees = [SHAPES.index(TREE), SHAPES.index(LIKE)]
    cov = known.among_cells[:, None, :, None] * known.among_trees[:, None, :][None]
    cov = cov[:, trees][..., trees] - np.einsum("rct,rdu->ctdu", *[known.taken[..., trees]] * 2)
    assert np.linalg.eigvalsh(cov.reshape(4, 4)).min() > -1e-9
    assert known.sd[trees] == pytest.approx(np.sqrt(np.einsum("ctct->tc", cov)), abs=1e-6)


# ---------------------------------------------------------------------------------------- records

CHAINS = {(3, 1, 4): 2.4, (7, 1, 8): 2.9}
OF = {"origin": "s", "target": "org/T", "draft": "/models/D", "workload": "Chat 2k"}


def test_a_record_is_the_log_ratio_to_the_rule():
    [low] = records_of(CHAINS | {TREE: 2.0}, **OF)
    [high] = records_of(CHAINS | {TREE: 3.0}, **OF)
    assert high.excess - low.excess == pytest.approx(np.log(3.0 / 2.0))
    of_rule = 2.0 * np.exp(-low.excess)
    assert records_of(CHAINS | {TREE: of_rule}, **OF)[0].excess == pytest.approx(0, abs=1e-9)
    assert (low.target, low.draft, low.workload) == ("t", "d", "chat-2k")


@pytest.mark.parametrize(
    "lengths",
    [
        {(5, 1, 6): 2.5, TREE: 2.5},  # one chain leaves open how acceptance falls
        {(3, 1, 4): 2.4, (4, 1, 5): 2.6, TREE: 2.5},  # deeper than any chain
        {(3, 1, 4): 1.0, (7, 1, 8): 1.0, TREE: 1.0},
        CHAINS,
        {},
    ],
)
def test_what_tells_nothing_of_trees(lengths):
    assert records_of(lengths, **OF) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "qwen3-next-80b-a3b-instruct-fp8"),
        ("/models/Kimi_K2.5/", "kimi-k2-5"),
        ("Kimi-K2.5", "kimi-k2-5"),
        ("/hub/models--moonshotai--Kimi-K2.5/snapshots/0123abcd", "kimi-k2-5"),
        ("", ""),
    ],
)
def test_models_are_known_by_their_name_whoever_holds_them(path, name):
    assert model_name(path) == name


def test_the_table_that_is_carried_along_is_the_published_one():
    records = published_records()
    assert len(records) == 2 * 44
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for of in (rows[0], rows[-1]):
        cell = [
            r
            for r in rows
            if (r["target"], r["draft"], r["dataset"])
            == (of["target"], of["draft"], of["dataset"])
        ]
        lengths = {
            (int(r["num_steps"]), int(r["eagle_topk"]), int(r["num_draft_tokens"])): float(
                r["accept_length"]
            )
            for r in cell
        }
        expected = records_of(
            lengths,
            origin=records[0].origin,
            target=of["target"],
            draft=of["draft"],
            workload=of["dataset"],
        )
        assert set(expected) <= set(records)


def test_the_table_tells_a_target_that_is_in_it_from_one_that_is_not():
    published = published_records()
    known = next(r for r in published if r.target == "qwen3-next-80b-a3b-instruct-fp8")
    here = Experience(
        records=published, target=known.target, draft=known.draft, workloads=("mine",)
    )
    unknown = replace(here, target="kimi-k2-5", draft="kimi-k2-5-eagle3")
    tree = SHAPES.index(TREE)
    assert foresee(here, SHAPES).mean[tree, 0] > 0.08
    assert abs(foresee(unknown, SHAPES).mean[tree, 0]) < 0.05
    assert foresee(unknown, SHAPES).sd[tree, 0] == pytest.approx(TREE_SD, rel=0.25)
