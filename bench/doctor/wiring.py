"""`bench doctor wiring`: captured states, the draft that reads them, and what fits best."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from bench.doctor.captures import read_captures
from bench.doctor.comparing import Sides, Slot, compare, wrong_side
from bench.doctor.heads import require_eagle3
from bench.doctor.reference import Forward
from bench.doctor.wirings import Ranking, Scored, Wiring, material_of, rank
from bench.draft.capture import captured_states, default_states, ids_for
from bench.draft.checkpoint import read_checkpoint
from bench.draft.draft import draft_of
from bench.draft.target import read_target
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.doctor.captures import Sample
    from bench.draft.capture import Captured
    from bench.draft.draft import Draft
    from bench.draft.target import Target

CLEAR = 3.0
"""Standard errors above which the best wiring is better than the next by more than chance."""

UNKNOWN = -1
"""For a state's number: the slot is none of the states that the server gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WiringReport:
    """What was tried and compared.

    Attributes:
        numbers: Which state each captured slot is; None: not known.
        ranking: The wirings, the best first.
        slots: The trainer's slots beside the server's states; empty: not compared.
        hypothesis: What the best wiring says of what is served.
        fix: What to write; None: nothing is to be changed, or SGLang cannot express it.
        side: Whether the trainer's captures or the server is wrong; None: not compared.
    """

    draft: Draft
    numbers: tuple[int, ...] | None
    ranking: Ranking
    slots: tuple[Slot, ...]
    hypothesis: str
    fix: str | None
    side: Sides | None

    @property
    def is_suspect(self) -> bool:
        """Whether another wiring fits better, or the captures are not what the server feeds."""
        is_wrong = self.side is not None and self.side.wrong != "neither"
        return is_wrong or self.ranking.gain_errors > CLEAR


def examine_wiring(
    draft_name: str, captures: str, *, target: str | None = None, served: str | None = None
) -> WiringReport:
    """Try every plausible wiring of a draft on captured states.

    Args:
        draft_name: The draft's folder or Hugging Face id.
        captures: A folder of a trainer's captures, or of `bench doctor capture`'s.
        target: The target's; needed for its embedding unless the draft brings one.
        served: A folder of `bench doctor capture`, of the same token ids, to be compared.

    Raises:
        InputError: Something cannot be read, or does not fit.
    """
    draft = draft_of(read_checkpoint(draft_name))
    require_eagle3(draft)
    known = None if target is None else read_target(target)
    width = draft.input_width
    if width is None:
        raise InputError(f"{draft.name}: its config has no hidden_size.", hint="Is it a draft?")
    samples = read_captures(captures, hidden=width)
    slots: tuple[Slot, ...] = ()
    numbers = samples[0].numbers
    captured = _captured(draft, known)
    fed = None if captured is None else captured.states
    if served is not None:
        given = read_captures(served, hidden=width)
        slots = compare(samples, given)
        states = tuple(UNKNOWN if slot.state is None else slot.state for slot in slots)
        numbers = states if any(state != UNKNOWN for state in states) else None
        if fed is not None and not set(fed) <= set(states):
            samples, numbers = given, given[0].numbers  # what is fed is to be among those tried
    if fed is not None and numbers is not None and not set(fed) <= set(numbers):
        raise InputError(
            f"SGLang feeds states {list(fed)} by the draft's config, and the captures hold "
            f"{list(numbers)}.",
            hint="Capture those layers too: --return-aux-hidden-state-layer-ids of the server.",
        )
    ranking = rank(
        material_of(draft, samples, known), served_wiring(draft, samples, numbers, captured)
    )
    hypothesis, fix = _conclusion(ranking, numbers, captured, known)
    best = ranking.ranked[0].wiring
    is_better = ranking.gain_errors > CLEAR and best.slots != ranking.served.wiring.slots
    side = None
    if slots:
        side = wrong_side(
            slots,
            fed=fed,
            read=None
            if numbers is None or not is_better
            else tuple(numbers[slot] for slot in best.slots),
            num_aux=draft.num_aux,
        )
    return WiringReport(
        draft=draft,
        numbers=numbers,
        ranking=ranking,
        slots=slots,
        hypothesis=hypothesis,
        fix=fix,
        side=side,
    )


def _captured(draft: Draft, target: Target | None) -> Captured | None:
    if target is None or target.layers is None or draft.form == "speculators":
        return None
    return captured_states(
        draft.nested_ids, architecture=target.architecture, layers=target.layers
    )


