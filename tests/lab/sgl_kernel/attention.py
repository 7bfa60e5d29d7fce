"""Attention of queries over keys and values that lie scattered in a paged cache.

Shapes: `bs` requests, `heads` query heads, `kv_heads` key heads, `dim` their width. A cache buffer
is `[slots, kv_heads, dim]`; row r of `req_to_token` lists the slots of the request that owns pool
row r, in order. Caller of both:
`sglang.srt.layers.attention.intel_amx_backend.IntelAMXAttnBackend`.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention


def decode_attention_cpu(
    query: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    key_scale: float,
    value_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    cache_loc: torch.Tensor,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    scaling: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """One query a request: stores its key and value, then attends over `seq_lens` slots.

    query, output: [bs, heads, dim] (output is written). key, value: bs rows for the slots
    `cache_loc`, or None when they are in the cache already. attn_logits is the real kernel's
    scratch space and stays unused.
    """
    _refuse_unsupported(
        key_scale, value_scale, logit_cap, is_cross_attention, sliding_window, sinks
    )
    if key is not None and value is not None:
        key_buffer[cache_loc] = key.view(-1, *key_buffer.shape[1:])
        value_buffer[cache_loc] = value.view(-1, *value_buffer.shape[1:])
    longest = int(seq_lens.max())
    slots = req_to_token[req_pool_indices, :longest]
    visible = None
    if seq_lens.shape[0] > 1:
        visible = (torch.arange(longest) < seq_lens[:, None])[:, None, None, :]
    output.copy_(_attend(query[:, None], key_buffer, value_buffer, slots, visible, scaling)[:, 0])


def extend_attention_cpu(
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    output: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    key_scale: float,
    value_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_extend_len: int,
    scaling: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """The last `extend_seq_lens[b]` of a request's `seq_lens[b]` tokens attend over all of them.

    Used for prefill, for the draft model's extend and for verification. query, output: [tokens,
    heads, dim], the requests one behind the other from `extend_start_loc` (output is written). The
    backend has stored key and value in the cache before, so both are read from there. tree_mask:
    flat bool [bs, n, n] for n draft tokens a request, entry (i, j) telling whether token i sees
    token j; without it tokens see themselves and those before.
    """
    _refuse_unsupported(
        key_scale, value_scale, logit_cap, is_cross_attention, sliding_window, sinks
    )
    if not is_causal:
        raise NotImplementedError("sgl_kernel stand-in: attention that is not causal")
    lengths = extend_seq_lens.tolist()
    if not lengths or max(lengths) == 0:
        return
    # Equal lengths (every verification, most prefills) go through in one call, others one request
    # at a time.
    if min(lengths) == max(lengths):
        groups = [slice(0, len(lengths))]
    else:
        groups = [slice(b, b + 1) for b, length in enumerate(lengths) if length > 0]
    starts = extend_start_loc.tolist()
    for group in groups:
        count, width = group.stop - group.start, lengths[group.start]
        tokens = slice(starts[group.start], starts[group.start] + count * width)
        total = seq_lens[group]
        longest = int(total.max())
        slots = req_to_token[req_pool_indices[group], :longest]
        mask = None if tree_mask is None else tree_mask.view(-1, width, width)[group]
        visible = _visible(total - width, width, longest, mask)
        rows = query[tokens].view(count, width, *query.shape[1:])
        out = _attend(rows, key_buffer, value_buffer, slots, visible, scaling)
        output[tokens] = out.reshape(count * width, *output.shape[1:])


def _visible(
    prefix: torch.Tensor, width: int, longest: int, tree_mask: torch.Tensor | None
) -> torch.Tensor:
    """Which of `longest` keys each query sees: bool [bs, 1, width, longest].

    prefix: [bs], tokens before the first query. tree_mask: [bs, width, width] or None for causal
    order.
    """
    keys = torch.arange(longest)
    if tree_mask is None:
        first_hidden = prefix[:, None] + torch.arange(1, width + 1)
        return (keys < first_hidden[:, :, None])[:, None]
    visible = (keys < prefix[:, None])[:, None, :].repeat(1, width, 1)
    columns = (prefix[:, None] + torch.arange(width))[:, None, :].expand(-1, width, -1)
    visible.scatter_(2, columns, tree_mask.bool())
    return visible[:, None]


def _attend(
    query: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    slots: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float,
) -> torch.Tensor:
    """Attend from query, [bs, width, heads, dim], over the rows slots, [bs, longest].

    Rows past a request's end hold whatever slot numbers were there before: they are valid slots,
    masked out.
    """
    bs, longest = slots.shape
    flat = slots.reshape(-1)
    keys = (
        key_buffer.index_select(0, flat).view(bs, longest, *key_buffer.shape[1:]).transpose(1, 2)
    )
    values = (
        value_buffer.index_select(0, flat)
        .view(bs, longest, *value_buffer.shape[1:])
        .transpose(1, 2)
    )
    out = scaled_dot_product_attention(
        query.transpose(1, 2),
        keys.to(query.dtype),
        values.to(query.dtype),
        attn_mask=visible,
        scale=scaling,
        enable_gqa=query.shape[2] != keys.shape[1],
    )
    return out.transpose(1, 2)


def _refuse_unsupported(
    key_scale: float,
    value_scale: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    sinks: torch.Tensor | None,
) -> None:
    """Raise rather than compute something else than the model asks for."""
    asked = {
        "a scaled cache": key_scale != 1.0 or value_scale != 1.0,
        "a logit cap": logit_cap > 0,
        "cross attention": is_cross_attention,
        "a sliding window": sliding_window > 0,
        "attention sinks": sinks is not None,
    }
    for feature, wanted in asked.items():
        if wanted:
            raise NotImplementedError(f"sgl_kernel stand-in: {feature} is not supported")
