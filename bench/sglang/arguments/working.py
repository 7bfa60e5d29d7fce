"""The arguments on their way to what the server will run with; private to this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from bench.sglang.arguments.known import SUPPORTED
from bench.sglang.arguments.options import option_of
from bench.sglang.arguments.outcome import (
    Advice,
    Change,
    EffectiveSpeculative,
    Rejection,
    Value,
    as_text,
)
from bench.sglang.arguments.parsing import AskedValue, whole_number
from bench.sglang.arguments.rules import RULES_BY_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.sglang.arguments.known import Known

EAGLE_FAMILY: Final = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP"})
"""Algorithms with steps, topk and draft tokens of their own choosing; NEXTN is run as EAGLE."""

ALGORITHMS: Final = EAGLE_FAMILY | {"NGRAM", "DFLASH", "DSPARK", "UNO"}


class Refused(Exception):  # noqa: N818  # an outcome, which `effective_speculative` returns
    """The server would refuse; never leaves this package."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection


class Working:
    """What was asked, what it has become so far, and what was said about it.

    The rules are applied in SGLang's own order, each to what those before have left.
    """

    def __init__(self, asked: Mapping[str, AskedValue], known: Known) -> None:
        self.asked = asked
        self.known = known
        self.values: dict[str, Value] = {}
        self.most_draft_tokens: int | None = None
        self._changes: list[Change] = []
        self._advice: list[Advice] = []
        self._without_effect: dict[str, None] = {}

    # -- reading

    def given(self, dest: str) -> bool:
        """Whether the command line has it."""
        return dest in self.asked

    def text(self, dest: str) -> str | None:
        """The word it has now."""
        value = self.values[dest] if dest in self.values else self.asked.get(dest)
        return value if isinstance(value, str) else None

    def number(self, dest: str) -> int | None:
        """The whole number it has now."""
        if dest in self.values:
            value = self.values[dest]
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        word = self.text(dest)
        return None if word is None else whole_number(word)

    def flag(self, dest: str) -> bool:
        """Whether a flag is on now."""
        value = self.values[dest] if dest in self.values else self.asked.get(dest)
        return value is True

    @property
    def algorithm(self) -> str | None:
        """The algorithm as the server resolved it."""
        return self.text("speculative_algorithm")

    @property
    def is_cpu(self) -> bool:
        """Whether the server runs without a GPU."""
        device = self.text("device")
        return self.known.gpu == "cpu" if device is None else device == "cpu"

    @property
    def attention_dp(self) -> int:
        """Ranks of data-parallel attention; `--dp-size N --enable-dp-attention` is the old way."""
        own = self.number("attn_dp_size")
        if own is None and self.flag("enable_dp_attention"):
            own = self.number("dp_size")
        return own or 1

    # -- telling

    def settle(self, rule: str, dest: str, value: Value, why: str) -> None:
        """The server will have `value`; a change unless that was asked."""
        before = self._now(dest)
        self.values[dest] = value
        if before != as_text(value):
            self._changes.append(
                Change(rule=rule, dest=dest, asked=before, becomes=as_text(value), why=why)
            )

    def keep(self, *dests: str) -> None:
        """What was asked of these is what the server will have."""
        for dest in dests:
            number = self.number(dest)
            if number is not None:
                self.values.setdefault(dest, number)

    def ignore(self, rule: str, dest: str, why: str, fix: str = "") -> None:
        """What was asked of it changes nothing."""
        if self.given(dest) and dest not in self._without_effect:
            self._without_effect[dest] = None
            fix = fix or f"Leave {option_of(dest)} out."
            self.advise(rule, f"{option_of(dest)} changes nothing: {why}.", fix)

    def advise(self, rule: str, text: str, fix: str) -> None:
        """Something to know before the launch."""
        self._advice.append(Advice(rule=rule, text=text, fix=fix))

    def refuse(self, rule: str, reason: str, fix: str, *, late: bool = False) -> None:
        """SGLang would not start with this: raises where that is certain, else advises.

        It is certain on the supported version, and for rules that do not depend on one.

        Args:
            rule: Which rule says so.
            reason: What was asked and what the server does.
            fix: What to write instead.
            late: Whether it fails only once models are loaded.
        """
        if self.known.is_supported or RULES_BY_ID[rule].always:
            self.reject(rule, reason, fix, late=late)
        self._advice.append(
            Advice(
                rule=rule,
                text=f"SGLang {SUPPORTED} refuses this: {reason}",
                fix=fix,
                refused=True,
                late=late,
            )
        )

    def reject(self, rule: str, reason: str, fix: str, *, late: bool = False) -> NoReturn:
        """SGLang would not start with this, whatever its version."""
        raise Refused(Rejection(rule=rule, reason=reason, fix=fix, late=late))

    def result(self) -> EffectiveSpeculative:
        """What it has all become."""
        algorithm = self.algorithm
        draft_tokens = self.number("speculative_num_draft_tokens") if algorithm else None
        return EffectiveSpeculative(
            algorithm=algorithm,
            num_steps=self.number("speculative_num_steps") if algorithm else None,
            eagle_topk=self.number("speculative_eagle_topk") if algorithm else None,
            num_draft_tokens=draft_tokens,
            max_running_requests=self._running(),
            most_draft_tokens=draft_tokens
            if self.most_draft_tokens is None
            else self.most_draft_tokens,
            values=tuple(sorted(self.values.items())),
            changes=tuple(self._changes),
            advice=tuple(self._advice),
            without_effect=tuple(self._without_effect),
        )

    def _running(self) -> int | None:
        """The running limit; of less than one request for each rank SGLang makes that."""
        limit = self.number("max_running_requests")
        return None if limit is None else max(limit, self.attention_dp)

    def _now(self, dest: str) -> str | None:
        if dest in self.values:
            return as_text(self.values[dest])
        value = self.asked.get(dest)
        if isinstance(value, list):
            return " ".join(value)
        return "true" if value is True else value
