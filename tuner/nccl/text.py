"""A ranking as text for people and as plain data for programs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from tuner.nccl.messages import PREFILL
from tuner.nccl.settings import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tuner.nccl.messages import Message
    from tuner.nccl.ranking import Compared
    from tuner.nccl.results import Chosen, DraftRanking, LoadRanking, NcclRanking
    from tuner.nccl.transport import StepTransport, Taken

_SHOWN: Final = 5
_FEW_DRAFTS: Final = 4


def ranking_text(ranking: NcclRanking) -> str:
    """All that was found, to be printed."""
    lines = [*_transports(ranking), "", *_engine(ranking)]
    if ranking.why_unranked is not None:
        lines += ["", f"No ranking: {ranking.why_unranked}."]
        if not any(step.matters for step in ranking.question.steps) and ranking.backend is None:
            lines.append(
                "To rank NCCL all the same, add --disable-custom-all-reduce and "
                "--enforce-disable-flashinfer-allreduce-fusion to server.arguments."
            )
    else:
        lines += ["", *_ranking(ranking)]
    lines += _left_out(ranking)
    return "\n".join(lines)


def ranking_json(ranking: NcclRanking) -> dict[str, Any]:
    """All that was found, of JSON's own types; a missing value is null."""
    question, measured = ranking.question, ranking.measured
    return {
        "scenario": question.scenario,
        "ranked": ranking.why_unranked is None,
        "why_unranked": ranking.why_unranked,
        "tool": ranking.tool,
        "backend": ranking.backend,
        "tp": question.comms.tp,
        "messages": [
            {
                "load": step.step.load,
                "draft": step.step.draft,
                "batch": step.step.batch,
                "nccl_matters": step.matters,
                "messages": [
                    {
                        "kind": message.kind,
                        "bytes": message.message_bytes,
                        "per_step": message.per_step,
                        "transport": taken.transport,
                        "reason": taken.reason,
                        "nccl": taken.nccl,
                    }
                    for message, taken in zip(step.step.messages, step.taken, strict=True)
                ],
            }
            for step in question.steps
        ],
        "set_by_sglang": [
            {
                "name": variable.name,
                "value": variable.value,
                "reason": variable.reason,
                "overwrites": variable.overwrites,
            }
            for variable in question.engine
        ],
        "settings": [
            {"name": one.name, "environment": dict(one.environment), "why": one.why}
            for one in (question.choice.default, *question.choice.others)
        ],
        "left_out": [
            {"setting": name, "why": why}
            for name, why in (*question.choice.left_out, *(measured.left if measured else ()))
        ],
        "failures": [
            {"setting": name, "why": why} for name, why in (measured.failures if measured else ())
        ],
        "rounds": None if measured is None else len(measured.rounds),
        "starts": None if measured is None else measured.starts,
        "loads": [_load_json(load) for load in ranking.loads],
        "single_best_for_all": ranking.single_best,
        "default_against_itself": None if ranking.control is None else _compared(ranking.control),
        "crossovers": [
            {
                "below_bytes": one.below_bytes,
                "above_bytes": one.above_bytes,
                "before": one.before,
                "after": one.after,
            }
            for one in ranking.crossovers
        ],
        "chosen": [_chosen_json(one) for one in ranking.chosen],
        "notes": list(question.notes),
    }


# ------------------------------------------------------------------------------------------- text


def _transports(ranking: NcclRanking) -> Iterator[str]:
    question = ranking.question
    yield (
        f"All-reduces of {question.scenario}, {question.comms.tp} ranks. KiB of a message, times "
        "in one step, and what SGLang sends it through:"
    )
    for load, steps in _by_load(question.steps):
        yield from _load_lines(load, steps)
    taken_by_all = [taken for step in question.steps for taken in step.taken]
    reasons = dict.fromkeys((taken.transport, taken.reason) for taken in taken_by_all)
    for transport, reason in reasons:
        yield f"  {transport}: {reason}."
    matter = [step for step in question.steps if step.matters]
    if len(matter) < len(question.steps):
        yield (
            f"  NCCL's variables can matter at {len(matter)} of {len(question.steps)} of these; "
            "at the others a launch for them is lost."
        )
    yield from (f"  Not known: {note}." for note in question.notes)


def _by_load(steps: Sequence[StepTransport]) -> list[tuple[str, list[StepTransport]]]:
    found: dict[str, list[StepTransport]] = {}
    for step in steps:
        found.setdefault(step.step.load, []).append(step)
    return list(found.items())


def _load_lines(load: str, steps: Sequence[StepTransport]) -> Iterator[str]:
    """Every message of few drafts; of many, the range of each forward's."""
    if load != PREFILL and len(steps) > _FEW_DRAFTS:
        yield f"  load {load}, {len(steps)} ways to draft"
        grouped: dict[tuple[str, str], list[Message]] = {}
        for step in steps:
            for message, taken in zip(step.step.messages, step.taken, strict=True):
                grouped.setdefault((message.kind, taken.transport), []).append(message)
        for (kind, transport), messages in grouped.items():
            sizes = _range([message.message_bytes for message in messages])
            yield f"    {kind:<13}{sizes:>16} KiB  {transport}"
        return
    for step in steps:
        yield f"  {_where(step)}"
        for message, taken in zip(step.step.messages, step.taken, strict=True):
            yield f"    {_message(message, taken)}"


def _range(sizes: Sequence[int]) -> str:
    """`14` or `14 - 896`, in KiB."""
    least, most = min(sizes) / 1024, max(sizes) / 1024
    return f"{least:g}" if least == most else f"{least:g} - {most:g}"


def _where(step: StepTransport) -> str:
    if step.step.load == PREFILL:
        return f"prefill, chunk of {step.step.messages[0].rows} tokens"
    return f"load {step.step.load}, {step.step.draft}, batch {step.step.batch}"


