"""Prompt files: JSON Lines of prompts or messages, and ShareGPT's JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.errors import InputError

Messages = tuple[tuple[str, str], ...]
"""(role, content) pairs."""

_ROLES = frozenset({"system", "user", "assistant"})


def read_jsonl(path: Path) -> list[Messages]:
    """Read one object a line: `{"prompt": "…"}` or `{"messages": [{"role": …, "content": …}]}`.

    Other keys are ignored, so are empty lines.

    Raises:
        InputError: The file cannot be read, or a line is not as said; the message names file:line.
    """
    prompts = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if line.strip():
            prompts.append(_line(line, f"{path}:{number}"))
    return _not_empty(prompts, path)


def read_sharegpt(path: Path) -> list[Messages]:
    """Read ShareGPT's JSON: a list of `{"conversations": [{"from": …, "value": …}]}`.

    The first human turn of each conversation is its prompt; one without any is left out.

    Raises:
        InputError: The file cannot be read or is not of this form.
    """
    try:
        entries = msgspec.json.decode(_read(path).encode())
    except msgspec.DecodeError as error:
        raise InputError(
            f"{path}: wanted ShareGPT's JSON, found text that is none: {error}"
        ) from error
    if not isinstance(entries, list):
        raise InputError(f"{path}: wanted a list of conversations, found {_kind(entries)}")
    prompts: list[Messages] = []
    for place, entry in enumerate(entries):
        turns = entry.get("conversations") if isinstance(entry, dict) else None
        if not isinstance(turns, list):
            raise InputError(
                f"{path}: entry {place}: wanted an object with a list `conversations`, "
                f"found {_kind(entry)}"
            )
        human = next((text for turn in turns if (text := _human_text(turn))), None)
        if human is not None:
            prompts.append((("user", human),))
    return _not_empty(prompts, path)


def _read(path: Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"asked for the prompts in {path}, which cannot be read: {error.strerror}",
            hint="dataset paths are relative to the scenario's file",
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: wanted UTF-8 text, found byte {error.start} to be none"
        ) from error


def _line(line: str, place: str) -> Messages:
    try:
        row = msgspec.json.decode(line.encode())
    except msgspec.DecodeError as error:
        raise InputError(
            f"{place}: wanted a JSON object, found text that is none: {error}"
        ) from error
    if isinstance(row, dict) and isinstance(row.get("prompt"), str) and row["prompt"]:
        return (("user", row["prompt"]),)
    messages = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not messages:
        raise InputError(
            f"{place}: wanted `prompt` (a text) or `messages` (a list), found "
            + (
                f"the keys {', '.join(map(repr, row)) or 'none'}"
                if isinstance(row, dict)
                else _kind(row)
            )
        )
    return tuple(_message(message, place) for message in messages)


def _message(message: object, place: str) -> tuple[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if role not in _ROLES or not isinstance(content, str):
        raise InputError(
            f"{place}: wanted messages with a role of {', '.join(sorted(_ROLES))} and a text as "
            f"content, found role {role!r} and {_kind(content)} as content"
        )
    return role, content


def _human_text(turn: object) -> str | None:
    if isinstance(turn, dict) and turn.get("from") in {"human", "user"}:
        value = turn.get("value")
        return value if isinstance(value, str) and value.strip() else None
    return None


def _not_empty(prompts: list[Messages], path: Path) -> list[Messages]:
    if not prompts:
        raise InputError(f"{path}: asked for prompts, found none in it")
    return prompts


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value"}
    return "nothing" if value is None else names.get(type(value), "a number")
