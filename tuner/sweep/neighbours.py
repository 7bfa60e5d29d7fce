"""Which configurations must fail like one that failed, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.failures import FailureClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.space import Configuration

_MEMORY: Final = frozenset({FailureClass.CUDA_OOM, FailureClass.KV_POOL_TOO_SMALL})


def must_fail_too(
    failed: int, failure: FailureClass | None, configurations: Sequence[Configuration]
) -> tuple[tuple[int, ...], str]:
    """What else is not worth a launch.

    Only what follows: more drafts, branches and verified tokens at the same setting need more
    memory; a setting that cannot start without speculation starts with none; a draft model that
    is not there is missing in all configurations that have one.

    Args:
        failed: Place of the configuration that failed.
        failure: How; None: not known, and then nothing follows.
        configurations: The space.

    Returns:
        Places, without `failed`, and the reason in words.
    """
    this = configurations[failed]
    others = [(at, c) for at, c in enumerate(configurations) if at not in {0, failed}]
    if failure is None:
        return (), ""
    if failure in _MEMORY:
        return (
            tuple(at for at, c in others if _needs_as_much(c, this)),
            f"needs at least the memory of {this.label}, which failed ({failure.value})",
        )
    if failure is FailureClass.BAD_ARGUMENTS and this.algorithm is None:
        return (
            tuple(at for at, c in others if c.setting == this.setting),
            f"has the arguments with which {this.label} was refused",
        )
    if failure is FailureClass.MODEL_NOT_FOUND and this.algorithm is not None:
        return (
            tuple(at for at, c in others if c.algorithm == this.algorithm),
            f"needs the draft model that {this.label} did not find",
        )
    return (), ""


def _needs_as_much(other: Configuration, failed: Configuration) -> bool:
    if other.setting != failed.setting:
        return False
    if failed.algorithm is None:
        return True  # speculation comes on top
    return other.algorithm == failed.algorithm and all(
        more >= less for more, less in zip(other.draft[1:], failed.draft[1:], strict=True)
    )
