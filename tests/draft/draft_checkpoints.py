"""Checkpoints of the tests: the tiny pair, faults planted in it, and shapes as published."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MODELS = Path(__file__).parents[1] / "lab" / "models"
TINY_DRAFT = MODELS / "tiny-eagle3"
TINY_TARGET = MODELS / "tiny-llama"
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1, "F8_E4M3": 1}


@dataclass
class Files:
    """A checkpoint to be written: {name: (dtype, shape, data)}; data None: zeros, as a hole."""

    config: dict
    tensors: dict = field(default_factory=dict)
    others: dict = field(default_factory=dict)

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if self.tensors:
            write_safetensors(folder / "model.safetensors", self.tensors)
        for name, text in self.others.items():
            (folder / name).write_text(text)
        return str(folder)


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, _) in tensors.items():
        size = math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (_, _, data) in tensors.items():
            begin, end = header[name]["data_offsets"]
            if data is not None:
                assert len(data) == end - begin, name
                file.seek(8 + len(text) + begin)
                file.write(data)
        file.truncate(8 + len(text) + at)


def read(folder):
    folder = Path(folder)
    raw = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data)
    return Files(json.loads((folder / "config.json").read_text()), tensors)


def tiny_draft():
    return read(TINY_DRAFT)


def tiny_target():
    return read(TINY_TARGET)


def whole_numbers(values):
    return ("I64", (len(values),), np.asarray(values, "<i8").tobytes())


def marks(size, chosen):
    found = np.zeros(size, bool)
    found[list(chosen)] = True
    return ("BOOL", (size,), found.tobytes())


def ones(*shape, dtype="BF16", value=0x3F80):
    return (dtype, shape, np.full(math.prod(shape), value, "<u2").tobytes())


CHOSEN = sorted({*range(40), *np.random.default_rng(5).choice(2048, 472, replace=False).tolist()})


def reduced_draft(convention="offset"):
    """The tiny draft with a vocabulary of its own: 2 maps that belong together."""
    files = tiny_draft()
    rows = len(CHOSEN)
    dtype, _, data = files.tensors["lm_head.weight"]
    rows_of = np.frombuffer(data, "<u2").reshape(2048, 192)[CHOSEN]
    files.tensors["lm_head.weight"] = (dtype, (rows, 192), rows_of.tobytes())
    files.config["draft_vocab_size"] = rows
    values = [token - place for place, token in enumerate(CHOSEN)]
    files.tensors["d2t"] = whole_numbers({"offset": values, "absolute": CHOSEN}[convention])
    files.tensors["t2d"] = marks(2048, CHOSEN)
    return files


def as_speculators(files, **more):
    """A draft of the tiny pair in the form that speculators writes."""
    kept = ("vocab_size", "intermediate_size", "hidden_size", "num_attention_heads", "head_dim")
    layer = {key: files.config[key] for key in kept}
    layer |= {"model_type": "llama", "num_hidden_layers": 1, "num_key_value_heads": 3}
    layer["rope_parameters"] = files.config["rope_parameters"]
    layer["rms_norm_eps"] = 1e-05
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": files.config["draft_vocab_size"],
        "norm_before_residual": False,
        "speculators_config": {"verifier": {"architectures": ["LlamaForCausalLM"]}},
        "transformer_layer_config": layer,
        **more,
    }
    tensors = {name.replace("midlayer", "layers.0"): t for name, t in files.tensors.items()}
    return Files(config, tensors)


# ------------------------------------------------------------------------- shapes as published


def llama_head(
    *,
    hidden,
    inter,
    heads,
    kv,
    head_dim,
    vocab,
    rows,
    states=3,
    dtype="BF16",
    embed=False,
    maps=True,
    layer="midlayer",
    t2d=True,
    qk_norm=False,
):
    def tensor(*shape):
        return (dtype, shape, None)

    found = {
        "fc.weight": tensor(hidden, states * hidden),
        f"{layer}.self_attn.q_proj.weight": tensor(heads * head_dim, 2 * hidden),
        f"{layer}.self_attn.k_proj.weight": tensor(kv * head_dim, 2 * hidden),
        f"{layer}.self_attn.v_proj.weight": tensor(kv * head_dim, 2 * hidden),
        f"{layer}.self_attn.o_proj.weight": tensor(hidden, heads * head_dim),
        f"{layer}.mlp.gate_proj.weight": tensor(inter, hidden),
        f"{layer}.mlp.up_proj.weight": tensor(inter, hidden),
        f"{layer}.mlp.down_proj.weight": tensor(hidden, inter),
        f"{layer}.hidden_norm.weight": tensor(hidden),
        f"{layer}.input_layernorm.weight": tensor(hidden),
        f"{layer}.post_attention_layernorm.weight": tensor(hidden),
        "norm.weight": tensor(hidden),
        "lm_head.weight": tensor(rows, hidden),
    }
    if embed:
        found["embed_tokens.weight"] = tensor(vocab, hidden)
    if qk_norm:
        found[f"{layer}.self_attn.q_norm.weight"] = tensor(head_dim)
        found[f"{layer}.self_attn.k_norm.weight"] = tensor(head_dim)
    if maps:
        chosen = np.sort(np.random.default_rng(3).choice(vocab, rows, replace=False))
        found["d2t"] = whole_numbers(chosen - np.arange(rows))
        if t2d:
            found["t2d"] = marks(vocab, chosen)
    return found
