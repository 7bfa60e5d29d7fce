"""The requests of one cell, fixed before the first is sent: the same work in every arm; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench.load.arrivals import arrival_offsets_ns
from bench.load.prompts import build_prompts, priming_prompts
from bench.plan import request_seed
from bench.sglang.wire import request_body

if TYPE_CHECKING:
    from bench.load.prompts import Prompt
    from bench.model import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request, ready to send.

    Attributes:
        index: Its place in the cell's order.
        is_priming: Whether it only fills the prefix cache; it goes before the warm-up.
        offset_ns: Open loads: when it is due after the schedule's start.
    """

    index: int
    phase: Literal["warmup", "measure"]
    is_priming: bool
    prompt_id: str
    prompt_sha256: str
    seed: int
    body: bytes
    offset_ns: int | None


def plan_requests(cell: Cell, *, model_name: str, first_index: int = 0) -> list[PlannedRequest]:
    """All requests of a cell in their order: priming, warm-up, then the measured ones.

    Priming requests (`cache: primed` and `shared-prefix`) ask for one token and count as warm-up.

    Args:
        cell: Of a closed or an open load.
        model_name: The served model's name.
        first_index: Of its first request; a search over rates goes on counting.

    Raises:
        InputError: A dataset or a tokenizer cannot be read.
    """
    workload, salt = cell.workload, cell.comparison_key
    count = cell.warmup_requests + cell.requests
    prompts = build_prompts(workload, seed=cell.seed, count=first_index + count, cell_salt=salt)
    prompts = prompts[first_index:]
    priming = priming_prompts(workload, prompts, seed=cell.seed, cell_salt=salt)
    caps = [1] * len(priming) + _output_caps(cell, first_index)
    offsets = [None] * len(priming) + _offsets(cell, first_index)
    planned = []
    for place, prompt in enumerate([*priming, *prompts]):
        index = first_index + place
        seed = request_seed(cell.seed, workload.name, index)
        planned.append(
            PlannedRequest(
                index=index,
                phase="warmup" if place < len(priming) + cell.warmup_requests else "measure",
                is_priming=place < len(priming),
                prompt_id=prompt.prompt_id,
                prompt_sha256=prompt.sha256,
                seed=seed,
                body=_body(cell, prompt, model_name, max_output_tok=caps[place], seed=seed),
                offset_ns=offsets[place],
            )
        )
    return planned


def _body(cell: Cell, prompt: Prompt, model_name: str, *, max_output_tok: int, seed: int) -> bytes:
    return request_body(
        cell.workload,
        model=model_name,
        messages=prompt.messages,
        text=prompt.text,
        max_output_tok=max_output_tok,
        seed=seed,
    )


def _output_caps(cell: Cell, first_index: int) -> list[int]:
    """The cap of each request after priming.

    Slots of a closed load all start at once. If their answers were equally long they would go on
    in step, prefill together and decode together, as no steady load does. So the first answers
    get caps that are spread evenly up to the whole one, in an order drawn once, the same in every
    arm: then slots begin their next requests at even distances (docs/decisions/0005).
    """
    cap = cell.workload.max_output_tok
    caps = [cap] * (cell.warmup_requests + cell.requests)
    first = min(cell.load.concurrency or 0, cell.warmup_requests)
    if cell.load.kind == "closed":
        seed = request_seed(cell.seed, f"{cell.workload.name} warm-up", first_index)
        spread = [-(-cap * place // first) for place in range(1, first + 1)]
        random.Random(seed).shuffle(spread)  # noqa: S311  # reproducible work, not a secret
        caps[:first] = spread
    return caps


def _offsets(cell: Cell, first_index: int) -> list[int | None]:
    count = cell.warmup_requests + cell.requests
    if cell.load.kind == "closed":
        return [None] * count
    name = f"{cell.workload.name} arrivals {cell.load.label}"
    seed = request_seed(cell.seed, name, first_index)
    return list(arrival_offsets_ns(cell.load, seed=seed, count=count))
