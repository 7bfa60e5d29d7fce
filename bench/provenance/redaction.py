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
# Names end at "=" and begin at the first letter of a run of these characters. A run is looked at
# once: else a long one without "=" would be read to its end from each of its letters.
_RUN = re.compile(r"(?<![\w.-])([\w.-]+)=")
_NAME = re.compile(r"-{0,2}[A-Za-z_]")
_VALUE = re.compile(r"[^\s\"',;&]+")


def redact_text(text: str) -> str:
    """The text without bearer tokens, keys by their look, and values assigned to secret names."""
    parts = []
    kept = read = 0
    for run in _RUN.finditer(text):
        name = _NAME.search(run[1])
        if run.start() < read or name is None:  # it is in a value, or names nothing
            continue
        value = _VALUE.match(text, run.end())
        if value is None:
            continue
        read = value.end()
        if is_secret_name(run[1][name.start() :]) and not _PLACE.match(value[0]):
            parts += [text[kept : run.end()], REDACTED]
            kept = read
    return redact("".join([*parts, text[kept:]]))


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
