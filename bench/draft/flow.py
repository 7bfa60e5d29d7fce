"""The way of the data through a draft, with its shapes: n tokens at once, widths as served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.draft.draft import DECLARED
from bench.draft.rules.forward import fc_weight

if TYPE_CHECKING:
    from bench.draft.case import Case


def flow_of(case: Case) -> tuple[str, ...]:
    """Lines that draw what SGLang will compute; empty for what is no draft."""
    if case.draft.form == "mtp":
        return _mtp(case)
    if not case.draft.is_eagle3:
        return ()
    return (*_target(case), *_first_step(case), *_layers(case), *_head(case), *_later(case))


def _target(case: Case) -> tuple[str, ...]:
    target, captured, draft = case.target, case.captured, case.draft
    if draft.form == "speculators":
        ids = "none given" if draft.top_ids is None else str(list(draft.top_ids))
        return (
            f"trained on the target's states {ids} (0 is the embedding, i layer i - 1's output)",
        )
    if not draft.uses_aux:
        return ("target: its last hidden state alone (use_aux_hidden_state is false)",)
    if target is None:
        return ("target: not given, so the layers captured are not known",)
    head = f"target {target.architecture}: {_n(target.layers)} layers of {_n(target.hidden)}"
    if captured is None:
        return (f"{head}; what it captures is not known",)
    how = "by default" if captured.asked is None else f"asked {list(captured.asked)}"
    if captured.is_shifted:
        how += ", which this class takes for layers' numbers"
    elif captured.asked is not None:
        how += ", which this class takes for states' numbers (0 the embedding, i layer i - 1)"
    lines = [head, f"  captured: {captured.text} ({how})"]
    if draft.declared is not None:
        lines.append(f"  trained on: states {list(draft.declared)} (eagle_config.{DECLARED})")
    return tuple(lines)


def _first_step(case: Case) -> tuple[str, ...]:
    draft = case.draft
    fed, hidden = case.fed_width, draft.hidden
    width = draft.input_width
    if case.target is not None and case.target.hidden is not None:
        width = case.target.hidden
    states = fed // width if fed is not None and width else None
    entry = f"[n, {_n(states)}×{_n(width)}={_n(fed)}]" if states != 1 else f"[n, {_n(fed)}]"
    if fed is not None and fed == hidden:
        return (f"step 1: {entry} is as wide as the draft: fc is skipped",)
    norms = "".join(
        [" -> input_norm"] * draft.norm_before_fc + [" -> fc_norm of each"] * draft.fc_norm
    )
    fc = fc_weight(draft)
    shape = list(fc.shape) if fc is not None else "(no fc.weight: random)"
    return (f"step 1: {entry}{norms} -> fc {shape} -> [n, {_n(hidden)}]",)


def _layers(case: Case) -> tuple[str, ...]:
    draft, hidden = case.draft, case.draft.hidden
    double = None if hidden is None else 2 * hidden
    shares = draft.shares_embedding and draft.form != "speculators"
    whose = "the target's embedding" if shares else "its own embedding"
    joined = f"cat(input_layernorm({whose}), hidden_norm(hidden))"
    lines = [f"  {joined} [n, {_n(double)}] -> layer 0 -> [n, {_n(hidden)}]"]
    lines += [
        f"  -> layer {layer} -> [n, {_n(hidden)}]" for layer in range(1, min(draft.layers, 8))
    ]
    return tuple(lines)


def _head(case: Case) -> tuple[str, ...]:
    draft, found = case.draft, case.vocabulary
    rows, vocab = draft.head_rows, case.vocab_size
    whose = "its own head"
    if draft.is_tied:
        whose, rows = "the target's embedding as its head", vocab
    elif draft.has_draft_vocab and draft.draft_vocab_size is None:
        whose = "the target's head"
    if found.d2t is None:
        ids = "draft ids are the target's"
        if rows is not None and vocab is not None and rows < vocab:
            ids = "no d2t: draft ids are taken for the target's first"
    else:
        proof = "proved by t2d" if found.is_proved else "not proved: no t2d"
        counts = {"offset": "offsets", "zero": "all 0", "absolute": "TOKENS, not offsets"}
        what = counts.get(found.convention or "", "neither offsets nor tokens")
        ids = f"i + d2t[i] -> target ids of {_n(vocab)} (d2t: {what}, {proof})"
    return (f"  -> norm -> {whose} [n, {_n(rows)}] -> {ids}",)


def _later(case: Case) -> tuple[str, ...]:
    draft = case.draft
    place = "after the final norm" if draft.norm_output else "before the final norm"
    return (
        f"steps 2…: the draft's own [n, {_n(draft.hidden)}], {place}, without fc; then as step 1",
    )


def _mtp(case: Case) -> tuple[str, ...]:
    hidden = case.draft.hidden
    double = None if hidden is None else 2 * hidden
    joined, own = "cat(enorm(the target's embedding), hnorm(hidden))", f"[n, {_n(hidden)}]"
    return (
        f"step 1: the target's last hidden state {own}",
        f"  {joined} [n, {_n(double)}] -> eh_proj -> {own} -> layer -> {own}",
        "  -> shared_head.norm -> the target's head -> target ids",
        f"steps 2…: the layer's own {own}",
    )


def _n(value: int | None) -> str:
    return "?" if value is None else str(value)
