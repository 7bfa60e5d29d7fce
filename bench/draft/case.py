"""What the rules look at: a draft, its target, and the command line it is to be served with."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.draft.capture import Captured, captured_states
from bench.draft.loading import Loaded, load
from bench.draft.vocabulary import VocabularyMap, vocabulary_map
from bench.errors import InputError
from bench.sglang.arguments import asked_text, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.draft.draft import Draft
    from bench.draft.target import Target
    from bench.sglang.arguments import AskedValue

ALLOW_LONGER: Final = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_PROGRAM: Final = frozenset({"python", "python3", "-m", "sglang.launch_server", "sglang", "serve"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchArguments:
    """A server's command line.

    Attributes:
        asked: What it asks for, as `parse_arguments` reads it.
        environment: Variables set for it.
    """

    asked: Mapping[str, AskedValue]
    environment: Mapping[str, str]

    def text(self, dest: str) -> str | None:
        """An option's word; None where it is not given."""
        return asked_text(self.asked, dest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is examined; None is not known.

    Attributes:
        draft: The draft.
        target: Its target.
        launch: How it is to be served.
        captured: The target's states that an EAGLE-3 draft is fed.
        loaded: What becomes of its tensors.
        vocabulary: Its maps between the vocabularies.
    """

    draft: Draft
    target: Target | None
    launch: LaunchArguments | None
    captured: Captured | None
    loaded: Loaded | None
    vocabulary: VocabularyMap

    @property
    def vocab_size(self) -> int | None:
        """Of the target, else what the draft says of it."""
        known = None if self.target is None else self.target.vocab_size
        return known or self.draft.vocab_size

    @property
    def fed_width(self) -> int | None:
        """Width of what the first step is fed; None where it is not known."""
        width = self.draft.input_width
        if self.target is not None and self.target.hidden is not None:
            width = self.target.hidden
        if width is None:
            return None
        if not self.draft.uses_aux:
            return width
        states = self.draft.num_aux if self.captured is None else len(self.captured.states)
        return width * states


def case_of(
    draft: Draft, *, target: Target | None = None, launch: LaunchArguments | None = None
) -> Case:
    """Read what the rules need.

    Raises:
        InputError: A tensor that they need cannot be read.
    """
    vocab_size = draft.vocab_size if target is None else target.vocab_size or draft.vocab_size
    captured = None
    is_served = draft.is_eagle3 and draft.form != "speculators"  # it has no reader for those
    if is_served and target is not None and target.layers is not None:
        captured = captured_states(
            draft.nested_ids, architecture=target.architecture, layers=target.layers
        )
    return Case(
        draft=draft,
        target=target,
        launch=launch,
        captured=captured,
        loaded=load(draft) if draft.is_eagle3 else None,
        vocabulary=vocabulary_map(draft, vocab_size=vocab_size),
    )


def launch_arguments(text: str) -> LaunchArguments:
    """A command line as one types it, with `NAME=value` before it or without.

    Raises:
        InputError: A quote is not closed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(
            f"--launch-args: {error} in `{text}`.", hint="Close the quote, or escape it."
        ) from None
    environment = {}
    while words and "=" in words[0] and not words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    while words and (words[0] in _PROGRAM or words[0].rpartition("/")[2] in _PROGRAM):
        words.pop(0)
    return launch_of(words, environment=environment)


def launch_of(arguments: Sequence[str], *, environment: Mapping[str, str]) -> LaunchArguments:
    """A server's arguments, one word an element."""
    return LaunchArguments(asked=parse_arguments(arguments), environment=environment)