def _message(message: Message, taken: Taken) -> str:
    kib = message.message_bytes / 1024
    return f"{message.kind:<13}{kib:>10g} KiB  ×{message.per_step:<5}{taken.transport}"


def _engine(ranking: NcclRanking) -> Iterator[str]:
    yield "What SGLang sets itself (the default below has it too):"
    for variable in ranking.question.engine:
        lost = ", whatever the environment says" if variable.overwrites else ""
        yield f"  {variable.name}={variable.value}  ({variable.reason}{lost})"


def _ranking(ranking: NcclRanking) -> Iterator[str]:
    measured = ranking.measured
    assert measured is not None
    yield (
        f"Ranked by {ranking.tool}: {len(measured.rounds)} rounds, {measured.starts} starts. "
        "Speedups are of all-reduces, not of tokens."
    )
    if ranking.control is not None:
        yield f"  The default against itself: {_interval(ranking.control)}"
    for load in ranking.loads:
        name = "prefill" if load.load == PREFILL else f"load {load.load}"
        yield f"  {name}: {load.best.name} ({load.reason})"
        yield from (f"    {_interval(one)}  {one.setting}" for one in load.compared[:_SHOWN])
        yield from _draft_lines(load.drafts)
    decoding = [load for load in ranking.loads if load.load != PREFILL]
    winners = {load.best.name for load in decoding}
    winners |= {draft.winner for load in decoding for draft in load.drafts}
    if winners == {DEFAULT}:
        yield "Keep the default: no setting is surely faster while decoding."
    elif len({draft.winner for load in decoding for draft in load.drafts}) > 1:
        yield "No setting is the best of all loads and drafts: choose by those that count."
    elif ranking.single_best is not None:
        yield f"Best at every load: {ranking.single_best}."
    else:
        yield "No setting is the best at every load: choose by the loads that count."
    for one in ranking.crossovers:
        yield (
            f"  Fastest up to {one.below_bytes / 1024:g} KiB: {one.before}; from "
            f"{one.above_bytes / 1024:g} KiB: {one.after}."
        )
    yield from _chosen(ranking.chosen)


def _draft_lines(drafts: Sequence[DraftRanking]) -> Iterator[str]:
    """A line a draft; of many, a line a winner."""
    if len(drafts) <= _FEW_DRAFTS:
        for draft in drafts:
            saved = _saved_us(draft.default_us, draft.winner, draft.compared)
            gain = "" if saved is None else f", saves {saved:.0f} µs a step"
            yield f"    {draft.draft}: {draft.winner}{gain} of {draft.default_us:.0f} µs in NCCL"
        return
    by_winner: dict[str, list[str]] = {}
    for draft in drafts:
        by_winner.setdefault(draft.winner, []).append(draft.draft)
    for winner, labels in by_winner.items():
        yield f"    {winner}: {', '.join(labels)}"


def _interval(one: Compared) -> str:
    if one.low is None or one.high is None:
        return f"{100 * (one.speedup - 1):+6.1f} % (no interval from one round)"
    low, high = (100 * (bound - 1) for bound in (one.low, one.high))
    return f"{100 * (one.speedup - 1):+6.1f} % [{low:+.1f}, {high:+.1f}]"


def _saved_us(default_us: float, winner: str, compared: Sequence[Compared]) -> float | None:
    found = next((one for one in compared if one.setting == winner), None)
    return None if found is None else default_us * (1 - 1 / found.speedup)


def _chosen(chosen: Sequence[Chosen]) -> Iterator[str]:
    yield "What NCCL chose, read from its log in starts that were not scored:"
    for one in chosen:
        if one.failure is not None:
            yield f"  {one.setting}: not known. {one.failure}"
            continue
        spans = [
            (label, [choice.message_bytes for choice in same])
            for label, same in itertools.groupby(one.choices, key=lambda choice: choice.label)
        ]
        told = "; ".join(f"{_range(sizes)} KiB {label}" for label, sizes in spans)
        yield f"  {one.setting}: {told}"
        if one.not_taken:
            yield f"    NCCL does not say that it took {', '.join(one.not_taken)}"


def _left_out(ranking: NcclRanking) -> Iterator[str]:
    measured = ranking.measured
    told = [*ranking.question.choice.left_out]
    told += [*measured.failures, *measured.left] if measured else []
    if told:
        yield ""
        yield "Not ranked, or not to the end:"
        yield from (f"  {name}: {why}" for name, why in told)


# ------------------------------------------------------------------------------------------- JSON


def _load_json(load: LoadRanking) -> dict[str, Any]:
    return {
        "load": load.load,
        "best": load.best.name,
        "gain": load.best.over_default,
        "reason": load.reason,
        "compared": [_compared(one) for one in load.compared],
        "drafts": [
            {
                "draft": draft.draft,
                "default_us": draft.default_us,
                "best": draft.winner,
                "compared": [_compared(one) for one in draft.compared],
            }
            for draft in load.drafts
        ],
    }


def _compared(one: Compared) -> dict[str, Any]:
    return {
        "setting": one.setting,
        "rounds": one.rounds,
        "speedup": one.speedup,
        "low": one.low,
        "high": one.high,
        "verdict": None if one.verdict is None else one.verdict.value,
    }


def _chosen_json(one: Chosen) -> dict[str, Any]:
    return {
        "setting": one.setting,
        "failure": one.failure,
        "not_taken": list(one.not_taken),
        "choices": [
            {
                "bytes": choice.message_bytes,
                "algorithm": choice.algorithm,
                "protocol": choice.protocol,
                "channels": choice.channels,
            }
            for choice in one.choices
        ],
    }
