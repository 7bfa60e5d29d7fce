"""SGLang's command line: what was asked, and what its speculative part will become.

Parsing needs no SGLang: a table says how the known options take their values, and every other
option takes the next word unless that begins with `--`. SGLang (argparse) also accepts any
unambiguous beginning of an option's name; those are not expanded here, and
`effective_speculative` asks for the whole name where it matters.

The rules are those of SGLang 0.5.23 (`arg_groups/speculative_hook.py`), named as in
docs/server.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AskedValue = str | Literal[True] | list[str]
"""What one option was given: its word, True for a flag, or all words of one that takes many."""

Kind = Literal["value", "flag", "many"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One option of SGLang.

    Attributes:
        dest: Its name in SGLang's server arguments and in `/server_info`.
        kind: Whether it takes a word (`value`), none (`flag`) or all words up to the next option
            (`many`).
        aliases: Its other spellings; the first spelling is always `--` + dest with hyphens.
    """

    dest: str
    kind: Kind = "value"
    aliases: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every way to write it in full."""
        return (option_of(self.dest), *self.aliases)


def option_of(dest: str) -> str:
    """The command-line spelling of a server argument: `tp_size` is `--tp-size`."""
    return "--" + dest.replace("_", "-")


def _flags(*dests: str) -> tuple[Argument, ...]:
    return tuple(Argument(dest=dest, kind="flag") for dest in dests)


def _lists(*dests: str) -> tuple[Argument, ...]:
    return tuple(Argument(dest=dest, kind="many") for dest in dests)


ARGUMENTS = (
    Argument(dest="model_path", aliases=("--model",)),
    Argument(dest="tp_size", aliases=("--tp", "--tensor-parallel-size")),
    Argument(dest="dp_size", aliases=("--dp", "--data-parallel-size")),
    Argument(dest="ep_size", aliases=("--ep", "--expert-parallel-size")),
    Argument(dest="pp_size", aliases=("--pp", "--pipeline-parallel-size")),
    Argument(dest="speculative_draft_model_path", aliases=("--speculative-draft-model",)),
    *_lists(
        "cuda_graph_bs_decode",
        "cuda_graph_bs_prefill",
        "lora_paths",
        "lora_target_modules",
        "bucket_time_to_first_token",
        "bucket_inter_token_latency",
        "bucket_e2e_request_latency",
        "return_aux_hidden_state_layer_ids",
    ),
    *_flags(
        "speculative_adaptive",
        "speculative_use_rejection_sampling",
        "speculative_use_block_verification",
        "speculative_dspark_align_verify_tokens_to_graph_tier",
        "disable_overlap_schedule",
        "disable_radix_cache",
        "disable_cuda_graph",
        "disable_decode_cuda_graph",
        "disable_prefill_cuda_graph",
        "disable_cuda_graph_padding",
        "disable_custom_all_reduce",
        "enable_dp_attention",
        "enable_dp_lm_head",
        "enable_metrics",
        "enable_metrics_for_all_schedulers",
        "enable_cache_report",
        "enable_mixed_chunk",
        "enable_multi_layer_eagle",
        "enable_nccl_nvls",
        "enable_symm_mem",
        "enable_torch_compile",
        "incremental_streaming_output",
        "skip_server_warmup",
        "stream_response_default_include_usage",
        "trust_remote_code",
    ),
)
"""The options whose spelling or way of taking values has to be known; others parse by one rule."""

_BY_OPTION = {spelling: argument for argument in ARGUMENTS for spelling in argument.spellings}


def parse_arguments(arguments: Sequence[str]) -> Mapping[str, AskedValue]:
    """What a command line asks for, by the name SGLang reports it under.

    Both forms, `--tp-size 8` and `--tp-size=8`, are read; of a repeated option the last counts, as
    in argparse. An unknown option takes the next word unless that begins with `--`. Words that
    belong to no option are left out.

    Args:
        arguments: The command line, one word an element, without the program.

    Returns:
        In the order asked, for example
        `{"tp_size": "8", "disable_radix_cache": True, "cuda_graph_bs_decode": ["1", "2"]}`.
    """
    asked: dict[str, AskedValue] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            continue
        option, has_value, value = word.partition("=")
        argument = _BY_OPTION.get(option) or Argument(dest=option[2:].replace("-", "_"))
        asked.pop(argument.dest, None)
        if has_value:
            asked[argument.dest] = [value] if argument.kind == "many" else value
        elif argument.kind == "many":
            asked[argument.dest] = _take_values(words)
        elif argument.kind == "value" and words and not words[0].startswith("--"):
            asked[argument.dest] = words.pop(0)
        else:
            asked[argument.dest] = True
    return asked


def _take_values(words: list[str]) -> list[str]:
    values = []
    while words and not words[0].startswith("--"):
        values.append(words.pop(0))
    return values


def asked_text(asked: Mapping[str, AskedValue], dest: str) -> str | None:
    """The word an option was given; None when it was not asked for or was given none."""
    value = asked.get(dest)
    return value if isinstance(value, str) else None


def is_speculative(arguments: Sequence[str]) -> bool:
    """Whether a command line turns speculation on (`--speculative-algo` and the like included)."""
    return any(
        _is_algorithm(dest) and value is not True
        for dest, value in parse_arguments(arguments).items()
    )


def _is_algorithm(dest: str) -> bool:
    return "speculative_algorithm".startswith(dest) and dest.startswith("speculative_al")


# -------------------------------------------------------------------- what speculation will become

EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP"})
"""Algorithms whose steps, topk and draft tokens follow the rules below; NEXTN is run as EAGLE."""

_LIMITED_TO_48 = EAGLE_FAMILY | {"DFLASH", "DSPARK", "NGRAM"}
_DEFAULT_MAX_RUNNING_REQUESTS = 48
_NUMBERS = (
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "max_running_requests",
)
_RULED = ("speculative_algorithm", *_NUMBERS[:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSpeculative:
    """What SGLang will run with.

    Attributes:
        algorithm: Upper-cased, NEXTN as EAGLE; None: no speculation, and then steps, topk and
            draft tokens are None as well.
        num_steps: Draft steps a cycle; None: the server decides (from the target's architecture,
            or by another algorithm's rule).
        eagle_topk: Branches a draft step.
        num_draft_tokens: Tokens verified a cycle, the root included.
        max_running_requests: The most requests decoded at once, over all ranks; None: the server
            decides from its memory.
        adjustments: What the server changes of what was asked, a sentence each, rule's name first.
    """

    algorithm: str | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    max_running_requests: int | None
    adjustments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Arguments that SGLang would not start with (or not get past its first draft with).

    Attributes:
        rule: `C1`, `C2`, `C4`, `tree`, `number` or `name`.
        reason: What was asked and what the server does.
        fix: What to write instead.
    """

    rule: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Triple:
    steps: int | None
    topk: int | None
    draft_tokens: int | None


def effective_speculative(
    asked: Mapping[str, AskedValue], target_architecture: str | None = None
) -> EffectiveSpeculative | Rejection:
    """What the speculative arguments become on SGLang 0.5.23, or why it would not start with them.

    Applied, for the EAGLE family: C1, C2, C3, C4, C10, the automatic parameters and the capacity
    of the draft tree. Adaptive speculation and the other algorithms (NGRAM, DFLASH, DSPARK, UNO,
    …) pass through as asked, but for C10.

    Args:
        asked: The record of `parse_arguments`.
        target_architecture: The target's `architectures[0]`, which the automatic parameters depend
            on; without it they stay None.
    """
    if rejection := _bad_name_or_number(asked):
        return rejection
    steps, topk, draft_tokens, running = (_number(asked, dest) for dest in _NUMBERS)
    text = asked_text(asked, "speculative_algorithm")
    if text is None:
        return EffectiveSpeculative(
            algorithm=None,
            num_steps=None,
            eagle_topk=None,
            num_draft_tokens=None,
            max_running_requests=running,
            adjustments=_ignored_without_algorithm(asked),
        )
    adjustments: list[str] = []
    algorithm = text.upper()
    if algorithm == "NEXTN":
        algorithm = "EAGLE"
        adjustments.append("NEXTN is run as EAGLE")
    triple = _Triple(steps=steps, topk=topk, draft_tokens=draft_tokens)
    if algorithm in EAGLE_FAMILY and "speculative_adaptive" not in asked:
        ruled = _eagle_triple(algorithm, triple, target_architecture, adjustments)
        if isinstance(ruled, Rejection):
            return ruled
        triple = ruled
    if running is None and algorithm in _LIMITED_TO_48:
        running = _DEFAULT_MAX_RUNNING_REQUESTS
        adjustments.append(
            f"C10: max_running_requests was not given and becomes {running} with speculation "
            "(without speculation it does not)"
        )
    return EffectiveSpeculative(
        algorithm=algorithm,
        num_steps=triple.steps,
        eagle_topk=triple.topk,
        num_draft_tokens=triple.draft_tokens,
        max_running_requests=running,
        adjustments=tuple(adjustments),
    )


def _bad_name_or_number(asked: Mapping[str, AskedValue]) -> Rejection | None:
    for dest in asked:
        whole = [
            known
            for known in _RULED
            if dest != known and len(dest) > len("speculative_") and known.startswith(dest)
        ]
        if whole:
            return Rejection(
                rule="name",
                reason=f"{option_of(dest)} is a shortened name of {option_of(whole[0])}, "
                "and specdyno reads only whole names.",
                fix=f"Write {option_of(whole[0])}.",
            )
    for dest in _NUMBERS:
        value = asked.get(dest)
        if value is not None and not (
            isinstance(value, str) and value.isdecimal() and int(value) > 0
        ):
            given = "nothing" if value is True else repr(value)
            return Rejection(
                rule="number",
                reason=f"{option_of(dest)} wants a whole number from 1 on and was given {given}.",
                fix=f"Write a number behind {option_of(dest)}.",
            )
    return None


def _number(asked: Mapping[str, AskedValue], dest: str) -> int | None:
    value = asked_text(asked, dest)
    return None if value is None else int(value)


def _ignored_without_algorithm(asked: Mapping[str, AskedValue]) -> tuple[str, ...]:
    ignored = [option_of(dest) for dest in _NUMBERS[:3] if dest in asked]
    return (f"{', '.join(ignored)} ignored: no --speculative-algorithm",) if ignored else ()


def _eagle_triple(
    algorithm: str, asked: _Triple, target_architecture: str | None, adjustments: list[str]
) -> _Triple | Rejection:
    """The EAGLE family's rules in the server's order; what they change goes into `adjustments`."""
    if asked == _Triple(steps=None, topk=None, draft_tokens=None):
        return _automatic_triple(algorithm, target_architecture, adjustments)
    if asked.steps is None:
        return Rejection(
            rule="C2",
            reason="--speculative-eagle-topk or --speculative-num-draft-tokens is given without "
            "--speculative-num-steps: SGLang stops at start with a bare AssertionError.",
            fix="Give --speculative-num-steps as well, or none of the three.",
        )
    if asked.topk is None:
        return Rejection(
            rule="C1",
            reason="--speculative-num-steps is given without --speculative-eagle-topk: SGLang "
            "stops at start with a TypeError about NoneType and int.",
            fix="Give --speculative-eagle-topk as well (1 for a chain), or none of the three.",
        )
    if asked.topk == 1:
        return _chain(asked.steps, asked.draft_tokens, adjustments)
    if asked.draft_tokens is None:
        return Rejection(
            rule="C4",
            reason=f"--speculative-eagle-topk {asked.topk} is given without "
            "--speculative-num-draft-tokens: SGLang fails with a TypeError, after loading.",
            fix="Give --speculative-num-draft-tokens as well.",
        )
    capacity = tree_capacity_tok(asked.steps, asked.topk)
    if asked.draft_tokens > capacity:
        return Rejection(
            rule="tree",
            reason=f"--speculative-num-draft-tokens {asked.draft_tokens} is more than a draft "
            f"tree of {asked.steps} steps and topk {asked.topk} has: "
            f"1 + topk + (steps - 1) * topk^2 = {capacity}. SGLang fails at its first draft, "
            "after loading.",
            fix=f"Give at most {capacity}, or more steps or a larger topk.",
        )
    return asked


def _chain(steps: int, draft_tokens: int | None, adjustments: list[str]) -> _Triple:
    if draft_tokens != steps + 1:
        was = "was not given" if draft_tokens is None else f"was {draft_tokens}"
        adjustments.append(
            f"C3: num_draft_tokens {was} and becomes num_steps + 1 = {steps + 1}, since topk is 1"
        )
    return _Triple(steps=steps, topk=1, draft_tokens=steps + 1)


def _automatic_triple(
    algorithm: str, target_architecture: str | None, adjustments: list[str]
) -> _Triple:
    architecture = target_architecture or ""
    if algorithm != "STANDALONE" and not architecture:
        adjustments.append(
            "num_steps, eagle_topk and num_draft_tokens are chosen by the server from the "
            "target's architecture"
        )
        return _Triple(steps=None, topk=None, draft_tokens=None)
    has_tree = algorithm != "STANDALONE" and (
        architecture == "LlamaForCausalLM" or architecture.startswith("Grok1")
    )
    steps, topk, draft_tokens = (5, 4, 8) if has_tree else (3, 1, 4)
    adjustments.append(
        "num_steps, eagle_topk, num_draft_tokens were not given and become "
        f"{steps}, {topk}, {draft_tokens}"
    )
    return _Triple(steps=steps, topk=topk, draft_tokens=draft_tokens)


def tree_capacity_tok(num_steps: int, eagle_topk: int) -> int:
    """The most tokens one verify step can hold: root, topk first drafts, topk² a further step.

    Source: SGLang 0.5.23 `eagle_utils.py`, `organize_draft_results`.
    """
    return 1 + eagle_topk + (num_steps - 1) * eagle_topk**2
