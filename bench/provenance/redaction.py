"""Keeps secrets out of what is stored: by the name before a value, and by the value's look."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.http import is_secret_name, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REDACTED = "[redacted]"

# `server.api_key={env: NAME}` says where a key is read from.
_PLACE = re.compile(r"\{\s*(?:env|file)\s*:")
# A word is looked at once, from where it begins; what cannot begin a name is stepped over for
# good. Else a long word without "=" would be read to its end from each of its letters.
_ASSIGNMENT = re.compile(
    r"(?<![\w.-])(?P<before>(?:(?!-{0,2}[A-Za-z_])[\w.-])*+)"
    r"(?P<name>-{0,2}[A-Za-z_][\w.-]*+)=(?P<value>[^\s\"',;&]+)"
)


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
        name, assigned, value = word.partition("=")
        if before.startswith("-") and is_secret_name(before) and not word.startswith("--"):
            words.append(REDACTED)
        elif assigned and is_secret_name(name) and not _PLACE.match(value):
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
    is_secret = is_secret_name(found["name"]) and not _PLACE.match(found["value"])
    return f"{found['before']}{found['name']}={REDACTED}" if is_secret else found[0]
