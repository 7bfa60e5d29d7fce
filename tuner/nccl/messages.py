"""The all-reduce messages of a decoding step: how large, and how many; pure.

A tensor-parallel layer all-reduces twice, after attention and after its MLP or experts, and each
time moves `rows × hidden size × bytes of an element`. Rows are tokens: the batch of plain
decoding, times `num_draft_tokens` when the target verifies, times `topk` for a step of the draft.
The draft's first forward of a cycle takes in what was verified: as many rows as the verify (as
`bench.physics.steps`, after SGLang's eagle_worker.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from bench.physics import graph_batch
from bench.physics.steps import ALLREDUCES_PER_LAYER
from bench.sglang.arguments import EAGLE_FAMILY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MessageKind = Literal["decode", "verify", "draft step", "draft extend", "prefill"]

BF16_BYTES: Final = 2
OFF: Final = "off"
PREFILL: Final = "prefill"
_OWN_DRAFT_MODEL: Final = frozenset({*EAGLE_FAMILY, "STANDALONE", "DFLASH", "DSPARK"})
_ONE_FORWARD: Final = frozenset({"DFLASH", "DSPARK"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """What of the models sets the size and the number of messages.

    Attributes:
        hidden: The target's hidden size.
        layers: Its transformer layers.
        draft_hidden: The draft's hidden size.
        draft_layers: Its layers; 0: no draft is known.
        element_bytes: Bytes of an activation: 2 for bfloat16 and float16.
    """

    hidden: int
    layers: int
    draft_hidden: int = 0
    draft_layers: int = 0
    element_bytes: int = BF16_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How a step drafts; `algorithm` None: not at all."""

    algorithm: str | None = None
    num_steps: int = 0
    topk: int = 1
    num_draft_tokens: int = 1

    @property
    def label(self) -> str:
        """`off`, `EAGLE3 3-1-4`, `NGRAM 8`."""
        if self.algorithm is None:
            return OFF
        if self.num_steps == 0:
            return f"{self.algorithm} {self.num_draft_tokens}"
        return f"{self.algorithm} {self.num_steps}-{self.topk}-{self.num_draft_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """All-reduces of one size in one step.

    Attributes:
        kind: Which forward they belong to.
        rows: Tokens of that forward, the padding to a CUDA graph's batch counted.
        message_bytes: Of each rank.
        per_step: How many in one step, or cycle.
    """

    kind: MessageKind
    rows: int
    message_bytes: int
    per_step: int

    @property
    def of_draft(self) -> bool:
        """Whether the draft model makes them."""
        return self.kind.startswith("draft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The messages of one decoding step (draft-and-verify cycle) at one load.

    Attributes:
        load: The load's label.
        draft: The draft's label.
        batch: Running requests, padded.
        messages: By forward.
    """

    load: str
    draft: str
    batch: int
    messages: tuple[Message, ...]


def message_bytes(*, batch: int, tokens: int, hidden: int, element_bytes: int = BF16_BYTES) -> int:
    """Bytes of one all-reduce: batch × tokens a request × hidden size × bytes of an element."""
    return batch * tokens * hidden * element_bytes


def step_of(widths: Widths, draft: Draft, *, load: str, batch: int) -> Step:
    """The messages of one step.

    Args:
        widths: Of the models.
        draft: How it drafts.
        load: The load's label.
        batch: Running requests, padded to a graph's.
    """

    def message(
        kind: MessageKind, tokens: int, hidden: int, layers: int, forwards: int = 1
    ) -> Message:
        return Message(
            kind=kind,
            rows=batch * tokens,
            message_bytes=message_bytes(
                batch=batch, tokens=tokens, hidden=hidden, element_bytes=widths.element_bytes
            ),
            per_step=ALLREDUCES_PER_LAYER * layers * forwards,
        )

    if draft.algorithm is None:
        messages = [message("decode", 1, widths.hidden, widths.layers)]
    else:
        tokens = draft.num_draft_tokens
        messages = [message("verify", tokens, widths.hidden, widths.layers)]
        if draft.algorithm in _OWN_DRAFT_MODEL and widths.draft_layers:
            of_draft = (widths.draft_hidden, widths.draft_layers)
            messages.append(message("draft extend", tokens, *of_draft))
            if draft.num_steps > 1 and draft.algorithm not in _ONE_FORWARD:
                steps = draft.num_steps - 1
                messages.append(message("draft step", draft.topk, *of_draft, forwards=steps))
    return Step(load=load, draft=draft.label, batch=batch, messages=tuple(messages))


def steps_of(
    widths: Widths,
    drafts: Sequence[Draft],
    loads: Mapping[str, int],
    *,
    graph_batches: Mapping[bool, Sequence[int] | None] | None = None,
) -> tuple[Step, ...]:
    """The messages of every draft at every load, loads outermost.

    Args:
        widths: Of the models.
        drafts: How the server may draft.
        loads: Running requests by load's label.
        graph_batches: Batch sizes captured as CUDA graphs, without (False) and with (True)
            speculation: a batch is padded to the next of them. None or missing: not padded.
    """
    captured = graph_batches or {}
    return tuple(
        step_of(
            widths,
            draft,
            load=load,
            batch=graph_batch(batch, captured.get(draft.algorithm is not None)) or batch,
        )
        for load, batch in loads.items()
        for draft in drafts
    )


def prefill_step(widths: Widths, chunk_tok: int) -> Step:
    """The messages of a prefill of one full chunk."""
    size = message_bytes(
        batch=1, tokens=chunk_tok, hidden=widths.hidden, element_bytes=widths.element_bytes
    )
    message = Message(
        kind="prefill",
        rows=chunk_tok,
        message_bytes=size,
        per_step=ALLREDUCES_PER_LAYER * widths.layers,
    )
    return Step(load=PREFILL, draft=OFF, batch=1, messages=(message,))
