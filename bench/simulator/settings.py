"""What the simulated server runs with: its command line resolved as SGLang resolves it.

SGLang's arguments are read by `bench.sglang.arguments`; those of the simulator itself begin with
`--sim-`. Arguments that change nothing here are still shown in `/server_info`, and named in
`not_modelled` when they would change a real server's speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.errors import InputError
from bench.model.faults import parse_faults
from bench.physics import (
    AcceptanceCard,
    HardwareCard,
    Speculation,
    TargetCard,
    load_acceptance,
    load_hardware,
    load_target,
)
from bench.physics.allreduce import with_communication
from bench.sglang.arguments import (
    AskedValue,
    asked_text,
    graph_batch_sizes,
    parse_arguments,
    whole_number,
)
from bench.simulator.communication import ARGUMENTS as COMMUNICATION_ARGUMENTS
from bench.simulator.communication import read_communication
from bench.simulator.drafting import Drafting, read_drafting
from bench.simulator.refusals import refuse_missing, refuse_size, refuse_strays, refuse_word
from bench.simulator.sizes import (
    check_gpus,
    default_mem_fraction,
    kv_capacity,
    max_running_requests,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.model.faults import Fault
    from bench.simulator.adaptive import Tier
    from bench.simulator.forced_acceptance import Forced

SIMULATOR_ARGUMENTS = (
    "sim_hardware",
    "sim_target",
    "sim_acceptance",
    "sim_seed",
    "sim_truth",
    "sim_launch",
    "sim_faults",
)

MODELLED = frozenset(
    {
        "model_path",
        "tp_size",
        "dp_size",
        "load_balance_method",
        "context_length",
        "mem_fraction_static",
        "max_running_requests",
        "max_queued_requests",
        "schedule_conservativeness",
        "max_total_tokens",
        "chunked_prefill_size",
        "disable_radix_cache",
        "served_model_name",
        "api_key",
        "admin_api_key",
        "host",
        "port",
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_adaptive",
        "speculative_adaptive_config",
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
        *COMMUNICATION_ARGUMENTS,
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

_LEAST: Final = {
    "context_length": 1,
    "max_total_tokens": 1,
    "max_running_requests": 1,
    "max_queued_requests": 0,
    "stream_interval": 1,
    "decode_log_interval": 1,
}
"""The lowest that an argument may be."""


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
        launch: Which launch this is, for faults of single launches.
        faults: Faults on request.
        tp: Tensor-parallel size.
        dp: Data-parallel ranks, each with GPUs, KV cache and queue of its own.
        drafting: How it speculates.
        context_len: The longest prompt and answer together, tokens.
        mem_fraction_static: The share of GPU memory for weights and KV cache.
        kv_capacity_tok: Size of a rank's KV cache.
        max_running_requests: The most requests a rank decodes at once, what memory allows counted.
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
    launch: str
    faults: tuple[Fault, ...]
    tp: int
    dp: int
    drafting: Drafting
    context_len: int
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
    def speculation(self) -> Speculation | None:
        """The numbers of speculation, of adaptive the ones it begins with; None without it."""
        return self.drafting.speculation

    @property
    def adaptive_tiers(self) -> tuple[Tier, ...] | None:
        """Of adaptive speculation; None: it is not on."""
        return self.drafting.tiers

    @property
    def forced_acceptance(self) -> Forced | None:
        """What the environment makes of acceptance; None: nothing."""
        return self.drafting.forced

    @property
    def max_queued_requests(self) -> int | None:
        """The most requests in a rank's queue; None: no limit."""
        return (
            self.number("max_queued_requests", 0) if "max_queued_requests" in self.asked else None
        )

    @property
    def conservativeness(self) -> float:
        """How much of their cap running requests are expected to need, beside SGLang's default."""
        return _real(self.asked, "schedule_conservativeness", 1.0)

    @property
    def load_balance(self) -> str:
        """How requests are dealt out to the ranks."""
        method = self.text("load_balance_method") or "auto"
        return "round_robin" if method == "auto" else method

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
    parsed = parse_arguments(argv)
    refuse_strays(parsed.strays)
    asked = dict(parsed)
    ours = {dest: asked.pop(dest, None) for dest in SIMULATOR_ARGUMENTS}
    _refuse_bad_names(asked, argv)
    _refuse_bad_sizes(asked)
    hardware = load_hardware(_word(ours, "sim_hardware", "rtx-pro-6000-x8"))
    target = load_target(_word(ours, "sim_target", "kimi-k2.5"))
    acceptance = load_acceptance(_word(ours, "sim_acceptance", "kimi-k2.5-eagle3"))
    hardware = with_communication(hardware, read_communication(asked, hardware.links))
    tp, dp = _whole(asked, "tp_size", 1), _ranks(asked)
    check_gpus(tp, dp, hardware)
    given = ours["sim_acceptance"] is not None
    drafting, spec = read_drafting(asked, target, acceptance_given=given)
    chunked = _whole(asked, "chunked_prefill_size", 8192)
    graph_sizes = graph_batch_sizes(asked, spec, default_most=512 if tp >= 4 else 256)
    if graph_sizes and graph_sizes[0] < 1:
        refuse_size("cuda_graph_bs_decode", graph_sizes[0], "at least 1")
    mem_fraction = _real(
        asked, "mem_fraction_static", default_mem_fraction(hardware, chunked, tp, graph_sizes)
    )
    capacity = kv_capacity(
        hardware,
        target,
        mem_fraction=mem_fraction,
        has_draft_model=drafting.has_draft_model,
        tp=tp,
        at_most=_whole(asked, "max_total_tokens", 0) or None,
    )
    context_len = _whole(asked, "context_length", target.context_len)
    running = max_running_requests(drafting.max_running_requests, capacity, context_len)
    return Settings(
        argv=tuple(argv),
        asked=asked,
        not_modelled=tuple(dest for dest in asked if dest not in MODELLED and dest not in NEUTRAL),
        hardware=hardware,
        target=target,
        acceptance=acceptance,
        seed=_whole(ours, "sim_seed", 0),
        truth_path=asked_text_of(ours, "sim_truth"),
        launch=_word(ours, "sim_launch", ""),
        faults=_faults(ours),
        tp=tp,
        dp=dp,
        drafting=drafting,
        context_len=context_len,
        mem_fraction_static=mem_fraction,
        kv_capacity_tok=capacity,
        max_running_requests=running,
        chunked_prefill_tok=chunked if chunked > 0 else 16384,
        graph_batch_sizes=graph_sizes,
    )


