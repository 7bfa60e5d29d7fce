"""The rounds of a ranking: every setting in turn, in random order, between two defaults."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.errors import MachineError
from tuner.nccl.engine import environment_of_server
from tuner.nccl.ranking import Round
from tuner.nccl.settings import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tuner.nccl.asking import NcclQuestion
    from tuner.nccl.settings import NcclSetting
    from tuner.nccl.starting import Start, Started

HOPELESS: Final = 1.05
"""A setting that takes this many times as long at every size in two rounds is left."""
_TRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the rounds gave.

    Attributes:
        rounds: Their times.
        failures: (setting, how often and why) of those that failed; twice, and it is left.
        left: (setting, why) of those given up as hopeless.
        starts: How often the ranks were started.
    """

    rounds: tuple[Round, ...]
    failures: tuple[tuple[str, str], ...]
    left: tuple[tuple[str, str], ...]
    starts: int


async def measure_rounds(
    start: Start, question: NcclQuestion, *, rounds: int, say: Callable[[str], None]
) -> Measured:
    """Start every setting once a round; a failing or hanging one does not end the ranking.

    Args:
        start: Starts the ranks.
        question: The settings, and the environment that they stand in.
        rounds: How many.
        say: Told what begins.

    Raises:
        MachineError: The default itself does not run.
    """
    rng = random.Random(question.seed)  # noqa: S311  # an order, no secret
    alive = {one.name: one for one in question.choice.others}
    failed: dict[str, list[str]] = {}
    left: dict[str, str] = {}
    done: list[Round] = []
    starts = 0
    for number in range(1, rounds + 1):
        order = rng.sample([*alive.values()], len(alive))
        say(f"round {number} of {rounds}: {len(order) + 2} starts")
        defaults: list[Mapping[int, float]] = []
        times: dict[str, Mapping[int, float]] = {}
        for one in (question.choice.default, *order, question.choice.default):
            started = await start(variables_of(question, one), "times")
            starts += 1
            if started.failure is None:
                if one.name == DEFAULT:
                    defaults.append(started.us)
                else:
                    times[one.name] = started.us
                continue
            say(f"{one.name}: {started.failure}")
            reasons = failed.setdefault(one.name, [])
            reasons.append(started.failure)
            if one.name == DEFAULT:
                _require_default(reasons, started)
            elif len(reasons) >= _TRIES:
                del alive[one.name]
        done.append(Round(default=tuple(defaults), settings=times))
        for name in [name for name in alive if _is_hopeless(name, done)]:
            del alive[name]
            left[name] = (
                f"more than {100 * (HOPELESS - 1):.0f} % slower than the default at every size, "
                f"twice; left after round {number}"
            )
            say(f"{name}: {left[name]}")
        if not alive and number >= _TRIES:
            break
    return Measured(
        rounds=tuple(done),
        failures=tuple(
            (name, f"failed {'once' if len(reasons) == 1 else 'twice'}: {reasons[-1]}")
            for name, reasons in failed.items()
        ),
        left=tuple(left.items()),
        starts=starts,
    )


def variables_of(question: NcclQuestion, setting: NcclSetting) -> dict[str, str | None]:
    """A setting's variables, the scenario's own, and those that SGLang would set."""
    whole = environment_of_server(
        question.asked, {**question.environment, **dict(setting.environment)}
    )
    names = {*question.server_environment, *(name for name in whole if name.startswith("NCCL_"))}
    return {name: whole[name] for name in sorted({*names, "CUDA_DEVICE_MAX_CONNECTIONS"})}


def _require_default(reasons: Sequence[str], started: Started) -> None:
    if len(reasons) < _TRIES:
        return
    raise MachineError(
        f"all-reduces with what is in use asked for; they failed {len(reasons)} times: "
        f"{started.failure}",
        hint="Nothing can be ranked without it. Check that the GPUs are free and that the Python "
        "or all_reduce_perf is that of the server.",
    )


def _is_hopeless(name: str, rounds: Sequence[Round]) -> bool:
    """Whether it was far slower at every size in the last two rounds that it ran in."""
    seen = [one for one in rounds if name in one.settings and one.default][-_TRIES:]
    return len(seen) == _TRIES and all(
        times[size] > HOPELESS * math.fsum(d[size] for d in one.default) / len(one.default)
        for one in seen
        for times in (one.settings[name],)
        for size in times
    )
