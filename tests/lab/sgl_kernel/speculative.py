"""Tree tables back from a tree mask, for drafts that come as a mask (NGRAM)."""

import torch


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    seq_lens: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """From which node sees which to the tables that `sgl_kernel.tree` describes.

    tree_mask: flat [bs, n, n], (i, j) set where j is i or an ancestor of i; an ancestor has the
    smaller number. seq_lens: [bs]. Writes positions [bs * n] (seq_len + number of ancestors) and
    the tables [bs, n]. A node's parent is its nearest ancestor, its first child the first node
    that sees it. Nodes without a parent get no sibling. Caller:
    `sglang.kernels.ops.speculative.reconstruct_tree.reconstruct_indices_from_tree_mask_func`.
    """
    bs, n = batch_size, draft_token_num
    # sees[b, i, j]: j is a strict ancestor of i.
    sees = tree_mask.view(-1)[: bs * n * n].view(bs, n, n).bool().tril(-1)
    node = torch.arange(n)
    positions.view(-1)[: bs * n] = (sees.sum(2) + seq_lens[:bs, None]).reshape(-1)
    retrieve_index.view(-1)[: bs * n] = torch.arange(bs * n)
    first_child = torch.where(sees, node[:, None], n).amin(1)
    retrieve_next_token.view(bs, n).copy_(torch.where(first_child < n, first_child, -1))
    parent = torch.where(sees, node, -1).amax(2)
    # younger[b, i, k]: k comes after i and has the same parent.
    younger = ((parent[:, :, None] == parent[:, None, :]) & (parent >= 0)[:, :, None]).triu(1)
    sibling = torch.where(younger, node, n).amin(2)
    retrieve_next_sibling.view(bs, n).copy_(torch.where(sibling < n, sibling, -1))