def served_wiring(
    draft: Draft,
    samples: tuple[Sample, ...],
    numbers: tuple[int, ...] | None,
    captured: Captured | None,
) -> Wiring:
    """What SGLang does by the draft's config, on these slots; unlabelled: the first, in order.

    Raises:
        InputError: The states that SGLang feeds are not among those captured.
    """
    slots_ct = samples[0].states.shape[1]
    states = None if captured is None else captured.states
    if draft.form == "speculators":
        states = draft.top_ids
    if states is not None and numbers is not None and set(states) <= set(numbers):
        slots = tuple(numbers.index(state) for state in states)
    elif slots_ct >= draft.num_aux:
        slots = tuple(range(draft.num_aux))
    else:
        raise InputError(
            f"the captures have {slots_ct} states a token, and the draft reads {draft.num_aux}.",
            hint="Capture more layers, those beside the draft's as well.",
        )
    return Wiring(
        slots=slots,
        vocabulary="offset" if any("d2t" in name for name in draft.checkpoint.tensors) else "none",
        is_tied=draft.is_tied,
        forward=Forward(
            uses_fc=draft.num_aux != 1 or draft.input_width != draft.hidden,
            finds_misnamed=draft.form == "speculators",  # the conversion renames them
            norms_fc=draft.fc_norm or draft.norm_before_fc,
            output="after" if draft.norm_output else "before",
            theta=draft.rope.theta,
        ),
    )


def differences_of(best: Wiring, served: Wiring, numbers: tuple[int, ...] | None) -> list[str]:
    """How two wirings differ, in words."""
    told = []
    if best.slots != served.slots:
        names = [_names(wiring.slots, numbers) for wiring in (best, served)]
        told.append(f"fc reads {names[0]} instead of {names[1]}")
    if best.shift != served.shift:
        told.append(f"row i reads the states of token i {best.shift:+d}")
    if best.vocabulary != served.vocabulary:
        told.append(f"d2t is read as {best.vocabulary} instead of {served.vocabulary}")
    if best.embedding != served.embedding:
        told.append(f"the embedding of the tokens is the {best.embedding}'s")
    if best.is_tied != served.is_tied:
        told.append("the head is " + ("the target's embedding" if best.is_tied else "its own"))
    for each in fields(Forward):
        new, old = getattr(best.forward, each.name), getattr(served.forward, each.name)
        if new != old:
            told.append(f"{each.name} {new} instead of {old}")
    return told


def _names(slots: tuple[int, ...], numbers: tuple[int, ...] | None) -> str:
    if numbers is None:
        return f"slots {list(slots)}"
    names = ("?" if numbers[slot] == UNKNOWN else str(numbers[slot]) for slot in slots)
    return f"states [{', '.join(names)}]"


def _conclusion(
    ranking: Ranking,
    numbers: tuple[int, ...] | None,
    captured: Captured | None,
    target: Target | None,
) -> tuple[str, str | None]:
    best, served = ranking.ranked[0], ranking.served
    told = differences_of(best.wiring, served.wiring, numbers)
    if ranking.gain_errors <= CLEAR or not told:
        return "Nothing fits these states better than what is served, beyond chance.", None
    hypothesis = (
        f"Hypothesis: {'; '.join(told)}. Accept length {best.accept_len_tok:.2f} instead of "
        f"{served.accept_len_tok:.2f} on these states. Only a served run confirms it."
    )
    states = None if numbers is None else tuple(numbers[slot] for slot in best.wiring.slots)
    if states is None or captured is None or states == captured.states or UNKNOWN in states:
        return hypothesis, None
    layers = target.layers if target is not None else None
    if list(states) != sorted(states) or layers is None:
        return hypothesis, "SGLang concatenates states in the order of the layers: reorder fc."
    if states == default_states(layers):
        return hypothesis, "Leave the layer ids out of config.json: these are the default."
    ids = ids_for(states, shift=captured.shift, layers=layers)
    if ids is None:
        return hypothesis, f"SGLang 0.5.23 cannot capture states {list(states)} of this class."
    return hypothesis, (
        'In config.json, write "eagle_config": {"eagle_aux_hidden_state_layer_ids": '
        f"{list(ids)}}}."
    )


def as_json(report: WiringReport) -> dict[str, Any]:
    """A report for programs."""
    ranking = report.ranking
    return {
        "status": "suspect" if report.is_suspect else "clean",
        "states": None if report.numbers is None else list(report.numbers),
        "hypothesis": report.hypothesis,
        "fix": report.fix,
        "side": None if report.side is None else asdict(report.side),
        "served": _scored(ranking.served),
        "ranked": [_scored(scored) for scored in ranking.ranked[:10]],
        "margin_tok": ranking.margin_tok,
        "margin_errors": ranking.margin_errors,
        "gain_errors": ranking.gain_errors,
        "tried": ranking.tried,
        "rows": ranking.rows_ct,
        "slots": [asdict(slot) for slot in report.slots],
    }


def _scored(scored: Scored) -> dict[str, Any]:
    return {
        "wiring": asdict(scored.wiring),
        "top1": list(scored.top1),
        "accepted": list(scored.accepted),
        "accept_len_tok": scored.accept_len_tok,
    }
