"""Batch limits, parallelism and the modes of serving that speculation changes or cannot have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.adaptive import is_adaptive, is_multi_layer
from bench.sglang.arguments.backends import DEEPSEEK_V3, PLAIN_MHA
from bench.sglang.arguments.graphs import default_chunks
from bench.sglang.arguments.options import option_of
from bench.sglang.arguments.parsing import asked_text, whole_number

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

_DEFAULT_RUNNING: Final = 48
_DEEPSEEK_V4_RUNNING: Final = 256
RUNNING: Final = "max_running_requests"
MOST_GRAPH: Final = "cuda_graph_max_bs_decode"


def limit_running(work: Working) -> None:
    """C10 and C11: the running limit that speculation brings along."""
    if work.number(RUNNING) is not None:
        return
    target = work.known.target
    deepseek_v4 = target is not None and target.architecture == "DeepseekV4ForCausalLM"
    limit = _DEEPSEEK_V4_RUNNING if deepseek_v4 else _DEFAULT_RUNNING
    work.settle("C10", RUNNING, limit, "of speculation (without it memory decides)")
    if not any(
        work.given(dest) for dest in (MOST_GRAPH, "cuda_graph_bs_decode", "cuda_graph_config")
    ):
        work.advise(
            "C11",
            f"memory is kept for CUDA graphs of the largest default batch, though only {limit} "
            "requests run.",
            f"Give --max-running-requests and {option_of(MOST_GRAPH)}.",
        )


def check_running(work: Working) -> None:
    """C12, as far as `--max-total-tokens` tells: at most half the KV cache's tokens run."""
    total = work.number("max_total_tokens")
    running = work.number(RUNNING)
    if running is not None and running < 1:
        work.advise(
            "C12",
            f"--max-running-requests {running} runs one request at a time on each rank.",
            "Give how many are to run at once.",
        )
    if total is None or running is None:
        return
    ranks = work.attention_dp
    most = total // 2 * ranks
    if running > most:
        work.advise(
            "C12",
            f"of --max-running-requests {running} only {most} will run: half of "
            f"--max-total-tokens {total}" + ("." if ranks == 1 else f" on each of {ranks} ranks."),
            "Raise --max-total-tokens, or lower --max-running-requests in every arm.",
        )


def check_least(work: Working, dest: str, number: int | None, least: int) -> None:
    """A count that SGLang takes and cannot run with."""
    if number is not None and number < least:
        work.refuse(
            "number",
            f"{option_of(dest)} {number}: SGLang fails after loading.",
            f"Give {least} or more.",
            late=True,
        )


def no_mixed_chunk(work: Working) -> None:
    """C13: mixed chunk that the algorithm cannot have."""
    if work.flag("enable_mixed_chunk"):
        work.settle("C13", "enable_mixed_chunk", value=False, why=f"{work.algorithm} has none")


def no_overlap_on_cpu(work: Working) -> None:
    """C31: on a CPU speculation runs without the overlap schedule."""
    if work.is_cpu:
        work.settle(
            "C31", "disable_overlap_schedule", value=True, why="speculation has none on a CPU"
        )


