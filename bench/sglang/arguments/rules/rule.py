"""What is written down of one rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that SGLang does with arguments.

    Attributes:
        id: `C1` to `C44`, or a name.
        source: The files of SGLang it was read from.
        asked: The arguments it is about.
        server: What SGLang does.
        ours: What we do: reject, change (say what becomes of it), advise, or check after the
            start.
        always: Whether it holds on versions that are not known here: then it rejects there too.
    """

    id: str
    source: str = "spec"
    asked: str
    server: str
    ours: str
    always: bool = False
