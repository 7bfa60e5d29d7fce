"""Bookkeeping of KV-cache slots and token ids around speculative decoding.

`req_to_token` is int32 [rows, pool_len]: row r lists the cache slots of the request that owns pool
row r. Everything here is tiny, so it works on NumPy views of the tensors' memory: a PyTorch call
costs more than the copy.
"""

import ctypes

import numpy as np
import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write the flat list `out_cache_loc` into each request's row over [start, end).

    req_pool_indices, start_offset, end_offset: [bs]. Writes req_to_token.
    Caller: `sglang.srt.mem_cache.allocation.assign_req_to_token_pool_func`.
    """
    table, flat, taken = req_to_token.numpy(), out_cache_loc.numpy(), 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        table[row, start:end] = flat[taken : taken + end - start]
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """The other way: gather each request's slots over [start, end) into a flat list.

    Writes out_cache_loc, int64. Caller: `sglang.kernels.ops.speculative.cache_locs`.
    """
    table, flat, filled = req_to_token.numpy(), out_cache_loc.numpy(), 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        flat[filled : filled + end - start] = table[row, start:end]
        filled += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Gather the topk * num_steps slots that follow each request's `seq_lens` tokens.

    Writes out_cache_loc, [bs * topk * num_steps].
    Caller: `sglang.kernels.ops.speculative.cache_locs.assign_draft_cache_locs_contiguous_func`.
    """
    assign_extend_cache_locs_cpu(
        req_pool_indices,
        req_to_token,
        seq_lens,
        seq_lens + topk * num_steps,
        out_cache_loc,
        pool_len,
    )


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """A slot table with a row for every branch: the shared prefix, then its own slots.

    Returns int32 [bs * topk, width]. The draft slots lie behind the prefix in blocks of num_steps,
    a block a branch, so branch k owns columns seq_len + k * num_steps onward. The table ends where
    the longest row does.
    Caller: `sglang.srt.layers.attention.intel_amx_backend.IntelAMXMultiStepDraftBackend`.
    """
    lengths = seq_lens.tolist()
    width = max(lengths, default=0) + num_steps
    rows = req_to_token.numpy()[req_pool_indices.numpy()]
    table = np.repeat(rows[:, :width], topk, axis=0)
    for b, length in enumerate(lengths):
        blocks = rows[b, length : length + topk * num_steps].reshape(topk, num_steps)
        table[b * topk : (b + 1) * topk, length : length + num_steps] = blocks
    return torch.from_numpy(table)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """Gather the slots of the accepted nodes (index > -1), keeping their order, without gaps.

    Writes the front of accept_out_cache_loc.
    Caller: `sglang.kernels.ops.speculative.eagle.fill_accept_out_cache_loc_func`.
    """
    index = accept_index.reshape(-1).numpy()
    slots = out_cache_loc.numpy()[index[index > -1]]
    accept_out_cache_loc.numpy()[: slots.size] = slots


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """The last accepted token of each request.

    accept_tokens: bs rows of accept_stride. accept_lens: [bs], the bonus token included. Writes
    bonus_tokens, [bs]. Caller: `sglang.kernels.ops.speculative.eagle.fill_bonus_tokens_func`.
    """
    lengths = accept_lens.numpy()
    last = np.arange(lengths.size) * accept_stride + lengths - 1
    bonus_tokens.numpy()[: lengths.size] = accept_tokens.reshape(-1).numpy()[last]


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    new_tokens: torch.Tensor,
    select_index: torch.Tensor | None,
) -> None:
    """Shift each request's ids left by one and put its new token at the end.

    With select_index, [bs], the token goes to that place instead. Writes
    input_ids, [tokens]. Caller:
    `sglang.kernels.ops.speculative.multi_layer_eagle.rotate_input_ids`.
    """
    ids, new = input_ids.numpy(), new_tokens.reshape(-1).tolist()
    places = None if select_index is None else select_index.tolist()
    for b, (start, length) in enumerate(
        zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    ):
        if length == 0:
            continue
        end = start + length
        ids[start : end - 1] = ids[start + 1 : end].copy()
        ids[end - 1 if places is None else places[b]] = new[b]


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Move cache rows src -> tgt in the key and value buffer of every layer.

    data_ptrs: addresses of the buffers; strides: bytes of a row. All rows are read before one is
    written, since source and target rows may overlap. Caller:
    `sglang.kernels.ops.kvcache.cache_move.copy_all_layer_kv_cache_func`.
    """
    source, target = src_loc.numpy(), tgt_loc.numpy()
    if source.size == 0:
        return
    rows = int(max(source.max(), target.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(address)
        buffer = np.frombuffer(memory, dtype=np.uint8).reshape(rows, stride)
        buffer[target] = buffer[source]


def _spans(rows: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> zip:
    """(pool row, start, end) of each request, as plain integers."""
    return zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
