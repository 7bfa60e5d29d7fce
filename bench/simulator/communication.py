"""Which way the all-reduces of a launch go: SGLang's arguments and NCCL's variables.

SGLang 0.5.23: small messages go through its own kernels (custom, or fused with FlashInfer) where
the node has them, and NCCL's variables then change nothing; NVLS is off unless a flag asks for it
or the variable is exported (`entrypoints/engine.py`). Deterministic inference leaves the custom
kernels and sets NCCL to trees over eight channels (`arg_groups/attention_hook.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from bench.physics.allreduce import ALGORITHMS, PROTOCOLS, Communication

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from bench.physics.cards import AllreducePath, Links
    from bench.sglang.arguments import AskedValue

    Name = TypeVar("Name", bound=str)

ARGUMENTS: Final = frozenset(
    {
        "disable_custom_all_reduce",
        "enable_nccl_nvls",
        "enable_flashinfer_allreduce_fusion",
        "enforce_disable_flashinfer_allreduce_fusion",
        "enable_deterministic_inference",
    }
)
_DETERMINISTIC_CHANNELS: Final = 8


def read_communication(
    asked: Mapping[str, AskedValue],
    links: Links | None,
    environment: Mapping[str, str] = os.environ,
) -> Communication:
    """What a launch asks of its all-reduces; what the node has not is left out, as SGLang does.

    Args:
        asked: SGLang's arguments.
        links: How the node's GPUs talk; None: nothing is known, the card's table stands.
        environment: NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS,
            NCCL_NVLS_ENABLE.
    """
    if links is None:
        return Communication()
    path = _path(asked, links, environment)
    if asked.get("enable_deterministic_inference"):
        return Communication(
            path="nccl", nccl_algorithms=("tree",), nccl_channels=_DETERMINISTIC_CHANNELS
        )
    return Communication(
        path=None if path == links.default_path else path,
        nccl_algorithms=_allowed(environment.get("NCCL_ALGO"), ALGORITHMS),
        nccl_protocols=_allowed(environment.get("NCCL_PROTO"), PROTOCOLS),
        nccl_channels=_channels(environment, links),
    )


def _path(
    asked: Mapping[str, AskedValue], links: Links, environment: Mapping[str, str]
) -> AllreducePath:
    own_kernels = links.one_shot_us is not None
    if asked.get("disable_custom_all_reduce") or not own_kernels:
        nvls = asked.get("enable_nccl_nvls") or environment.get("NCCL_NVLS_ENABLE") == "1"
        return "nvls" if nvls and links.nvls else "nccl"
    if asked.get("enable_flashinfer_allreduce_fusion"):
        return "fused"
    enforced_off = asked.get("enforce_disable_flashinfer_allreduce_fusion")
    return "custom" if enforced_off else links.default_path


def _allowed(text: str | None, names: Sequence[Name]) -> tuple[Name, ...]:
    """NCCL's lists: `Ring,Tree` allows these, `^Tree` all but it; `allreduce:tree` is of one call.

    Names that the model does not know leave everything allowed.
    """
    if not text:
        return tuple(names)
    excluded = text.startswith("^")
    told = {
        word.rpartition(":")[2].strip().lower()
        for word in text.lstrip("^").replace(";", ",").split(",")
    }
    chosen = tuple(name for name in names if (name.lower() in told) is not excluded)
    return chosen or tuple(names)


def _channels(environment: Mapping[str, str], links: Links) -> int | None:
    """NCCL's default number, held between the least and the most that are asked for."""
    least, most = (
        int(text) if (text := environment.get(name, "")).isdecimal() else None
        for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
    )
    if least is None and most is None:
        return None
    channels = max(links.nccl_channels, least or 0)
    return max(1, min(channels, most) if most is not None else channels)
