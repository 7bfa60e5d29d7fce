"""Keeps secrets out of what is stored: by the name before a value, and by the value's look."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.http import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REDACTED = "[redacted]"

# Not every `…_token`: a server's `time_to_first_token` or `experts_per_token` is a setting.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:api_?key|key|secret|password|passwd|passphrase|credentials?|pat"
    r"|(?:access|api|auth|bearer|hf|hub|secret|session)_?token)$"
    r"|^token$|_TOKEN$|secret|password|api_?key|access_?key|private_?key",
)
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=([^\s\"',;&]+)")


def is_secret_name(name: str) -> bool:
    """Whether what bears this name (an option, a variable, a key) is a secret."""
    plain = name.lstrip("-").replace("-", "_").replace(".", "_")
    return bool(_SECRET_NAME.search(plain) or _SECRET_NAME.search(plain.lower()))


def redact_text(text: str) -> str:
    """The text without bearer tokens, keys by their look, and values assigned to secret names."""
    return redact(_ASSIGNMENT.sub(_redacted_assignment, text))


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without its secrets: `--api-key V`, `--api-key=V`, `HF_TOKEN=V` and the like.

    Args:
        argv: Its words.

    Returns:
        As many words; the option names are kept.
    """
    words = []
    before = ""
    for word in argv:
        name, assigned, _ = word.partition("=")
        if before.startswith("-") and is_secret_name(before) and not word.startswith("--"):
            words.append(REDACTED)
        elif assigned and is_secret_name(name):
            words.append(f"{name}={REDACTED}")
        else:
            words.append(redact_text(word))
        before = word
    return tuple(words)


def redact_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the values of secret ones replaced; sorted by name."""
    return {
        name: REDACTED if value and is_secret_name(name) else redact_text(value)
        for name, value in sorted(variables.items())
    }


def _redacted_assignment(found: re.Match[str]) -> str:
    return f"{found[1]}={REDACTED}" if is_secret_name(found[1]) else found[0]
