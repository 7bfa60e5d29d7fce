"""What the simulated server runs with: its command line resolved as SGLang resolves it.

SGLang's arguments are read by `bench.sglang.arguments`; those of the simulator itself begin with
`--sim-`. Arguments that change nothing here are still shown in `/server_info`, and named in
`not_modelled` when they would change a real server's speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.physics import (
    AcceptanceCard,
    HardwareCard,
    Speculation,
    TargetCard,
    kv_capacity_tok,
    load_acceptance,
    load_hardware,
    load_target,
)
from bench.sglang.arguments import (
    EAGLE_FAMILY,
    SUPPORTED,
    AskedValue,
    EffectiveSpeculative,
    Known,
    ModelFacts,
    Rejection,
    asked_text,
    attention_of,
    effective_speculative,
    graph_batch_sizes,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SIMULATOR_ARGUMENTS = (
    "sim_hardware",
    "sim_target",
    "sim_acceptance",
    "sim_seed",
    "sim_truth",
)

MODELLED = frozenset(
    {
        "model_path",
        "tp_size",
        "context_length",
        "mem_fraction_static",
        "max_running_requests",
        "max_total_tokens",
        "chunked_prefill_size",
        "disable_radix_cache",
        "served_model_name",
        "api_key",
        "host",
        "port",
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "cuda_graph_bs_decode",
        "cuda_graph_max_bs_decode",
        "disable_cuda_graph",
        "disable_decode_cuda_graph",
        "enable_metrics",
        "enable_cache_report",
        "incremental_streaming_output",
        "stream_interval",
        "decode_log_interval",
        "reasoning_parser",
        "stream_response_default_include_usage",
    }
)
"""Arguments that do here what they do in SGLang."""

NEUTRAL = frozenset(
    {
        "speculative_draft_model_path",
        "speculative_draft_model_revision",
        "trust_remote_code",
        "tokenizer_path",
        "tool_call_parser",
        "chat_template",
        "revision",
        "random_seed",
        "log_level",
        "log_level_http",
        "skip_server_warmup",
        "watchdog_timeout",
    }
)
"""Arguments without an effect on the speed of a real server, or whose effect the cards hold."""


class StartFailure(Exception):  # noqa: N818  # it is what SGLang's start ends in, not ours
    """The start fails as SGLang's does; the message is what goes to the log."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The resolved configuration of one simulated server.

    Attributes:
        argv: The command line as given.
        asked: SGLang's arguments of it, by the name `/server_info` uses.
        not_modelled: Asked arguments that would change a real server's speed and do not here.
        hardware: The node.
        target: The target model.
        acceptance: The draft.
        seed: Seeds launch noise, step noise and what a request leaves unseeded.
        truth_path: Where the truth file goes; None: nowhere.
        tp: Tensor-parallel size.
        algorithm: The speculative algorithm; None without speculation.
        speculation: Its effective numbers.
        adjustments: What SGLang changes of what was asked, a sentence each.
        context_len: The longest prompt and answer together, tokens.
        reserved_tok: Tokens of the context that speculation keeps for itself.
        mem_fraction_static: The share of GPU memory for weights and KV cache.
        kv_capacity_tok: Size of the KV cache.
        max_running_requests: The most requests decoded at once, what memory allows counted.
        chunked_prefill_tok: The most tokens of one prefill batch.
        graph_batch_sizes: Batch sizes that decode as CUDA graphs, rising; empty for none.
    """

    argv: tuple[str, ...]
    asked: Mapping[str, AskedValue]
    not_modelled: tuple[str, ...]
    hardware: HardwareCard
    target: TargetCard
    acceptance: AcceptanceCard
    seed: int
    truth_path: str | None
    tp: int
    algorithm: str | None
    speculation: Speculation | None
    adjustments: tuple[str, ...]
    context_len: int
    reserved_tok: int
    mem_fraction_static: float
    kv_capacity_tok: int
    max_running_requests: int
    chunked_prefill_tok: int
    graph_batch_sizes: tuple[int, ...]

    def flag(self, dest: str) -> bool:
        """Whether a switch is on."""
        return self.asked.get(dest) is True

    def text(self, dest: str) -> str | None:
        """The word an argument was given."""
        return asked_text(self.asked, dest)

    def number(self, dest: str, default: int) -> int:
        """The whole number an argument was given."""
        return _whole(self.asked, dest, default)

    @property
    def model_name(self) -> str:
        """The name the model is served under."""
        return self.text("served_model_name") or self.text("model_path") or ""


def read_settings(argv: list[str]) -> Settings:
    """Resolve a command line.

    Raises:
        StartFailure: SGLang would not start with it.
        InputError: An unknown card, or something the simulator cannot do.
    """
    asked = dict(parse_arguments(argv))
    ours = {dest: asked.pop(dest, None) for dest in SIMULATOR_ARGUMENTS}
    _refuse_bad_names(asked, argv)
    hardware = load_hardware(_word(ours, "sim_hardware", "rtx-pro-6000-x8"))
    target = load_target(_word(ours, "sim_target", "kimi-k2.5"))
    acceptance = load_acceptance(_word(ours, "sim_acceptance", "kimi-k2.5-eagle3"))
    tp = _tensor_parallel_size(asked, hardware)
    spec = _speculative(asked, target)
    speculation = _speculation_of(spec)
    chunked = _whole(asked, "chunked_prefill_size", 8192)
    graph_sizes = graph_batch_sizes(asked, spec, default_most=512 if tp >= 4 else 256)
    mem_fraction = _real(
        asked,
        "mem_fraction_static",
        _default_mem_fraction(hardware, chunked, tp, graph_sizes),
    )
    capacity = kv_capacity_tok(
        hardware,
        target,
        mem_fraction_static=mem_fraction,
        speculative=speculation is not None,
        tp=tp,
    )
    if capacity == 0:
        raise StartFailure(
            f"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"({target.name} at --tp-size {tp} on {hardware.name} with {mem_fraction:g})",
            exit_code=1,
        )
    capacity = min(capacity, _whole(asked, "max_total_tokens", capacity))
    context_len = _whole(asked, "context_length", target.context_len)
    return Settings(
        argv=tuple(argv),
        asked=asked,
        not_modelled=tuple(dest for dest in asked if dest not in MODELLED and dest not in NEUTRAL),
        hardware=hardware,
        target=target,
        acceptance=acceptance,
        seed=_whole(ours, "sim_seed", 0),
        truth_path=asked_text_of(ours, "sim_truth"),
        tp=tp,
        algorithm=spec.algorithm,
        speculation=speculation,
        adjustments=spec.adjustments,
        context_len=context_len,
        reserved_tok=spec.reserved_tok or 0,
        mem_fraction_static=mem_fraction,
        kv_capacity_tok=capacity,
        max_running_requests=_max_running_requests(spec, capacity, context_len),
        chunked_prefill_tok=chunked if chunked > 0 else 16384,
        graph_batch_sizes=graph_sizes,
    )


def asked_text_of(ours: Mapping[str, AskedValue | None], dest: str) -> str | None:
    """The word one of the simulator's own arguments was given."""
    value = ours.get(dest)
    return value if isinstance(value, str) else None


