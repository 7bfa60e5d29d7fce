"""The little that a scenario must know of SGLang's command line.

That is: who owns which argument, and the pinned batch limit. What the arguments mean, and what
the server makes of them, is `bench.sglang`'s. As in argparse, an argument may be shortened and its
value may follow a space or an equals sign; of several the last counts.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_RUNNING = "--max-running-requests"

# Arguments that come from a key of the scenario or from bench: here they would contradict it.
OWNED = {
    "--model-path": "target.path gives it",
    "--model": "target.path gives it",
    "--revision": "target.revision gives it",
    "--host": "bench binds the server to 127.0.0.1",
    "--port": "bench picks a free port",
    "--config": "a file of arguments would hide what is asked; write them out",
}
OWNED_SPECULATIVE = {
    "--speculative-algorithm": "speculative.algorithm",
    "--speculative-draft-model-path": "draft.path",
    "--speculative-draft-model-revision": "draft.revision",
    "--speculative-num-steps": "speculative.num_steps",
    "--speculative-eagle-topk": "speculative.eagle_topk",
    "--speculative-num-draft-tokens": "speculative.num_draft_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One `--flag` of a list of argument lines.

    Attributes:
        line: Index of the line it stands in.
        flag: As written, without a value.
        value: What follows the equals sign or the flag, if that is no flag; None: nothing.
    """

    line: int
    flag: str
    value: str | None


def split_arguments(lines: Sequence[str]) -> tuple[str, ...]:
    """Argument lines as argv: each is split as a shell would."""
    return tuple(token for line in lines for token in shlex.split(line))


def options(lines: Sequence[str]) -> Iterator[Option]:
    """Every `--flag` with its first value; a value may stand in the line after."""
    tokens = [(index, token) for index, line in enumerate(lines) for token in shlex.split(line)]
    for place, (index, token) in enumerate(tokens):
        if not token.startswith("--"):
            continue
        flag, equals, value = token.partition("=")
        if equals:
            yield Option(line=index, flag=flag, value=value)
        else:
            after = tokens[place + 1][1] if place + 1 < len(tokens) else None
            yield Option(
                line=index,
                flag=flag,
                value=None if after is None or after.startswith("--") else after,
            )


def is_max_running(flag: str) -> bool:
    """Whether a flag is --max-running-requests or a shortened form of it."""
    return flag.startswith("--max-running") and MAX_RUNNING.startswith(flag)


def is_speculative(flag: str) -> bool:
    """Whether a flag concerns speculative decoding."""
    return flag.startswith("--speculative")


def owner(flag: str) -> str | None:
    """Who gives this argument (or its shortened form), if bench does; None: the writer may."""
    if flag in OWNED:
        return OWNED[flag]
    if len(flag) <= len("--m"):  # of one letter it could be several
        return None
    return next((by for full, by in OWNED.items() if full.startswith(flag)), None)


def speculative_owner(flag: str) -> str | None:
    """The key of an arm that gives this argument (or its shortened form), if there is one."""
    if not is_speculative(flag):
        return None
    return next((key for full, key in OWNED_SPECULATIVE.items() if full.startswith(flag)), None)
