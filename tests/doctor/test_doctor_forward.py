"""Parts of a head that SGLang drops or skips, found again from the text that the head predicts."""

from dataclasses import replace

import numpy as np
import pytest

from bench.doctor.attention import Attention
from bench.doctor.reference import Forward, Head, Layer, project, run
from bench.doctor.wirings import Material, Wiring, rank
from bench.draft.rope import rope_of

WIDTH, HEADS, DIM, VOCAB, SLOTS, TOKENS = 32, 2, 16, 96, 3, 48
DRAWS = np.random.default_rng(12)
LLAMA3 = rope_of(
    {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    }
)
PLAIN = rope_of({"rope_theta": 10000.0})


def weights(*shape):
    return (DRAWS.normal(size=shape) / np.sqrt(shape[-1] / 3)).astype(np.float32)


def norm(size=WIDTH):
    return DRAWS.uniform(0.3, 3.0, size).astype(np.float32)


def layer(*, entry=2 * WIDTH, **extras):
    queries = HEADS * DIM
    parts = {name: weights(queries, entry) for name in "qkv"}
    return Layer(
        attention=Attention(**parts, o=weights(WIDTH, queries), **extras),
        gate=weights(2 * WIDTH, WIDTH),
        up=weights(2 * WIDTH, WIDTH),
        down=weights(WIDTH, 2 * WIDTH),
        input_norm=norm(),
        hidden_norm=norm(),
        post_norm=norm(),
    )


def head(*layers, slots=SLOTS, **more):
    return Head(
        fc=weights(WIDTH, slots * WIDTH),
        fc_bias=None,
        fc_norms=more.pop("fc_norms", ()),
        input_norm=more.pop("input_norm", None),
        layers=layers or (layer(),),
        norm=norm(),
        head=weights(VOCAB, WIDTH),
        heads=HEADS,
        kv_heads=HEADS,
        head_dim=DIM,
        eps=1e-6,
        rope=more.pop("rope", PLAIN),
        **more,
    )


def material(found, trained):
    """Three texts, each token of which the head predicts when it is run as in training."""
    tables = {"target": weights(VOCAB, WIDTH), "draft": weights(VOCAB, WIDTH)}
    slots = len(trained.slots)
    samples = []
    for first in (1, 2, 3):
        states = DRAWS.normal(size=(TOKENS, slots, WIDTH)).astype(np.float32)
        states *= np.array([1, 3, 9])[:slots, None]  # as later layers' are longer
        hidden, ids = project(found, states, trained.forward), [first, first]
        for rows in range(1, TOKENS - 1):
            embedded = tables[trained.embedding][ids[1:]]
            (output,) = run(found, hidden[:rows], embedded, trained.forward, steps=1)
            ids.append(int((found.head @ output[-1]).argmax()))
        both = (tables[whose][ids] for whose in ("target", "draft"))
        samples.append((states.astype(np.float32), np.array(ids), *both))
    return Material(head=found, samples=tuple(samples), d2t=None)


SERVED = Wiring(slots=(0, 1, 2), vocabulary="none")
ONE = replace(SERVED, slots=(0,), forward=Forward(uses_fc=False))


def way(**changed):
    return {"forward": Forward(**changed)}


DROPPED = {
    "M11 the residual after its norm": (head(), SERVED, way(residual="after")),
    "M12 norms of queries and keys": (
        head(layer(q_norm=norm(DIM), k_norm=norm(DIM))),
        SERVED,
        way(uses_extras=True),
    ),
    "M12 biases": (
        head(layer(biases={name: weights(HEADS * DIM) * 4 for name in "qkv"})),
        SERVED,
        way(uses_extras=True),
    ),
    "M13 a later layer's norm": (
        head(layer(), replace(layer(entry=WIDTH), is_misnamed=True)),
        SERVED,
        way(finds_misnamed=True),
    ),
    "M14 a norm of each state": (
        head(fc_norms=tuple(norm() for _ in range(SLOTS))),
        replace(SERVED, forward=Forward(norms_fc=False)),
        way(norms_fc=True),
    ),
    "M14 a norm of all states": (
        head(input_norm=norm(SLOTS * WIDTH)),
        replace(SERVED, forward=Forward(norms_fc=False)),
        way(norms_fc=True),
    ),
    "M7 fc skipped": (head(slots=1), ONE, way(uses_fc=True)),
    "M15 stretched positions lost": (head(target_rope=LLAMA3), SERVED, way(scaling="target")),
    "M15 positions stretched": (head(rope=LLAMA3), SERVED, way(scaling="none")),
    "M15 another base": (head(), SERVED, way(theta=500000.0)),
    "M17 an embedding of its own": (head(), SERVED, {"embedding": "draft"}),
}


def first_step(wiring):
    """But for what feeds the next step: the texts here tell of the first alone."""
    return replace(wiring, forward=replace(wiring.forward, output="before"))


@pytest.mark.parametrize("name", DROPPED)
def test_what_the_training_did_is_found(name):
    found, served, changed = DROPPED[name]
    trained = replace(served, **changed)
    ranking = rank(material(found, trained), served)
    assert first_step(ranking.ranked[0].wiring) == trained
    assert ranking.ranked[0].top1[0] == 1.0  # the text is its own
    assert ranking.gain_errors > 3


@pytest.mark.parametrize("name", DROPPED)
def test_nothing_is_found_where_nothing_is_wrong(name):
    found, served, _ = DROPPED[name]
    ranking = rank(material(found, served), served)
    assert first_step(ranking.ranked[0].wiring) == served
    assert ranking.served.top1[0] == 1.0
    assert ranking.gain_errors < 3