def resolve_parallelism(work: Working) -> None:
    """C36: what attention data parallelism divides."""
    ranks = work.attention_dp
    if ranks < 2:
        return
    chunk = work.number("chunked_prefill_size")
    why = f"attention runs on {ranks} data-parallel ranks"
    if chunk is not None and chunk > 0:
        work.settle("C36", "chunked_prefill_size", chunk // ranks, why)
    given = asked_text(work.asked, "schedule_conservativeness")
    work.settle("C36", "schedule_conservativeness", float(given or 1.0) * 0.3, why)


def check_chunk_pages(work: Working) -> None:
    """C35, second half: chunked prefill must be made of whole pages."""
    page = work.number("page_size")
    if page is None:
        return
    if page < 1:
        work.refuse(
            "C35", f"pages of {page} tokens: SGLang stops at start.", "Give --page-size 1 or more."
        )
        return
    chunks = _chunks(work)
    chunk = chunks[-1]
    default = "" if work.given("chunked_prefill_size") else ", which is the default,"
    if all(chunk > 0 and chunk % page for chunk in chunks):
        work.refuse(
            "C35",
            f"a chunked prefill of {chunk} tokens{default} is not made of whole pages of {page}: "
            "SGLang stops at start.",
            f"Give --chunked-prefill-size a multiple of {page}"
            + (f" times {work.attention_dp} ranks." if work.attention_dp > 1 else "."),
        )


def _chunks(work: Working) -> tuple[int, ...]:
    """What a chunk of prefill may be; -1 is none."""
    if work.text("disaggregation_mode") == "decode":
        return (-1,)
    if work.given("chunked_prefill_size"):
        chunk = work.number("chunked_prefill_size")
        return (-1 if chunk is None else chunk,)
    if work.flag("enable_mis"):
        return (-1,)
    chunks = default_chunks(None if work.is_cpu else work.known.gpu_memory_gib)
    return tuple(chunk // work.attention_dp for chunk in chunks)


def check_pipeline(work: Working) -> None:
    """C30: speculation with pipeline parallelism."""
    if (work.number("pp_size") or 1) < 2 or work.algorithm in {"DFLASH", "UNO"}:
        return  # DFLASH and UNO refuse it themselves
    work.settle("C30", "disable_overlap_schedule", value=True, why="the pipeline has stages")
    prefill_node = work.text("disaggregation_mode") == "prefill"
    pp_spec = work.known.switched_on("SGLANG_ENABLE_PP_SPEC")
    if work.algorithm == "DSPARK":
        possible = prefill_node and not pp_spec
    elif work.algorithm != "EAGLE" or is_multi_layer(work):
        possible = False
    elif pp_spec:
        possible = (
            work.text("disaggregation_mode") in {None, "null"}
            and not is_adaptive(work)
            and work.attention_dp == 1
        )
    else:
        possible = prefill_node
    if not possible:
        work.refuse(
            "C30",
            f"{work.algorithm} with --pp-size {work.number('pp_size')}: SGLang stops at start; "
            "only single-layer EAGLE (NEXTN) can, on a prefill node, or with "
            "SGLANG_ENABLE_PP_SPEC=1 and neither adaptive nor data-parallel attention.",
            "Use tensor parallelism alone: --pp-size 1.",
        )


def check_modes(work: Working) -> None:
    """C37, C39, C42: modes of serving that take some algorithms or chains only."""
    algorithm, topk = work.algorithm, work.number("speculative_eagle_topk")
    if (
        work.text("disaggregation_mode") == "decode"
        and work.flag("disaggregation_decode_enable_radix_cache")
        and algorithm not in {None, "EAGLE", "EAGLE3", "DSPARK"}
    ):
        work.refuse(
            "C37",
            f"a decode node's radix cache does not go with {algorithm}: SGLang stops at start.",
            "Leave --disaggregation-decode-enable-radix-cache out.",
        )
    if work.flag("enable_unified_memory") and algorithm not in {
        *(None, "EAGLE", "EAGLE3", "DFLASH", "DSPARK"),
    }:
        _refuse_mode(work, "--enable-unified-memory", f"does not go with {algorithm}")
    target = work.known.target
    architecture = None if target is None else target.architecture
    is_plain = architecture in PLAIN_MHA | DEEPSEEK_V3  # neither hybrid nor sparse
    if work.flag("enable_unified_memory") and algorithm in {"EAGLE", "EAGLE3"} and is_plain:
        _refuse_mode(work, "--enable-unified-memory", f"wants a hybrid target for {algorithm}")
    if work.flag("enable_hisparse") and is_plain:
        _refuse_mode(work, "--enable-hisparse", f"is not for {architecture}")
    # The first looks at what topk has become; the others, which come before, at what was asked.
    given = whole_number(asked_text(work.asked, "speculative_eagle_topk") or "")
    chains = {
        "enable_unified_memory": (topk, {None, 1}),
        "enable_linear_replayssm_spec": (given, {None, 1}),
        "enable_hisparse": (None if algorithm is None else given, {None, 0, 1}),
    }
    for dest, (number, taken) in chains.items():
        if work.flag(dest) and number not in taken:
            _refuse_mode(work, option_of(dest), f"takes chains only, topk is {number}")
    if algorithm is not None and work.flag("enable_hisparse") and is_adaptive(work):
        _refuse_mode(work, "--enable-hisparse", "does not go with adaptive speculation")


def _refuse_mode(work: Working, option: str, why: str) -> None:
    work.refuse(
        "C42",
        f"{option} {why}: SGLang stops at start.",
        f"Leave {option} out.",
    )


def check_target(work: Working) -> None:
    """C39: targets that take some algorithms or chains only."""
    target = work.known.target
    architecture = None if target is None else target.architecture
    topk = work.number("speculative_eagle_topk")
    if architecture == "DeepseekV4ForCausalLM":
        if work.algorithm not in {"EAGLE", "DSPARK"}:
            work.refuse(
                "C39",
                f"DeepSeek V4 with {work.algorithm}: SGLang stops at start.",
                "Take EAGLE (NEXTN) or DSPARK.",
            )
        elif work.algorithm == "EAGLE" and topk != 1:
            work.refuse(
                "C39",
                "DeepSeek V4 wants --speculative-eagle-topk 1 on the command line: SGLang stops "
                "at start.",
                "Give --speculative-num-steps and --speculative-eagle-topk 1.",
            )
    sparse = architecture in {"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"}
    if sparse and (work.number("dcp_size") or 1) > 1 and topk is not None and topk > 1:
        work.refuse(
            "C39",
            f"sparse attention with --dcp-size and topk {topk}: SGLang stops at start.",
            "Give --speculative-eagle-topk 1.",
        )


def check_context(work: Working) -> None:
    """C38: a context that target or draft are not made for."""
    asked, target, draft = (
        work.number("context_length"),
        work.known.target,
        work.known.draft,
    )
    own = None if target is None else target.context_len_tok
    length = own if asked is None else asked
    if length is None or work.known.switched_on("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"):
        return
    fix = "Give a --context-length that both can do."
    if own is not None and length > own:
        work.refuse(
            "C38",
            f"--context-length {length} is more than the {own} the target is made for: SGLang "
            "stops at start.",
            fix,
        )
    longest = None if draft is None else draft.context_len_tok
    if work.algorithm not in {None, "NGRAM", "UNO"} and longest is not None and length > longest:
        work.refuse(
            "C38",
            f"the draft is made for contexts of {longest} tokens, the target's is {length}: "
            "SGLang fails after loading.",
            f"Give --context-length {longest} in every arm, or a draft for longer contexts.",
            late=True,
        )
