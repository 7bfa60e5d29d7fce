"""What becomes of asked arguments: effective settings with what was changed, or a rejection."""

from __future__ import annotations

from dataclasses import dataclass

from bench.sglang.arguments.options import option_of

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that the server will run with and that the command line does not have.

    Attributes:
        rule: Which rule changes it.
        dest: The server argument.
        asked: What was asked, as text; None: nothing was.
        becomes: What it will be, as text.
        why: The reason, in a few words.
    """

    rule: str
    dest: str
    asked: str | None
    becomes: str
    why: str

    @property
    def sentence(self) -> str:
        """`num_draft_tokens was 8 and becomes 4, since …`."""
        name = self.dest.removeprefix("speculative_")
        was = "was not given" if self.asked is None else f"was {self.asked}"
        return f"{name} {was} and becomes {self.becomes}, since {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to know before a launch that does not keep it from being made.

    Attributes:
        rule: Which rule says so.
        text: What was asked and what the server does with it.
        fix: What to write instead.
        refused: Whether SGLang of the supported version would not start with it.
        late: Whether that shows only once models are loaded, so that SGLang's own resolution does
            not tell of it.
    """

    rule: str
    text: str
    fix: str
    refused: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Arguments that SGLang would not start with, or not get past its first draft with.

    Attributes:
        rule: Which rule says so (`bench.sglang.arguments.RULES`).
        reason: What was asked and what the server does.
        fix: What to write instead.
        late: Whether that shows only once models are loaded, so that SGLang's own resolution does
            not tell of it.
    """

    rule: str
    reason: str
    fix: str
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSpeculative:
    """What SGLang will run with.

    Attributes:
        algorithm: Upper-cased, NEXTN as EAGLE; None: no speculation, and then steps, topk and
            draft tokens are None as well.
        num_steps: Draft steps a cycle (adaptive: those it begins with); None: not known here.
        eagle_topk: Branches a draft step.
        num_draft_tokens: Tokens verified a cycle, the root included.
        max_running_requests: The most requests decoded at once, over all ranks; None: the server
            decides from its memory.
        most_draft_tokens: The most that adaptive speculation may go up to; else
            `num_draft_tokens`.
        values: Every server argument that the rules settle, by its name in `/server_info`.
        changes: What the server changes or fills in.
        advice: What is worth knowing before the launch.
        without_effect: Asked arguments that change nothing, by name.
    """

    algorithm: str | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    max_running_requests: int | None
    most_draft_tokens: int | None = None
    values: tuple[tuple[str, Value], ...] = ()
    changes: tuple[Change, ...] = ()
    advice: tuple[Advice, ...] = ()
    without_effect: tuple[str, ...] = ()

    @property
    def adjustments(self) -> tuple[str, ...]:
        """What the server changes of what was asked, a sentence each, the rule's name first."""
        idle = [option_of(dest) for dest in self.without_effect]
        ignored = (f"ignored: {', '.join(idle)}",) if idle else ()
        return tuple(f"{change.rule}: {change.sentence}" for change in self.changes) + ignored

    @property
    def reserved_tok(self) -> int | None:
        """Tokens of the context that speculation keeps for itself; None: not known.

        Source: `managers/utils.py`, compute_num_reserved_tokens: drafts lie in the slots of the
        output; algorithms other than EAGLE's reserve nothing.
        """
        if self.algorithm not in {"EAGLE", "EAGLE3", "FROZEN_KV_MTP"}:
            return 0
        if self.num_steps is None or self.eagle_topk is None or self.most_draft_tokens is None:
            return None
        return max(self.eagle_topk * self.num_steps, self.most_draft_tokens)


def by_rule(rule: str) -> str:
    """Where what SGLang does is told in full, as the end of a message."""
    return f"(rule {rule}, docs/arguments.md)"


def as_text(value: Value) -> str:
    """A value as the command line and JSON write it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
