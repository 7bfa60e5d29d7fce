"""A small head with DeepSeek's attention and its text; the same head computed with loops."""

import math
from functools import cache

import numpy as np
from draft_checkpoints import Files

WIDTH, HEADS, NOPE, ROPE, VALUE, Q_RANK, KV_RANK, INTER, VOCAB = 32, 2, 8, 8, 8, 16, 12, 48, 96
THETA, EPS, ORIGINAL = 10000.0, 1e-6, 64
YARN = {
    "rope_type": "yarn",
    "rope_theta": THETA,
    "factor": 32.0,
    "beta_fast": 1.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": ORIGINAL,
}
TARGET = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": WIDTH,
    "num_hidden_layers": 8,
    "vocab_size": VOCAB,
    "rope_theta": THETA,
    "max_position_embeddings": 2048,
}
SHAPES = {
    "embed_tokens": (VOCAB, WIDTH),
    "fc": (WIDTH, 3 * WIDTH),
    "norm": (WIDTH,),
    "lm_head": (VOCAB, WIDTH),
    "layers.0.self_attn.q_a_proj": (Q_RANK, 2 * WIDTH),
    "layers.0.self_attn.q_a_layernorm": (Q_RANK,),
    "layers.0.self_attn.q_b_proj": (HEADS * (NOPE + ROPE), Q_RANK),
    "layers.0.self_attn.kv_a_proj_with_mqa": (KV_RANK + ROPE, 2 * WIDTH),
    "layers.0.self_attn.kv_a_layernorm": (KV_RANK,),
    "layers.0.self_attn.kv_b_proj": (HEADS * (NOPE + VALUE), KV_RANK),
    "layers.0.self_attn.o_proj": (WIDTH, HEADS * VALUE),
    "layers.0.mlp.gate_proj": (INTER, WIDTH),
    "layers.0.mlp.up_proj": (INTER, WIDTH),
    "layers.0.mlp.down_proj": (WIDTH, INTER),
    "layers.0.input_layernorm": (WIDTH,),
    "layers.0.hidden_norm": (WIDTH,),
    "layers.0.post_attention_layernorm": (WIDTH,),
}


@cache
def weights():
    """By name, without `layers.0.` and `self_attn.`; attention is made to matter."""
    draws = np.random.default_rng(21)
    found = {}
    for name, shape in SHAPES.items():
        values = draws.normal(size=shape) / math.sqrt(shape[-1] / 2)
        found[name] = (draws.uniform(0.5, 2.0, shape) if len(shape) == 1 else values).astype("<f4")
    return found


def draft(rope, **config):
    tensors = {f"{n}.weight": ("F32", w.shape, w.tobytes()) for n, w in weights().items()}
    sizes = {
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "intermediate_size": INTER,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB,
        "rms_norm_eps": EPS,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "rope_parameters": rope,
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    }
    return Files({**sizes, **config}, tensors)


# --------------------------------------------------------------------------------- plain loops


def normed(x, name):
    return x / np.sqrt((x * x).mean() + EPS) * weights()[name]


def yarn_angles(rope):
    """Angle a position of each pair, after the definition in the YaRN paper (3.2)."""
    angles = []
    for pair in range(ROPE // 2):
        plain = THETA ** (-2 * pair / ROPE)
        if rope["rope_type"] == "default":
            angles.append(plain)
            continue

        def edge(turns):
            return ROPE * math.log(ORIGINAL / (turns * 2 * math.pi)) / (2 * math.log(THETA))

        low = max(math.floor(edge(rope["beta_fast"])), 0)
        high = min(math.ceil(edge(rope["beta_slow"])), ROPE - 1)
        stretched = min(max((pair - low) / ((high - low) or 0.001), 0), 1)
        angles.append(plain * (1 - stretched) + plain / rope["factor"] * stretched)
    return angles


def turned(x, position, rope, *, neighbours):
    found = np.array(x, dtype=float)
    for pair, angle in enumerate(yarn_angles(rope)):
        one, other = (2 * pair, 2 * pair + 1) if neighbours else (pair, pair + ROPE // 2)
        both = complex(x[one], x[other]) * complex(
            math.cos(angle * position), math.sin(angle * position)
        )
        found[one], found[other] = both.real, both.imag
    return found


class Looping:
    """The head, a row at a time: `row` gives the state and what the next step is fed."""

    def __init__(self, rope, *, neighbours=True):
        self.rope, self.neighbours = rope, neighbours
        self.rows = []
        self.scale = (NOPE + ROPE) ** -0.5
        if rope["rope_type"] == "yarn":  # DeepSeek-V3's softmax scale
            self.scale *= (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2

    def row(self, hidden, token, position, *, seen=None):
        at = weights()
        embedded = normed(at["embed_tokens"][token], "layers.0.input_layernorm")
        entry = np.concatenate([embedded, normed(hidden, "layers.0.hidden_norm")])
        query = at["layers.0.self_attn.q_b_proj"] @ normed(
            at["layers.0.self_attn.q_a_proj"] @ entry, "layers.0.self_attn.q_a_layernorm"
        )
        latent = at["layers.0.self_attn.kv_a_proj_with_mqa"] @ entry
        shared = turned(latent[KV_RANK:], position, self.rope, neighbours=self.neighbours)
        wide = at["layers.0.self_attn.kv_b_proj"] @ normed(
            latent[:KV_RANK], "layers.0.self_attn.kv_a_layernorm"
        )
        own = (wide.reshape(HEADS, NOPE + VALUE), shared)
        past = [*(self.rows if seen is None else seen), own]
        mixed = []
        for head, wanted in enumerate(query.reshape(HEADS, NOPE + ROPE)):
            turning = turned(wanted[NOPE:], position, self.rope, neighbours=self.neighbours)
            scores = [
                self.scale * (wanted[:NOPE] @ keys[head][:NOPE] + turning @ key)
                for keys, key in past
            ]
            shares = np.exp(np.array(scores) - max(scores))
            shares /= shares.sum()
            mixed += [
                sum(s * keys[head][NOPE:] for s, (keys, _) in zip(shares, past, strict=True))
            ]
        state = hidden + at["layers.0.self_attn.o_proj"] @ np.concatenate(mixed)
        inner = normed(state, "layers.0.post_attention_layernorm")
        gate = at["layers.0.mlp.gate_proj"] @ inner
        gated = gate / (1 + np.exp(-gate)) * (at["layers.0.mlp.up_proj"] @ inner)
        state = state + at["layers.0.mlp.down_proj"] @ gated
        if seen is None:
            self.rows.append(own)
        return normed(state, "norm"), state, own


def text_of(rope, states, read, *, neighbours=True):
    """Token ids that the head predicts, each from states of `read` slots and the token before."""
    looping, ids = Looping(rope, neighbours=neighbours), [1, 2]
    for place in range(len(states) - 2):
        hidden = weights()["fc"] @ states[place][list(read)].reshape(-1)
        output, _, _ = looping.row(hidden, ids[place + 1], place)
        ids.append(int((weights()["lm_head"] @ output).argmax()))
    return np.array(ids)
