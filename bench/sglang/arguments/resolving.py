"""From asked arguments to what the server will run with, a rule after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.adaptive import check_adaptive_graphs, resolve_adaptive
from bench.sglang.arguments.backends import resolve_backends, topk_moves_backend
from bench.sglang.arguments.block_drafts import resolve_dflash, resolve_dspark
from bench.sglang.arguments.eagle import DRAFT, TOPK, TRIPLE, resolve_eagle
from bench.sglang.arguments.known import NOTHING, SUPPORTED
from bench.sglang.arguments.ngram import resolve_ngram
from bench.sglang.arguments.parsing import faults_of
from bench.sglang.arguments.sampling import (
    REJECTION,
    check_temperature,
    check_window,
    resolve_block_verification,
)
from bench.sglang.arguments.schedule import (
    check_chunk_pages,
    check_context,
    check_modes,
    check_pipeline,
    check_running,
    check_target,
    resolve_parallelism,
)
from bench.sglang.arguments.uno import resolve_uno
from bench.sglang.arguments.working import ALGORITHMS, EAGLE_FAMILY, Refused, Working

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.sglang.arguments.known import Known
    from bench.sglang.arguments.outcome import EffectiveSpeculative, Rejection
    from bench.sglang.arguments.parsing import AskedValue

ALGORITHM: Final = "speculative_algorithm"
_GEMMA_DRAFTS: Final = frozenset(
    {"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"}
)
# Arguments that one algorithm alone reads, by the beginning of their names.
_OF_ONE: Final = {
    "speculative_ngram_": frozenset({"NGRAM"}),
    "speculative_dflash_": frozenset({"DFLASH"}),
    "speculative_dspark_": frozenset({"DSPARK"}),
    "speculative_domino_": frozenset({"DFLASH"}),
    "uno_lora_path": frozenset({"UNO"}),
}
_SPEC_V2: Final = "SGLANG_ENABLE_SPEC_V2"


def effective_speculative(
    asked: Mapping[str, AskedValue], known: Known = NOTHING
) -> EffectiveSpeculative | Rejection:
    """What the arguments become on SGLang 0.5.23, or why it would not start with them.

    Rules about what is not known are not applied. Where the version is another, or is not known,
    only rules that hold on every version reject (`Rule.always`); the others advise, and what the
    server says after its start decides.

    Args:
        asked: The record of `parse_arguments`.
        known: What is known of models, GPUs and server.
    """
    work = Working(asked, known)
    try:
        _resolve(work)
    except Refused as refused:
        return refused.rejection
    return work.result()


def _resolve(work: Working) -> None:
    _faults(work)
    _algorithm(work)
    resolve_backends(work)
    resolve_parallelism(work)
    check_context(work)
    if work.algorithm is None:
        _without_algorithm(work)
    else:
        _speculate(work)
    check_running(work)
    check_chunk_pages(work)


def _without_algorithm(work: Working) -> None:
    """SGLang looks at some speculative arguments all the same."""
    resolve_block_verification(work)
    check_window(work)
    resolve_adaptive(work)
    check_modes(work)
    for dest in (*TRIPLE, DRAFT, *_speculative(work)):
        if dest != TOPK or not topk_moves_backend(work):
            work.ignore("idle", dest, "there is no --speculative-algorithm")


def _speculate(work: Working) -> None:
    check_target(work)
    resolve_block_verification(work)
    check_window(work)
    resolve_adaptive(work)
    algorithm = work.algorithm or ""
    if algorithm in EAGLE_FAMILY:
        resolve_eagle(work)
    elif algorithm in _RESOLVERS:
        _RESOLVERS[algorithm](work)
    else:
        work.keep(*TRIPLE)
    check_pipeline(work)
    check_modes(work)
    check_adaptive_graphs(work)
    _spec_v2(work)
    _idle(work)
    check_temperature(work)


_RESOLVERS: Final = {
    "NGRAM": resolve_ngram,
    "DFLASH": resolve_dflash,
    "DSPARK": resolve_dspark,
    "UNO": resolve_uno,
}


# ------------------------------------------------------------------------------- the command line


def _faults(work: Working) -> None:
    for fault in faults_of(work.asked):
        ends = f"SGLang {SUPPORTED} ends at once."
        work.refuse(fault.rule, f"{fault.reason} {ends}", fault.fix)


# ---------------------------------------------------------------------------------- the algorithm


def _algorithm(work: Working) -> None:
    asked = work.text(ALGORITHM)
    if asked is None:
        return
    name = asked.upper()
    work.values[ALGORITHM] = name
    draft = work.known.draft
    gemma = draft is not None and draft.architecture in _GEMMA_DRAFTS
    if gemma and name == "EAGLE3":
        work.refuse(
            "algorithm",
            "a Gemma 4 assistant as an EAGLE3 draft: SGLang stops at start.",
            "Take NEXTN.",
        )
    if name in {"NEXTN", "EAGLE"} and gemma:
        work.settle("algorithm", ALGORITHM, "FROZEN_KV_MTP", "the draft is a Gemma 4 assistant")
    elif name == "NEXTN":
        work.settle("algorithm", ALGORITHM, "EAGLE", "that is what NEXTN is")
    elif name not in ALGORITHMS:
        work.advise(
            "algorithm",
            f"{name} is no algorithm of SGLang's own: without a plug-in that has it the start "
            "fails.",
            "Take EAGLE3, EAGLE, NEXTN, STANDALONE, NGRAM, DFLASH, DSPARK or UNO.",
        )


def _speculative(work: Working) -> list[str]:
    return [dest for dest in work.asked if dest.startswith("speculative_") and dest != ALGORITHM]


def _idle(work: Working) -> None:
    """Speculative arguments that this algorithm does not read."""
    algorithm = work.algorithm or ""
    for dest in (*_speculative(work), *(d for d in ("uno_lora_path",) if work.given(d))):
        for beginning, readers in _OF_ONE.items():
            if dest.startswith(beginning) and algorithm not in readers:
                work.ignore("idle", dest, f"{algorithm} does not read it")
    if algorithm == "NGRAM":
        for dest in (DRAFT, "speculative_draft_model_revision"):
            work.ignore("idle", dest, "NGRAM has no draft model")
    if algorithm == "EAGLE3":
        work.ignore("idle", "speculative_token_map", "EAGLE3 drafts have their own vocabulary")
    if algorithm in {"NGRAM", "DFLASH", "DSPARK"}:
        work.ignore("idle", REJECTION, f"{algorithm} does not read it")


def _spec_v2(work: Working) -> None:
    """A variable that older versions read, and launch commands still set."""
    if not work.known.switched_on(_SPEC_V2):
        return
    topk = work.number(TRIPLE[1])
    if work.known.is_older and topk is not None and topk > 1:
        work.reject(
            "spec-v2",
            f"{_SPEC_V2}=1 with topk {topk}: SGLang {work.known.version} fails with a tensor size "
            "mismatch.",
            "Leave the variable out, or give --speculative-eagle-topk 1.",
        )
    if work.known.is_supported:
        work.advise(
            "spec-v2",
            f"{_SPEC_V2} is not read by SGLang {SUPPORTED}.",
            "Leave it out; --disable-overlap-schedule runs the drafts in step.",
        )
