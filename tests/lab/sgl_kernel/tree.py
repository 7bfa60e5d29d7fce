"""The tree of draft tokens: building it, and walking it along the target's choices.

A request has n nodes. Node 0 is the token already decided; nodes 1 … n-1 are the chosen drafts. A
tree is kept as three int64 tables [bs, n]: `retrieve_index` (the node's place in the flat batch),
`retrieve_next_token` (its first child) and `retrieve_next_sibling` (the next child of its parent),
-1 for none. Children are in the order of their numbers, which is the order in which they are
tried.
"""

import torch

FULL_MASK, QLEN_ONLY = 0, 1  # sglang.kernels.ops.speculative.spec_tree.TreeMaskMode


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    seq_lens: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    spec_steps: int,
    num_draft_tokens: int,
    tree_mask_mode: int,
) -> None:
    """Link the chosen candidates into trees and say which node sees which.

    selected_index: [bs, n - 1], candidate numbers, ascending; candidates are numbered step by
    step, topk children of one parent in a run, so `number // topk` names the parent's entry in
    parent_list [bs, entries], whose value is the parent's own candidate number (entry 0: the
    root). seq_lens: [bs].
    Writes positions [bs * n] (seq_len + depth), the three retrieve tables, and tree_mask, flat
    bool: n x n a request (QLEN_ONLY), or n x (seq_len + n) with the prefix visible (FULL_MASK).
    Caller: `sglang.kernels.ops.speculative.spec_tree.build_tree_kernel_efficient_func`.
    """
    if tree_mask_mode not in (FULL_MASK, QLEN_ONLY):
        raise NotImplementedError(
            f"sgl_kernel stand-in: tree mask mode {tree_mask_mode} is not supported"
        )
    n, mask_rows, depths, first_child, next_sibling = num_draft_tokens, [], [], [], []
    lengths = seq_lens.tolist()
    for parents, selected, length in zip(
        parent_list.tolist(), selected_index.tolist(), lengths, strict=True
    ):
        parent_nodes = _parent_nodes(parents, selected, topk)
        children, siblings = _links(parent_nodes)
        first_child.append(children)
        next_sibling.append(siblings)
        prefix = [True] * (length if tree_mask_mode == FULL_MASK else 0)
        for node in range(n):
            path = _path(parent_nodes, node)
            depths.append(length + len(path) - 1)
            row = [False] * n
            for ancestor in path:
                row[ancestor] = True
            # The root is always seen, also by a node whose parent was not chosen.
            row[0] = True
            mask_rows += prefix + row
    bs = len(lengths)
    tree_mask.view(-1)[: len(mask_rows)] = torch.tensor(mask_rows, dtype=tree_mask.dtype)
    positions.copy_(torch.tensor(depths, dtype=positions.dtype))
    retrieve_index.copy_(torch.arange(bs * n).view(bs, n))
    retrieve_next_token.copy_(torch.tensor(first_child))
    retrieve_next_sibling.copy_(torch.tensor(next_sibling))


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walk down from the root while some child is the token that the target would have chosen.

    candidates, target_predict: [bs, n], the drafted token of a node and the target's choice after
    it.
    Writes predicts [bs * n] (at each accepted node, the token after it), accept_index [bs, depth]
    (flat places of the accepted nodes, the root first; the rest stays as it came, -1) and
    accept_token_num [bs] (drafts accepted).
    The arguments keep the spelling "retrive": they are passed by these names.
    Caller: `sglang.kernels.ops.speculative.spec_tree.verify_tree_greedy_func`.
    """
    depth = accept_index.shape[1]
    tokens, wanted = candidates.tolist(), target_predict.reshape(-1).tolist()
    flat, child, sibling = (
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
    )
    written, accepted_rows, counts = {}, accept_index.tolist(), []
    for b, accepted in enumerate(accepted_rows):
        node, taken = 0, 0
        accepted[0] = flat[b][0]
        while True:
            choice = wanted[flat[b][node]]
            written[flat[b][node]] = choice
            candidate = child[b][node] if taken + 1 < depth else -1
            while candidate != -1 and tokens[b][candidate] != choice:
                candidate = sibling[b][candidate]
            if candidate == -1:
                break
            node, taken = candidate, taken + 1
            accepted[taken] = flat[b][node]
        counts.append(taken)
    accept_index.copy_(torch.tensor(accepted_rows, dtype=accept_index.dtype))
    accept_token_num.copy_(torch.tensor(counts, dtype=accept_token_num.dtype))
    predicts[list(written)] = torch.tensor(list(written.values()), dtype=predicts.dtype)


def _parent_nodes(parents: list[int], selected: list[int], topk: int) -> list[int]:
    """The parent of every node; -1 for the root and where the parent was not chosen."""
    node_of = {candidate: node for node, candidate in reversed(list(enumerate(selected, start=1)))}
    result = [-1]
    for candidate in selected:
        entry = candidate // topk
        result.append(0 if entry == 0 else node_of.get(parents[entry], -1))
    return result


def _links(parent_nodes: list[int]) -> tuple[list[int], list[int]]:
    """(first child, next sibling) of every node, -1 for none."""
    first_child, next_sibling = [-1] * len(parent_nodes), [-1] * len(parent_nodes)
    for node in range(len(parent_nodes) - 1, 0, -1):
        parent = parent_nodes[node]
        if parent >= 0:
            next_sibling[node] = first_child[parent]
            first_child[parent] = node
    return first_child, next_sibling


def _path(parent_nodes: list[int], node: int) -> list[int]:
    """The node, its parent, and so on to the root."""
    path = []
    while node != -1:
        path.append(node)
        node = parent_nodes[node]
    return path
