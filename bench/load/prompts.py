"""The prompts of one cell: which, in which order, how long, with which salt; pure but for files.

Everything follows from the scenario's seed, the workload and the request's index, never from arm
or pair: all arms that are compared send the same bytes in the same order.
"""

from __future__ import annotations

import functools
import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.errors import InputError
from bench.load.datasets import read_jsonl, read_sharegpt
from bench.load.writing import CATEGORIES, document, task_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

    from bench.load.datasets import Messages
    from bench.model import Workload

BYTES_A_TOK: Final = 4
"""The estimate of prompt lengths without a tokenizer; near enough for English and code."""
SALT_TOK: Final = 12
"""What a salt takes of a prompt's length, nearly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt as it is sent.

    Attributes:
        prompt_id: Its place in the dataset, e.g. `generated-17-maths` or `jsonl-3`.
        messages: (role, content) pairs, for chat; a salt stands at the front of the first.
        text: The same as plain text, for completions and /generate.
        sha256: Hash of the text, salt included.
    """

    prompt_id: str
    messages: Messages
    text: str
    sha256: str


def build_prompts(workload: Workload, *, seed: int, count: int, cell_salt: str) -> list[Prompt]:
    """The first `count` prompts of a cell; a longer list begins with the shorter one.

    Args:
        workload: Dataset, lengths and cache rule.
        seed: The scenario's.
        count: How many requests need a prompt.
        cell_salt: Equal in the cells that are compared, different between loads and workloads.

    Raises:
        InputError: A dataset file or a tokenizer cannot be read.
    """
    prefix = _shared_prefix(workload, seed, cell_salt)
    seen: set[str] = set()
    prompts = []
    for index, (prompt_id, messages) in enumerate(_drawn(workload, seed, count)):
        front = prefix
        if prompt_id in seen or workload.cache != "primed":
            front += f"[request {_digest(cell_salt, index)[:16]}]\n\n"
        seen.add(prompt_id)
        prompts.append(_prompt(prompt_id, front, messages))
    return prompts


def priming_prompts(
    workload: Workload, prompts: list[Prompt], *, seed: int, cell_salt: str
) -> list[Prompt]:
    """What is sent once, before all else, to bring the prefix cache into the state asked for.

    `primed`: every distinct prompt, in order. `shared-prefix`: the prefix alone. `cold`: nothing.
    """
    if workload.cache == "primed":
        return list({prompt.sha256: prompt for prompt in prompts}.values())
    prefix = _shared_prefix(workload, seed, cell_salt)
    return [_prompt("shared-prefix", prefix.rstrip(), (("user", ""),))] if prefix else []


def retokenize(tokenizer_path: str, text: str) -> int:
    """How many tokens a text is, by a tokenizer.json, without special tokens.

    Raises:
        InputError: The tokenizer cannot be read.
    """
    return len(_tokenizer(tokenizer_path).encode(text, add_special_tokens=False).ids)


def _prompt(prompt_id: str, front: str, messages: Messages) -> Prompt:
    (role, content), *others = messages
    messages = ((role, front + content), *others)
    text = messages[0][1]
    if others:
        text = "\n\n".join(f"{role}: {content}" for role, content in messages) + "\n\nassistant:"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Prompt(prompt_id=prompt_id, messages=messages, text=text, sha256=digest)


