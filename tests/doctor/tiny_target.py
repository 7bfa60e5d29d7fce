"""The tiny target computed in numpy: its greedy text, and the states before each of its layers."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from bench.doctor import reference
from bench.doctor.attention import Attention, rms_norm
from bench.doctor.reference import Forward, Head, Layer
from bench.draft.checkpoint import read_checkpoint, whole_values

MODELS = Path(__file__).parents[1] / "lab" / "models"
TINY_DRAFT = MODELS / "tiny-eagle3"
TINY_TARGET = MODELS / "tiny-llama"
LAYERS = 8


@cache
def weights():
    files = read_checkpoint(str(TINY_TARGET))
    return {name: whole_values(files, tensor) for name, tensor in files.tensors.items()}


@cache
def target():
    def layer(place):
        at = f"model.layers.{place}."
        found = {name.removeprefix(at): w for name, w in weights().items() if name.startswith(at)}
        return Layer(
            attention=Attention(**{k: found[f"self_attn.{k}_proj.weight"] for k in "qkvo"}),
            **{key: found[f"mlp.{key}_proj.weight"] for key in ("gate", "up", "down")},
            input_norm=found["input_layernorm.weight"],
            hidden_norm=found["input_layernorm.weight"],
            post_norm=found["post_attention_layernorm.weight"],
        )

    return Head(
        fc=None,
        fc_bias=None,
        fc_norms=(),
        input_norm=None,
        layers=tuple(layer(place) for place in range(LAYERS)),
        norm=weights()["model.norm.weight"],
        head=weights()["lm_head.weight"],
        heads=3,
        kv_heads=3,
        head_dim=64,
        eps=1e-5,
    )


def states_of(ids):
    """[n, 9, 192]: state i goes into layer i; the last is the final one, before the norm."""
    hidden = weights()["model.embed_tokens.weight"][ids]
    positions = np.arange(len(ids), dtype=np.float32)
    found = [hidden]
    for layer in target().layers:
        hidden, _ = reference._layer(target(), layer, hidden, None, positions, Forward(), None)
        found.append(hidden)
    return np.stack(found, axis=1)


def continued(ids, count):
    """Greedy tokens after `ids`, all of them again at each step: short texts only."""
    ids = list(ids)
    for _ in range(count):
        last = states_of(np.array(ids))[-1, -1]
        logits = rms_norm(last, target().norm, target().eps) @ target().head.T
        ids.append(int(logits.argmax()))
    return np.array(ids)


@cache
def tokenizer():
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(TINY_TARGET / "tokenizer.json"))


PROMPTS = [
    "import os\nimport sys\n\ndef main():\n",
    "class Codec(codecs.Codec):\n    def encode(self, input, errors='strict'):\n",
    "def test_read(self):\n        with open(self.path) as f:\n",
    '"""Utilities for reading and writing files."""\n\nimport io\n',
    "for name in names:\n    if name not in seen:\n        seen.add(name)\n",
    "    try:\n        value = int(text)\n    except ValueError:\n        raise\n",
]


@cache
def texts():
    return [continued(tokenizer().encode(prompt).ids, 72) for prompt in PROMPTS]


@cache
def every_state():
    return [states_of(ids) for ids in texts()]


def spec(path):
    return json.loads((path / "config.json").read_text())