def _word(ours: Mapping[str, AskedValue | None], dest: str, default: str) -> str:
    return asked_text_of(ours, dest) or default


def _refuse_bad_names(asked: Mapping[str, AskedValue], argv: list[str]) -> None:
    if asked_text(asked, "model_path") is None:
        raise StartFailure(
            "error: the following arguments are required: --model-path/--model", exit_code=2
        )
    for dest in ("cuda_graph_max_bs", "cuda_graph_bs"):
        if dest in asked:
            option = "--" + dest.replace("_", "-")
            raise StartFailure(
                f"error: ambiguous option: {option} could match {option}-decode, {option}-prefill",
                exit_code=2,
            )
    wrong = [dest for dest in asked if dest.startswith("sim_")]
    if wrong:
        known = ", ".join("--" + dest.replace("_", "-") for dest in SIMULATOR_ARGUMENTS)
        raise InputError(
            f"--{wrong[0].replace('_', '-')} is no argument of the simulator",
            hint=f"Its own arguments: {known}. The command line was: {' '.join(argv)}",
        )


def _tensor_parallel_size(asked: Mapping[str, AskedValue], hardware: HardwareCard) -> int:
    tp = _whole(asked, "tp_size", 1)
    if not 1 <= tp <= hardware.gpus:
        raise InputError(
            f"--tp-size {tp} asked for, and {hardware.name} has {hardware.gpus} GPUs",
            hint=f"Give --tp-size {hardware.gpus}, or another --sim-hardware.",
        )
    return tp


