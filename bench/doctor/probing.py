"""A short greedy probe of a running server: nothing is flushed, aborted or set."""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from bench.doctor.acceptance import Measured, Reply, expected_accept_len_tok, measured
from bench.doctor.patterns import Named, failing, name_patterns
from bench.draft import DraftFinding, Level, examine, is_folder, launch_of
from bench.errors import InputError, ServerError
from bench.http import open_session
from bench.load.prompts import build_prompts
from bench.model import Api, Sampling, Workload
from bench.sglang import control
from bench.sglang.server_info import Difference, differences, effective_config
from bench.sglang.wire import PATHS, WireError, decode_chunk, request_body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import aiohttp

    from bench.load.prompts import Prompt
    from bench.model import EffectiveConfig

CONTEXTS_TOK: Final = (128, 1024, 8192, 32768)
"""Lengths of prompts tried, as far as the server's context goes."""
REQUESTS: Final = 12
"""Of each group."""
OUTPUT_TOK: Final = 192
AT_ONCE: Final = 4
"""Requests in flight: few enough to disturb nobody much."""
REQUEST_S: Final = 600.0

TRAINING: Final = "training"
SERVING: Final = "serving"
_SEED: Final = 9
_CATEGORIES: Final = ("chat", "code")
_ROOM_TOK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to probe.

    Attributes:
        url: The server's base URL.
        api_key: Of its requests; None: it needs none.
        train_accuracy: Share of right tokens at the draft's step 1, 2, …, from its training.
        training: A file of prompts like those of its training (JSON Lines).
        serving: A file of prompts as they are served.
    """

    url: str
    api_key: str | None = None
    train_accuracy: tuple[float, ...] = ()
    training: Path | None = None
    serving: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a server runs, and how its drafts are accepted.

    Attributes:
        effective: Its resolved settings.
        differences: Where they are not what its command line asked for.
        files: What the draft's files show; None: they are not in a folder here.
        groups: Acceptance by group of prompts.
        expected_tok: The accept length that training promises; None: nothing was said of it.
        patterns: What the acceptance looks like.
        failed_ct: Requests that failed.
    """

    effective: EffectiveConfig
    differences: tuple[Difference, ...]
    files: tuple[DraftFinding, ...] | None
    groups: tuple[Measured, ...]
    expected_tok: float | None
    patterns: tuple[Named, ...]
    failed_ct: int

    @property
    def is_suspect(self) -> bool:
        """Whether a pattern, or the draft's files, point to something to be mended."""
        wrong = [finding for finding in self.files or () if finding.level is not Level.NOTE]
        return bool(wrong) or any(named.is_suspect for named in self.patterns)


async def probe(asked: Asked) -> Probe:
    """Read what a server runs, send it short greedy requests, and name the pattern.

    Raises:
        InputError: It does not speculate, or a file of prompts cannot be read.
        ServerError: It does not answer, or tells no counters.
    """
    async with open_session(asked.url, api_key=asked.api_key) as session:
        info = await control.server_info(session)
        effective = effective_config(info)
        speculative = dict(effective.speculative)
        if not speculative.get("algorithm"):
            raise InputError(
                f"{asked.url} does not speculate: its speculative_algorithm is "
                f"{speculative.get('algorithm')!r}.",
                hint="Start it with --speculative-algorithm and a draft.",
            )
        groups = prompt_groups(asked, context_tok=_context_tok(effective, info))
        replies, failures = await _ask_all(session, groups, model=_model_name(info))
    files = _files(_launch_command(info), effective)
    if not replies and not (failures and files):
        raise _silent(asked.url, failures)
    steps = speculative.get("num_steps")
    return judge(
        asked,
        replies,
        effective=effective,
        num_steps=steps if isinstance(steps, int) else None,
        launch=_launch_command(info),
        files=files,
        failures=failures,
    )


def _silent(url: str, failures: Sequence[str]) -> ServerError:
    if failures:
        return ServerError(
            f"{url}: all of {len(failures)} requests failed; the first: {failures[0]}",
            hint="Its log tells why. bench doctor draft examines the draft's files.",
        )
    return ServerError(
        f"{url} told no counters of speculation.",
        hint="SGLang tells them with each answer from 0.5.6 on; is every answer one token?",
    )


def judge(
    asked: Asked,
    replies: Sequence[Reply],
    *,
    effective: EffectiveConfig,
    num_steps: int | None,
    launch: Sequence[str],
    files: tuple[DraftFinding, ...] | None,
    failures: Sequence[str],
) -> Probe:
    """Name the pattern of the replies."""
    names = dict.fromkeys(reply.group for reply in replies)
    pooled = {
        name: measured(name, [r for r in replies if r.group == name], num_steps=num_steps)
        for name in names
    }
    groups = tuple(group for group in pooled.values() if group is not None)
    by_context = [group for group in groups if group.group not in {TRAINING, SERVING}]
    expected = None
    if asked.train_accuracy:
        depth = num_steps or len(asked.train_accuracy)
        expected = expected_accept_len_tok(asked.train_accuracy, depth)
    patterns: tuple[Named, ...] = (failing(failures),) if not groups else ()
    if groups:
        patterns = name_patterns(
            pooled.get(TRAINING) or (by_context or groups)[0],
            by_context,
            training=pooled.get(TRAINING),
            serving=pooled.get(SERVING),
            expected_tok=expected,
            expected_first=asked.train_accuracy[0] if asked.train_accuracy else None,
        )
    return Probe(
        effective=effective,
        differences=differences(launch, effective),
        files=files,
        groups=groups,
        expected_tok=expected,
        patterns=patterns,
        failed_ct=len(failures),
    )


