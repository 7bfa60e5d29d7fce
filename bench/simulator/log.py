"""The log on stderr, in SGLang's line shapes (0.5.23)."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from bench import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.sglang.arguments import Change
    from bench.simulator.settings import Settings


_wall_offset_s = 0.0


def set_wall_offset_s(offset_s: float) -> None:
    """Have the wall clock of the log, and of times in responses, so much ahead of the world's."""
    global _wall_offset_s  # noqa: PLW0603  # a process has one wall clock
    _wall_offset_s = offset_s


def wall_offset_s() -> float:
    """How much the server's wall clock is ahead of the world's."""
    return _wall_offset_s


def log(message: str, ranks: str = "") -> None:
    """One line with SGLang's time stamp, and behind it the ranks of the scheduler that speaks."""
    now = clock.utc_now() + timedelta(seconds=_wall_offset_s)
    sys.stderr.write(f"[{now:%Y-%m-%d %H:%M:%S}{ranks}] {message}\n")
    sys.stderr.flush()


def rank_mark(settings: Settings, dp_rank: int) -> str:
    """How a scheduler's lines are marked: ` DP1 TP0`; not at all where there is only one."""
    data = f" DP{dp_rank}" if settings.dp > 1 else ""
    return data + (" TP0" if settings.tp > 1 else "")


def log_start(
    settings: Settings, server_info: dict[str, object], came_to: Callable[[str], None]
) -> None:
    """What SGLang writes while it loads, and first of all that this is a simulation.

    Args:
        settings: Of the server.
        server_info: Its resolved arguments.
        came_to: Told when it comes to `load` and to `capture`, where a start may fail.
    """
    target, hardware = settings.target, settings.hardware
    log(
        f"SIMULATED: this is specdyno's simulator, not SGLang; {target.name} on {hardware.name}, "
        f"acceptance {settings.acceptance.name}, clock speed {clock.speed()}. No figure of it is "
        "a measurement."
    )
    if settings.not_modelled:
        log(f"SIMULATED: without effect here: {', '.join(settings.not_modelled)}")
    if settings.faults:
        faults = ", ".join(fault.text for fault in settings.faults)
        log(f"SIMULATED: faults on request: {faults}")
    for change in settings.drafting.changes:
        log(_warning(change))
    if settings.drafting.ignored:
        log(f"ignored: {', '.join(settings.drafting.ignored)}")
    log(f"server_args={server_info}")
    if settings.dp > 1:
        for rank in range(settings.dp):
            log(f"Launch DP{rank} starting at GPU #{rank * settings.tp}.")
    for rank in range(settings.dp):
        _log_rank(settings, partial(log, ranks=rank_mark(settings, rank)), came_to)


def _log_rank(
    settings: Settings, say: Callable[[str], None], came_to: Callable[[str], None]
) -> None:
    """What one scheduler writes; of the ranks of a tensor-parallel group the first does."""
    capacity = settings.kv_capacity_tok
    memory = f"avail mem={settings.hardware.memory_gib:.2f} GB"
    say(f"Load weight begin. {memory}")
    came_to("load")
    models = [settings.target.architecture]
    if settings.drafting.has_draft_model:
        models.append("LlamaForCausalLMEagle3")
    for place, model in enumerate(models):
        if place:
            say(f"Load weight begin. {memory}")
        say(f"Load weight end. elapsed=0.00 s, type={model}, {memory}, mem usage=0.00 GB.")
    say(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {capacity}, KV size: 0.00 GB")
    say("Memory pool end. avail mem=0.00 GB")
    if settings.graph_batch_sizes:
        _log_capture(settings, say, came_to)
    if settings.adaptive_tiers is not None:
        _log_adaptive(settings, say)
    say(
        f"max_total_num_tokens={capacity}, chunked_prefill_size={settings.chunked_prefill_tok}, "
        f"max_prefill_tokens=16384, max_running_requests={settings.max_running_requests}, "
        f"context_len={settings.context_len}, available_gpu_mem=0.00 GB"
    )


def _log_capture(
    settings: Settings, say: Callable[[str], None], came_to: Callable[[str], None]
) -> None:
    mode = "decode" if settings.speculation is None else "verify"
    tokens = 1 if settings.speculation is None else settings.speculation.num_draft_tokens
    say(
        f"Capture target {mode} CUDA graph begin. backend=full, num_tokens_per_req={tokens}, "
        "avail mem=0.00 GB"
    )
    came_to("capture")
    say(
        f"Capture target {mode} CUDA graph end. bs={list(settings.graph_batch_sizes)}, "
        "elapsed=0.00 s, mem usage=0.00 GB, avail mem=0.00 GB."
    )


def _log_adaptive(settings: Settings, say: Callable[[str], None]) -> None:
    spec, tiers = settings.speculation, settings.adaptive_tiers
    if spec is None or tiers is None:
        return
    candidates = tiers[0].candidates
    first = spec.num_steps
    steps = first if first in candidates else candidates[len(candidates) // 2]
    say(
        f"AdaptiveSpeculativeParams initialized: steps={steps}, candidate_steps={list(candidates)}"
    )
    for other in sorted({step for tier in tiers for step in tier.candidates} - {first}):
        say(f"Built adaptive runtime state steps={other}: elapsed=0.00s, mem=0.00GB")


def _warning(change: Change) -> str:
    """SGLang's own wording where it has one."""
    if change.rule == "C3":
        return (
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
    if change.rule == "C10":
        return (
            f"Max running requests is reset to {change.becomes} for speculative decoding. You can "
            "override this by explicitly setting --max-running-requests."
        )
    if change.rule == "C17" and change.dest == "speculative_num_draft_tokens":
        return (
            f"speculative_num_draft_tokens is set to {change.becomes} by default for ngram "
            "speculative decoding. You can override this by explicitly setting "
            "--speculative-num-draft-tokens."
        )
    if change.rule == "C28":
        return (
            f"speculative_adaptive disabled: {change.why}. Falling back to static speculative "
            "params."
        )
    return change.sentence


def log_listening(url: str, pid: int) -> None:
    """The lines around the opening of the port, the ready line last."""
    log(f"INFO:     Started server process [{pid}]")
    log("INFO:     Waiting for application startup.")
    log("INFO:     Application startup complete.")
    log(f"INFO:     Uvicorn running on {url} (Press CTRL+C to quit)")
    log("The server is fired up and ready to roll!")
