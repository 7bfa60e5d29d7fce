"""The log on stderr, in SGLang's line shapes (0.5.23)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench import clock

if TYPE_CHECKING:
    from bench.simulator.settings import Settings


def log(message: str) -> None:
    """One line with SGLang's time stamp."""
    sys.stderr.write(f"[{clock.utc_now():%Y-%m-%d %H:%M:%S}] {message}\n")
    sys.stderr.flush()


def log_start(settings: Settings, server_info: dict[str, object]) -> None:
    """What SGLang writes while it loads, and first of all that this is a simulation."""
    target, hardware = settings.target, settings.hardware
    log(
        f"SIMULATED: this is specdyno's simulator, not SGLang; {target.name} on {hardware.name}, "
        f"acceptance {settings.acceptance.name}, clock speed {clock.speed()}. No figure of it is "
        "a measurement."
    )
    if settings.not_modelled:
        log(f"SIMULATED: without effect here: {', '.join(settings.not_modelled)}")
    for adjustment in settings.adjustments:
        log(_warning(adjustment, settings))
    log(f"server_args={server_info}")
    capacity = settings.kv_capacity_tok
    memory_gib = hardware.memory_gib
    log(f"Load weight begin. avail mem={memory_gib:.2f} GB")
    log(
        f"Load weight end. elapsed=0.00 s, type={target.architecture}, "
        f"avail mem={memory_gib:.2f} GB, mem usage=0.00 GB."
    )
    if settings.speculation is not None:
        log(f"Load weight begin. avail mem={memory_gib:.2f} GB")
        log(
            "Load weight end. elapsed=0.00 s, type=LlamaForCausalLMEagle3, "
            f"avail mem={memory_gib:.2f} GB, mem usage=0.00 GB."
        )
    log(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {capacity}, KV size: 0.00 GB")
    log("Memory pool end. avail mem=0.00 GB")
    if settings.graph_batch_sizes:
        _log_capture(settings)
    log(
        f"max_total_num_tokens={capacity}, chunked_prefill_size={settings.chunked_prefill_tok}, "
        f"max_prefill_tokens=16384, max_running_requests={settings.max_running_requests}, "
        f"context_len={settings.context_len}, available_gpu_mem=0.00 GB"
    )


def _log_capture(settings: Settings) -> None:
    mode = "decode" if settings.speculation is None else "verify"
    tokens = 1 if settings.speculation is None else settings.speculation.num_draft_tokens
    log(
        f"Capture target {mode} CUDA graph begin. backend=full, num_tokens_per_req={tokens}, "
        "avail mem=0.00 GB"
    )
    log(
        f"Capture target {mode} CUDA graph end. bs={list(settings.graph_batch_sizes)}, "
        "elapsed=0.00 s, mem usage=0.00 GB, avail mem=0.00 GB."
    )


def _warning(adjustment: str, settings: Settings) -> str:
    """SGLang's own wording where it has one."""
    rule, _, rest = adjustment.partition(": ")
    if rule == "C3" and settings.speculation is not None:
        return (
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            f"speculative_eagle_topk == 1 ({settings.speculation.num_draft_tokens})"
        )
    if rule == "C10":
        return (
            f"Max running requests is reset to {settings.max_running_requests} for speculative "
            "decoding. You can override this by explicitly setting --max-running-requests."
        )
    return rest or adjustment


def log_listening(url: str, pid: int) -> None:
    """The lines around the opening of the port, the ready line last."""
    log(f"INFO:     Started server process [{pid}]")
    log("INFO:     Waiting for application startup.")
    log("INFO:     Application startup complete.")
    log(f"INFO:     Uvicorn running on {url} (Press CTRL+C to quit)")
    log("The server is fired up and ready to roll!")
