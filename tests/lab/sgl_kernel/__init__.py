"""The kernels that SGLang 0.5.23 asks of `sgl_kernel` on a CPU, in plain PyTorch.

SGLang can run speculative decoding on a CPU, but no wheel with the CPU kernels is published. This
package stands in for it: same names, same arguments, same tensors written to, for one rank, dense
models, no sliding window. It is made to be right and readable; it says nothing about how fast the
real kernels are.

It must not offer `convert_weight_packed`: on a CPU with AMX tiles SGLang takes that operator as
the sign that every other AMX kernel is there too.
"""

import torch

from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu
from sgl_kernel.slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def init_cpu_threads_env(cpu_ids: str) -> None:
    """Pin OpenMP threads. Does nothing: the operating system may place them.

    Caller: `sglang.srt.distributed.bootstrap`, and only where AMX kernels are present.
    """


# SGLang calls these through torch.ops. A plain attribute on the namespace is enough, since nothing
# here is traced, compiled or differentiated.
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu
torch.ops.sgl_kernel.init_cpu_threads_env = init_cpu_threads_env