def asked_text_of(ours: Mapping[str, AskedValue | None], dest: str) -> str | None:
    """The word one of the simulator's own arguments was given."""
    value = ours.get(dest)
    return value if isinstance(value, str) else None


def _word(ours: Mapping[str, AskedValue | None], dest: str, default: str) -> str:
    return asked_text_of(ours, dest) or default


def _faults(ours: Mapping[str, AskedValue | None]) -> tuple[Fault, ...]:
    if ours.get("sim_faults") is None:
        return ()
    try:
        return parse_faults(_word(ours, "sim_faults", ""))
    except ValueError as error:
        raise InputError(
            f"--sim-faults: {error}.", hint="docs/faults.md lists every fault and its keys."
        ) from None


def _refuse_bad_names(asked: Mapping[str, AskedValue], argv: list[str]) -> None:
    if asked_text(asked, "model_path") is None:
        refuse_missing("--model-path/--model")
    wrong = [dest for dest in asked if dest.startswith("sim_")]
    if wrong:
        known = ", ".join("--" + dest.replace("_", "-") for dest in SIMULATOR_ARGUMENTS)
        raise InputError(
            f"--{wrong[0].replace('_', '-')} is no argument of the simulator",
            hint=f"Its own arguments: {known}. The command line was: {' '.join(argv)}",
        )


def _refuse_bad_sizes(asked: Mapping[str, AskedValue]) -> None:
    for dest, least in _LEAST.items():
        number = _whole(asked, dest, least)
        if number < least:
            refuse_size(dest, number, f"at least {least}")
    port = _whole(asked, "port", 0)
    if not 0 <= port <= 65535:
        refuse_size("port", port, "between 0 and 65535")
    share = _real(asked, "mem_fraction_static", 1.0)
    if not 0.0 < share <= 1.0:
        refuse_size("mem_fraction_static", share, "above 0 and at most 1")
    _real(asked, "schedule_conservativeness", 1.0)


def _ranks(asked: Mapping[str, AskedValue]) -> int:
    """Data-parallel replicas; with attention data parallelism the ranks share their GPUs."""
    return 1 if "enable_dp_attention" in asked else _whole(asked, "dp_size", 1)


def _whole(asked: Mapping[str, AskedValue | None], dest: str, default: int) -> int:
    value = asked.get(dest)
    if value is None:
        return default
    number = whole_number(value) if isinstance(value, str) else None
    if number is None:
        refuse_word(dest, value)
    return number


def _real(asked: Mapping[str, AskedValue], dest: str, default: float) -> float:
    value = asked.get(dest)
    if value is None:
        return default
    try:
        number = float(value) if isinstance(value, str) else refuse_word(dest, value)
    except ValueError:
        refuse_word(dest, value)
    if not math.isfinite(number):
        refuse_size(dest, number, "a finite number")
    return number