def _digest(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def _draws(*parts: object) -> random.Random:
    return random.Random(_digest(*parts))  # noqa: S311  # reproducible text, not a secret


@functools.lru_cache(maxsize=8)
def _shared_prefix(workload: Workload, seed: int, cell_salt: str) -> str:
    if workload.cache != "shared-prefix" or not _prefix_tok(workload):
        return ""
    draws_of = functools.partial(_draws, "prefix", seed, workload.name, cell_salt)
    return _sized(workload, document, draws_of, _prefix_tok(workload)) + "\n\n"


def _prefix_tok(workload: Workload) -> int:
    if workload.cache != "shared-prefix" or workload.input_tok is None:
        return 0
    return round(workload.input_tok * workload.shared_prefix_share)


def _own_tok(workload: Workload) -> int | None:
    """The length that is left to a prompt beside its salt and the shared prefix."""
    if workload.input_tok is None:
        return None
    salt_tok = 0 if workload.cache == "primed" else SALT_TOK
    return max(workload.input_tok - _prefix_tok(workload) - salt_tok, 0)


# -------------------------------------------------------------------------------------- datasets


def _drawn(workload: Workload, seed: int, count: int) -> list[tuple[str, Messages]]:
    """(prompt id, messages) of each request before salts, lengths fitted."""
    if workload.dataset == "generated":
        return [_generated(workload, seed, index) for index in range(count)]
    path = Path(workload.dataset_path or "")
    dataset = read_jsonl(path) if workload.dataset == "jsonl" else read_sharegpt(path)
    order: list[int] = []
    while len(order) < count:  # each lap through the file has an order of its own
        lap = list(range(len(dataset)))
        _draws("order", seed, workload.name, len(order) // len(dataset)).shuffle(lap)
        order += lap
    return [
        (f"{workload.dataset}-{place}", _fitted(workload, seed, place, dataset[place]))
        for place in order[:count]
    ]


@functools.lru_cache(maxsize=1024)  # the same prompts serve every load and arm of a run
def _generated(workload: Workload, seed: int, index: int) -> tuple[str, Messages]:
    categories = list(workload.categories or CATEGORIES)
    lap, place = divmod(index, len(categories))
    _draws("categories", seed, workload.name, lap).shuffle(categories)
    category = categories[place]
    task = task_for(category, _draws("task", seed, workload.name, index))
    draws_of = functools.partial(_draws, "document", seed, workload.name, index)
    own_tok = _own_tok(workload)
    if own_tok is None:
        attached = task.write(draws_of(), task.natural_bytes) if task.natural_bytes else ""
    else:
        left_tok = own_tok - _count_tok(workload, f"{task.before}\n\n\n\n{task.after}")
        attached = _sized(workload, task.write, draws_of, left_tok)
    content = "\n\n".join(part for part in (task.before, attached, task.after) if part)
    return f"generated-{index}-{category}", (("user", content),)


def _fitted(workload: Workload, seed: int, place: int, messages: Messages) -> Messages:
    """File prompts at the length that was asked for: filled up in front, or cut at the end."""
    own_tok = _own_tok(workload)
    if own_tok is None:
        return messages
    have_tok = sum(_count_tok(workload, content) for _, content in messages)
    if have_tok > own_tok:
        *others, (role, content) = messages
        keep_tok = max(_count_tok(workload, content) - (have_tok - own_tok), 1)
        return (*others, (role, _cut(workload, content, keep_tok)))
    (role, content), *others = messages
    draws_of = functools.partial(_draws, "filler", seed, workload.name, place)
    filler = _sized(workload, document, draws_of, own_tok - have_tok)
    return ((role, f"{filler}\n\n{content}" if filler else content), *others)


# --------------------------------------------------------------------------------------- lengths


def _sized(
    workload: Workload,
    write: Callable[[random.Random, int], str],
    draws_of: Callable[[], random.Random],
    wanted_tok: int,
) -> str:
    """Write a text of `wanted_tok` tokens; empty when there is no room for any."""
    if wanted_tok <= 0:
        return ""
    size_bytes = wanted_tok * BYTES_A_TOK
    text = write(draws_of(), size_bytes)
    if workload.tokenizer_path is not None:
        have_tok = _count_tok(workload, text)
        if have_tok < wanted_tok:
            text = write(draws_of(), round(size_bytes * wanted_tok / have_tok * 1.1))
    return _cut(workload, text, wanted_tok)


def _count_tok(workload: Workload, text: str) -> int:
    if workload.tokenizer_path is None:
        return -(-len(text.encode()) // BYTES_A_TOK)
    return retokenize(workload.tokenizer_path, text)


def _cut(workload: Workload, text: str, keep_tok: int) -> str:
    """The first `keep_tok` tokens of a text; without a tokenizer, that many times four bytes."""
    if workload.tokenizer_path is None:
        return text.encode()[: keep_tok * BYTES_A_TOK].decode("utf-8", "ignore").rstrip()
    encoding = _tokenizer(workload.tokenizer_path).encode(text, add_special_tokens=False)
    if len(encoding.ids) <= keep_tok:
        return text
    return text[: encoding.offsets[keep_tok - 1][1]]


@functools.lru_cache(maxsize=4)
def _tokenizer(tokenizer_path: str) -> Tokenizer:
    from tokenizers import Tokenizer  # noqa: PLC0415  # not needed by most runs

    try:
        return Tokenizer.from_file(tokenizer_path)
    except Exception as error:  # the library raises bare Exception
        raise InputError(
            f"asked for the tokenizer {tokenizer_path}, which cannot be read: {error}",
            hint="give the path of a model's tokenizer.json",
        ) from error