def _speculative(asked: Mapping[str, AskedValue], target: TargetCard) -> EffectiveSpeculative:
    facts = ModelFacts(
        architecture=target.architecture,
        attention=attention_of(target.architecture),
        layers=target.layers,
        context_len_tok=target.context_len,
        vocab_size=target.vocab_size,
    )
    spec = effective_speculative(asked, Known(version=SUPPORTED, target=facts))
    if isinstance(spec, Rejection):
        raise StartFailure(_failure_text(spec), exit_code=2 if spec.rule in _ARGPARSE else 1)
    if spec.algorithm is not None and spec.algorithm not in EAGLE_FAMILY:
        raise InputError(
            f"--speculative-algorithm {spec.algorithm} asked for; the simulator models "
            f"{', '.join(sorted(EAGLE_FAMILY))} only",
            hint="Use one of these, or measure on a real server.",
        )
    return spec


_ARGPARSE = frozenset({"name", "number"})
_FAILURE_ENDS = {
    "name": "error: unrecognized arguments",
    "number": "error: argument: invalid int value",
    "C1": "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
    "C2": "AssertionError",
    "C4": "TypeError: unsupported operand type(s) for -: 'NoneType' and 'int'",
    "tree": "RuntimeError: selected index k out of range",
}


def _failure_text(rejection: Rejection) -> str:
    end = _FAILURE_ENDS.get(rejection.rule, "ValueError")
    return f"{end}\nsimulator: {rejection.reason} {rejection.fix}"


def _speculation_of(spec: EffectiveSpeculative) -> Speculation | None:
    if spec.algorithm is None:
        return None
    # Adaptive speculation leaves the numbers to the server, which begins in the middle of its
    # candidates; it is not modelled and runs as 3-1-4 throughout.
    return Speculation(
        num_steps=spec.num_steps or 3,
        topk=spec.eagle_topk or 1,
        num_draft_tokens=spec.num_draft_tokens or (spec.num_steps or 3) + 1,
    )


def _default_mem_fraction(
    hardware: HardwareCard, chunked: int, tp: int, graph_batch_sizes: tuple[int, ...]
) -> float:
    """SGLang's own default (memory_hook.py): what is left beside activations, graphs and reserve.

    Only cards of more than 60 GB are known here, for which at least 10 GB are kept.
    """
    largest = graph_batch_sizes[-1] if graph_batch_sizes else 0
    reserved_mib = 512 + 1.5 * max(chunked, 2048) + tp / 8 * 1024 + 2 * largest
    memory_mib = hardware.memory_gib * 1024
    return round((memory_mib - max(reserved_mib, 10240.0)) / memory_mib, 3)


def _max_running_requests(spec: EffectiveSpeculative, capacity: int, context_len: int) -> int:
    wanted = spec.max_running_requests
    if wanted is None:
        wanted = min(max(int(capacity / context_len * 512), 2048), 4096)
    return max(1, min(wanted, capacity // 2))


def _whole(asked: Mapping[str, AskedValue | None], dest: str, default: int) -> int:
    value = asked.get(dest)
    if value is None:
        return default
    try:
        return int(value) if isinstance(value, str) else _bad_number(dest, value, "int")
    except ValueError:
        return _bad_number(dest, value, "int")


def _real(asked: Mapping[str, AskedValue], dest: str, default: float) -> float:
    value = asked.get(dest)
    if value is None:
        return default
    try:
        return float(value) if isinstance(value, str) else _bad_number(dest, value, "float")
    except ValueError:
        return _bad_number(dest, value, "float")


def _bad_number(dest: str, value: object, kind: str) -> int:
    raise StartFailure(
        f"error: argument --{dest.replace('_', '-')}: invalid {kind} value: {value!r}",
        exit_code=2,
    )
