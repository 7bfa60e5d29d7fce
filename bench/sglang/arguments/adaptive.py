"""Adaptive speculation: whether it stays on, and what it begins with.

Source: SGLang 0.5.23, `speculative/adaptive_spec_params.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.graphs import are_graphs_off
from bench.sglang.arguments.known import read_json

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

DEFAULT_CANDIDATE_STEPS: Final = (0, 1, 3, 5, 7)
"""The union over batch sizes of SGLang's own configuration."""

_MOST_STEPS: Final = 1_000_000

_MULTI_LAYER: Final = frozenset(
    {
        "GigaChat35ForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
    }
)


def is_adaptive(work: Working) -> bool:
    """Whether adaptive speculation is on now."""
    return work.flag("speculative_adaptive")


def is_multi_layer(work: Working) -> bool:
    """Whether the draft has several layers, asked for or by the target's architecture."""
    target = work.known.target
    return work.flag("enable_multi_layer_eagle") or (
        work.algorithm == "EAGLE" and target is not None and target.architecture in _MULTI_LAYER
    )


def resolve_adaptive(work: Working) -> None:
    """C28 and C29: turned off where it cannot be, else begun in the middle of its candidates."""
    if not is_adaptive(work):
        work.ignore("idle", "speculative_adaptive_config", "adaptive speculation is not on")
        return
    reason = _unsupported(work)
    if reason is not None:
        work.settle("C28", "speculative_adaptive", value=False, why=reason)
        work.ignore("C28", "speculative_adaptive_config", "adaptive speculation is turned off")
        return
    work.values["speculative_adaptive"] = True
    if work.number("speculative_eagle_topk") is None:
        work.settle("C29", "speculative_eagle_topk", 1, "adaptive speculation drafts chains")
    candidates = candidate_steps(work.text("speculative_adaptive_config"))
    if candidates is None:
        return
    if not candidates:
        work.refuse(
            "C29",
            "--speculative-adaptive-config names a file without lists of candidate_steps, whole "
            "numbers from 0 on, by batch size: SGLang stops at start.",
            'For example {"1": {"candidate_steps": [1, 3]}, "8": {"candidate_steps": [0, 1]}}.',
        )
        return
    if work.number("speculative_num_steps") is None:
        middle = candidates[len(candidates) // 2]
        work.settle("C29", "speculative_num_steps", middle, "it is the middle candidate")
    steps = work.number("speculative_num_steps")
    assert steps is not None
    if steps not in candidates:
        work.refuse(
            "C29",
            f"--speculative-num-steps {steps} is none of the steps that adaptive speculation "
            f"chooses from, {', '.join(map(str, candidates))}: SGLang stops at start.",
            "Give one of these, or leave it out.",
        )
    work.settle(
        "C29", "speculative_num_draft_tokens", steps + 1, "adaptive speculation drafts chains"
    )
    work.most_draft_tokens = max(candidates[-1], steps) + 1


def _unsupported(work: Working) -> str | None:
    """Why the server turns it off; None: it does not."""
    topk = work.number("speculative_eagle_topk")
    reasons = (
        (
            work.algorithm not in {"EAGLE", "EAGLE3"},
            f"{work.algorithm or 'no algorithm'} cannot adapt",
        ),
        (topk not in {None, 1}, f"topk is {topk}, and only chains adapt"),
        (work.attention_dp > 1, "attention data parallelism cannot adapt"),
        (is_multi_layer(work), "multi-layer EAGLE cannot adapt"),
        (work.flag("enable_two_batch_overlap"), "two-batch overlap cannot adapt"),
        (work.flag("enable_pdmux"), "pdmux cannot adapt"),
    )
    return next((text for holds, text in reasons if holds), None)


def check_adaptive_graphs(work: Working) -> None:
    """On a CPU adaptive speculation cannot have the graphs it wants of each number of steps."""
    if not is_adaptive(work) or not work.is_cpu or are_graphs_off(work.asked):
        return
    # A file that cannot be read ends the start before that.
    if candidate_steps(work.text("speculative_adaptive_config")) is not None:
        work.refuse(
            "adaptive-cpu",
            "adaptive speculation captures graphs for each number of steps, which a CPU has not: "
            "SGLang fails after loading, with a NotImplementedError.",
            "Give --disable-cuda-graph in server.arguments, for every arm alike.",
            late=True,
        )


def candidate_steps(config_path: str | None) -> tuple[int, ...] | None:
    """All steps that an adaptive configuration may choose, rising.

    Args:
        config_path: Of `--speculative-adaptive-config`; None: SGLang's own.

    Returns:
        None when the file cannot be read here; empty when SGLang could not use it.
    """
    if config_path is None:
        return DEFAULT_CANDIDATE_STEPS
    config = read_json(config_path)
    if config is None:
        return None
    found: set[int] = set()
    for size, entry in config.items() if isinstance(config, dict) else ():
        if size.isdigit():
            steps = entry.get("candidate_steps") if isinstance(entry, dict) else None
            if not isinstance(steps, list) or not steps or not all(map(_is_step, steps)):
                return ()
            found.update(steps)
    return tuple(sorted(found))


def _is_step(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST_STEPS
