"""The tiny draft with a fault in it, each as training and export really go wrong."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "draft"))
from draft_checkpoints import (
    reduced_draft,
    tiny_draft,
    tiny_target,
    whole_numbers,
)

IDS = "eagle_aux_hidden_state_layer_ids"
WIDTH = 192
LAYER = "midlayer.self_attn."


def floats(tensor):
    _, shape, data = tensor
    wide = np.frombuffer(data, "<u2").astype("<u4") << 16
    return wide.view("<f4").reshape(shape)


def bfloat16(values):
    """Rounded to the nearest, as torch does."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return ("BF16", values.shape, rounded.astype("<u2").tobytes())


def with_ids(*ids):
    files = tiny_draft()
    files.config["eagle_config"] = {IDS: list(ids)}
    return files


def with_config(**values):
    files = tiny_draft()
    files.config |= values
    return files


def states_in_another_order():
    """Trained on the states in the order 5, 2, 4: fc's columns are no longer the layers'."""
    files = tiny_draft()
    blocks = np.split(floats(files.tensors["fc.weight"]), 3, axis=1)
    files.tensors["fc.weight"] = bfloat16(np.hstack([blocks[2], blocks[0], blocks[1]]))
    return files


def absolute_map():
    return reduced_draft("absolute")


def map_of_zeros():
    files = reduced_draft()
    files.tensors["d2t"] = whole_numbers([0] * files.config["draft_vocab_size"])
    del files.tensors["t2d"]
    return files


def without_fc():
    files = tiny_draft()
    del files.tensors["fc.weight"]
    return files


def trained_embedding():
    """A draft with an embedding of its own, turned, and with weights that turn it back.

    With its own embedding it predicts what the tiny draft does; SGLang gives it the target's.
    """
    files = tiny_draft()
    random = np.random.default_rng(11).normal(size=(WIDTH, WIDTH))
    turn = np.linalg.qr(random)[0].astype(np.float32)
    norm = floats(files.tensors["midlayer.input_layernorm.weight"])
    for name in ("q_proj", "k_proj", "v_proj"):
        key = f"{LAYER}{name}.weight"
        weight = floats(files.tensors[key]).copy()
        weight[:, :WIDTH] = (weight[:, :WIDTH] * norm) @ turn
        files.tensors[key] = bfloat16(weight)
    files.tensors["midlayer.input_layernorm.weight"] = bfloat16(np.ones(WIDTH, np.float32))
    embedding = floats(tiny_target().tensors["model.embed_tokens.weight"])
    files.tensors["embed_tokens.weight"] = bfloat16(embedding @ turn)
    return files
