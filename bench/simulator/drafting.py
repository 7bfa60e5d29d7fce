"""How the server drafts: its algorithm and numbers, adaptive tiers, forced acceptance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.physics import Speculation
from bench.sglang.arguments import (
    EAGLE_FAMILY,
    SUPPORTED,
    AskedValue,
    Known,
    ModelFacts,
    Rejection,
    asked_text,
    attention_of,
    effective_speculative,
    option_of,
)
from bench.simulator.adaptive import ConfigError, Tier, read_tiers
from bench.simulator.forced_acceptance import Forced, read_forced
from bench.simulator.refusals import StartFailure, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.physics import TargetCard
    from bench.sglang.arguments import Change, EffectiveSpeculative

_WITH_DRAFT_LAYER = frozenset({"EAGLE", "EAGLE3"})
_MODELLED = _WITH_DRAFT_LAYER | {"NGRAM"}
_OF_SGLANG = EAGLE_FAMILY | {"NGRAM", "DFLASH", "DSPARK", "UNO"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What speculation is resolved to.

    Attributes:
        algorithm: NEXTN is EAGLE; None without speculation.
        speculation: Its numbers; of adaptive speculation those it begins with.
        tiers: Of adaptive speculation; None: it is not on.
        forced: What the environment makes of acceptance; None: nothing.
        reserved_tok: Tokens of the context that it keeps for itself.
        decode_reserve_tok: KV slots that each request wants beyond its tokens at a decoding step.
        max_running_requests: The most requests at once, asked for or by speculation's own limit;
            None: memory decides.
        changes: What SGLang changes of what was asked.
        ignored: What it does not read, as options.
    """

    algorithm: str | None
    speculation: Speculation | None
    tiers: tuple[Tier, ...] | None
    forced: Forced | None
    reserved_tok: int
    decode_reserve_tok: int
    max_running_requests: int | None
    changes: tuple[Change, ...]
    ignored: tuple[str, ...]

    @property
    def has_draft_model(self) -> bool:
        """Whether a draft model takes memory."""
        return self.algorithm in _WITH_DRAFT_LAYER

    @property
    def most_steps(self) -> int:
        """The most draft steps that a batch may come to take."""
        assert self.speculation is not None
        if self.tiers is None:
            return self.speculation.num_steps
        return max(self.speculation.num_steps, *(max(tier.candidates) for tier in self.tiers))

    def forwards_of(self, speculation: Speculation) -> Speculation:
        """The forwards that a cycle takes: n-grams are looked up, which takes none of a draft."""
        if self.algorithm != "NGRAM":
            return speculation
        return Speculation(num_steps=0, topk=1, num_draft_tokens=speculation.num_draft_tokens)


def read_drafting(
    asked: Mapping[str, AskedValue], target: TargetCard, *, acceptance_given: bool
) -> tuple[Drafting, EffectiveSpeculative]:
    """Resolve the speculative arguments.

    Args:
        asked: SGLang's arguments.
        target: The target model.
        acceptance_given: Whether the command line names an acceptance card.

    Raises:
        StartFailure: SGLang would not start with them.
        InputError: The simulator has no model of them.
    """
    facts = ModelFacts(
        architecture=target.architecture,
        attention=attention_of(target.architecture),
        layers=target.layers,
        context_len_tok=target.context_len,
        vocab_size=target.vocab_size,
    )
    spec = effective_speculative(asked, Known(version=SUPPORTED, target=facts))
    if isinstance(spec, Rejection):
        _refuse_steps(spec, asked)
        refuse(spec, asked)
    _refuse_unmodelled(spec.algorithm, acceptance_given=acceptance_given)
    tiers = _tiers(asked, spec)
    speculation = None
    if spec.algorithm is not None:
        assert spec.num_steps is not None
        assert spec.num_draft_tokens is not None
        speculation = Speculation(
            num_steps=spec.num_steps,
            topk=spec.eagle_topk or 1,
            num_draft_tokens=spec.num_draft_tokens,
        )
    most_tok = 1
    if speculation is not None:
        most_tok = max(
            speculation.num_steps * speculation.topk,
            spec.most_draft_tokens or speculation.num_draft_tokens,
        )
    drafting = Drafting(
        algorithm=spec.algorithm,
        speculation=speculation,
        tiers=tiers,
        forced=None if spec.algorithm is None else read_forced(),
        reserved_tok=spec.reserved_tok or 0,
        # Speculation keeps room for two steps, since one may be running when the next is prepared.
        decode_reserve_tok=1 if speculation is None else 2 * most_tok,
        max_running_requests=spec.max_running_requests,
        changes=spec.changes,
        ignored=tuple(option_of(dest) for dest in spec.without_effect),
    )
    return drafting, spec


def _tiers(asked: Mapping[str, AskedValue], spec: EffectiveSpeculative) -> tuple[Tier, ...] | None:
    if dict(spec.values).get("speculative_adaptive") is not True:
        return None
    return _read_tiers(asked)


def _read_tiers(asked: Mapping[str, AskedValue]) -> tuple[Tier, ...]:
    try:
        return read_tiers(asked_text(asked, "speculative_adaptive_config"))
    except ConfigError as error:
        raise StartFailure(str(error), exit_code=1) from None


def _refuse_steps(rejection: Rejection, asked: Mapping[str, AskedValue]) -> None:
    """What is wrong with an adaptive configuration, or with the first steps, in SGLang's words."""
    if rejection.rule != "C29":
        return
    candidates = sorted({steps for tier in _read_tiers(asked) for steps in tier.candidates})
    steps = asked_text(asked, "speculative_num_steps")
    raise StartFailure(
        f"ValueError: --speculative-num-steps={steps} is not in the adaptive config "
        f"candidate_steps {candidates}. Pass one of those values.",
        exit_code=1,
    )


def _refuse_unmodelled(algorithm: str | None, *, acceptance_given: bool) -> None:
    if algorithm is None:
        return
    if algorithm not in _OF_SGLANG:
        raise StartFailure(
            f"ValueError: Unknown speculative algorithm name: {algorithm}", exit_code=1
        )
    if algorithm not in _MODELLED:
        why = {
            "STANDALONE": "it has no card of a draft model of its own",
            "FROZEN_KV_MTP": "it has no card of Gemma 4's assistant",
        }.get(algorithm, "it does not know what such a draft costs and how it is accepted")
        raise InputError(
            f"--speculative-algorithm {algorithm} asked for, which the simulator does not model: "
            f"{why}",
            hint="Use EAGLE3, EAGLE, NEXTN or NGRAM, or measure on a real server.",
        )
    if algorithm == "NGRAM" and not acceptance_given:
        raise InputError(
            "--speculative-algorithm NGRAM asked for without --sim-acceptance; how often n-grams "
            "are right depends on the text alone, and a draft model's card tells nothing of it",
            hint="Give P(at least k accepted) for k = 1, 2, …: --sim-acceptance 0.5,0.4,0.3.",
        )