def prompt_groups(asked: Asked, *, context_tok: int | None) -> Mapping[str, Sequence[Prompt]]:
    """The prompts to send, by group.

    Raises:
        InputError: A file of prompts cannot be read.
    """
    found = {}
    for length_tok in CONTEXTS_TOK:
        room_tok = length_tok + OUTPUT_TOK + _ROOM_TOK
        if length_tok > CONTEXTS_TOK[0] and (context_tok is None or room_tok > context_tok):
            break
        workload = _workload(f"{length_tok} tokens", input_tok=length_tok)
        found[workload.name] = build_prompts(
            workload, seed=_SEED, count=REQUESTS, cell_salt=workload.name
        )
    for name, path in ((TRAINING, asked.training), (SERVING, asked.serving)):
        if path is not None:
            workload = replace(_workload(name), dataset="jsonl", dataset_path=str(path))
            found[name] = build_prompts(workload, seed=_SEED, count=REQUESTS, cell_salt=name)
    return found


def _workload(name: str, *, input_tok: int | None = None) -> Workload:
    return Workload(
        name=name,
        api=Api.CHAT,
        dataset="generated",
        categories=_CATEGORIES,
        input_tok=input_tok,
        max_output_tok=OUTPUT_TOK,
        sampling=Sampling(temperature=0.0),
        cache="primed",  # a prompt as it is: a salt in front would make it another
    )


async def _ask_all(
    session: aiohttp.ClientSession, groups: Mapping[str, Sequence[Prompt]], *, model: str
) -> tuple[list[Reply], list[str]]:
    """The replies that have counters, and what the failed requests said."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(group: str, prompt: Prompt) -> Reply | None:
        async with places:
            return await _ask(session, group, prompt, model=model)

    asked = [one(group, prompt) for group, prompts in groups.items() for prompt in prompts]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    replies, failures = [], []
    for outcome in outcomes:
        if isinstance(outcome, ServerError | WireError):
            failures.append(str(outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
        elif outcome is not None:
            replies.append(outcome)
    return replies, failures


async def _ask(
    session: aiohttp.ClientSession, group: str, prompt: Prompt, *, model: str
) -> Reply | None:
    body = json.loads(
        request_body(
            _workload(group),
            model=model,
            messages=prompt.messages,
            text=prompt.text,
            max_output_tok=OUTPUT_TOK,
            seed=_SEED,
        )
    )
    body.pop("stream_options")
    body["stream"] = False
    answer = await control.complete(session, PATHS[Api.CHAT], body, timeout_s=REQUEST_S)
    chunk = decode_chunk(answer)
    spec = chunk.spec
    if chunk.error is not None:
        raise ServerError(chunk.error)
    if spec is None or spec.num_correct_drafts is None or spec.correct_drafts_histogram is None:
        return None
    return Reply(
        group=group,
        prompt_tok=chunk.prompt_tok,
        output_tok=chunk.output_tok,
        verify_ct=spec.verify_ct,
        num_correct_drafts=spec.num_correct_drafts,
        histogram=spec.correct_drafts_histogram,
    )


# --------------------------------------------------------------------------- what the server tells


def _launch_command(info: Mapping[str, object]) -> list[str]:
    text = info.get("launch_command")
    try:
        return shlex.split(text) if isinstance(text, str) else []
    except ValueError:
        return []


def _model_name(info: Mapping[str, object]) -> str:
    name = info.get("served_model_name") or info.get("model_path")
    return name if isinstance(name, str) else "default"


def _context_tok(effective: EffectiveConfig, info: Mapping[str, object]) -> int | None:
    other = dict(effective.other)
    lengths = [_whole(other.get("context_length")), effective.max_total_num_tokens]
    longest = info.get("max_req_input_len")
    lengths.append(longest if isinstance(longest, int) else None)
    known = [length for length in lengths if length is not None]
    return min(known) if known else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _files(launch: Sequence[str], effective: EffectiveConfig) -> tuple[DraftFinding, ...] | None:
    """What the draft's files show, where they are in a folder of this machine."""
    path = dict(effective.speculative).get("draft_model_path")
    if not isinstance(path, str) or not is_folder(path):
        return None
    try:
        return examine(path, launch=launch_of(launch, environment={})).findings
    except InputError:
        return None


def as_json(found: Probe) -> dict[str, object]:
    """A probe for programs."""
    return {
        "status": "suspect" if found.is_suspect else "clean",
        "simulated": found.effective.simulated,
        "speculative": dict(found.effective.speculative),
        "differences": [asdict(difference) for difference in found.differences],
        "files": None if found.files is None else [asdict(finding) for finding in found.files],
        "groups": [asdict(group) for group in found.groups],
        "expected_accept_len_tok": found.expected_tok,
        "patterns": [asdict(named) for named in found.patterns],
        "failed_ct": found.failed_ct,
    }
