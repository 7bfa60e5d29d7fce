"""SGLang's own resolution of a command line: asked of the server's Python, before a launch.

It takes seconds, needs no weights and no GPU memory, and overrides the rules of
`bench.sglang.arguments`, which are those of one version.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.sglang.arguments import (
    SUPPORTED,
    AskedValue,
    EffectiveSpeculative,
    Known,
    Rejection,
    asked_text,
    by_rule,
    effective_speculative,
    parse_arguments,
    read_model_facts,
)
from bench.sglang.arguments.outcome import as_text
from bench.sglang.own_script import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_S: Final = 180.0
"""What importing SGLang from a slow disk may take, in seconds of the world."""

_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnResolution:
    """What SGLang made of a command line, or why it could not be asked.

    Attributes:
        version: SGLang's version; None when it could not be imported.
        resolved: Its server arguments; None when it refused them or could not be asked.
        refusal: Why it would not start with them, in its own words.
        not_asked: Why it could not be asked.
    """

    version: str | None = None
    resolved: Mapping[str, object] | None = None
    refusal: str | None = None
    not_asked: str | None = None


async def ask_sglang(
    python: Sequence[str],
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    gpus: int,
    working_dir: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> OwnResolution:
    """Have SGLang resolve a server's arguments.

    Args:
        python: The command of a Python in which SGLang can be imported.
        arguments: The server's arguments.
        environment: The server's environment.
        gpus: How many GPUs it uses; for 0 none is shown to it.
        working_dir: Where the server runs.
        timeout_s: After this it is given up, in seconds of the world.
    """
    script = Path(__file__).with_name("own_script.py").read_text(encoding="utf-8")
    environment = dict(environment)
    if gpus == 0:
        environment.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        process = await asyncio.create_subprocess_exec(
            *(*python, "-c", script, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=working_dir,
            start_new_session=True,
            limit=1 << 24,
        )
    except OSError as error:
        return OwnResolution(not_asked=f"{python[0]}: {error.strerror or error}")
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            await process.wait()
    except TimeoutError:
        return OwnResolution(not_asked=f"no answer within {timeout_s:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return _answer(out.decode(errors="replace"), err.decode(errors="replace"), process.returncode)


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """What a stream ends with: the answer comes last, whatever is said before."""
    assert stream is not None
    kept = b""
    while part := await stream.read(1 << 16):
        kept = (kept + part)[-_MOST_BYTES:]
    return kept


def _answer(out: str, err: str, exit_code: int | None) -> OwnResolution:
    lines = [line for line in out.splitlines() if line.startswith(MARKER)]
    try:
        said = json.loads(lines[-1].removeprefix(MARKER))
    except (IndexError, ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not {"stage", "resolved"} & said.keys():
        last = err.strip().splitlines()[-1:] or ["nothing"]
        return OwnResolution(not_asked=f"exit status {exit_code}, and at the end {last[0]}")
    if said.get("stage") == "import":
        return OwnResolution(not_asked=f"SGLang cannot be imported: {said.get('error')}")
    return OwnResolution(
        version=said.get("version"), resolved=said.get("resolved"), refusal=said.get("error")
    )


# ----------------------------------------------------------------------------- the rules beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """SGLang's own answer beside ours.

    Attributes:
        refusal: Why SGLang would not start, with our rule and what to do where we have one; None:
            it would.
        fix: What to do about that.
        disagreements: Where the two differ, a sentence each.
    """

    refusal: str | None = None
    fix: str | None = None
    disagreements: tuple[str, ...] = field(default=())


def judge(
    arguments: Sequence[str], own: OwnResolution, *, environment: Mapping[str, str]
) -> Judgement:
    """Hold SGLang's own answer against the rules; its own counts.

    Args:
        arguments: The server's arguments.
        own: What SGLang made of them.
        environment: The server's own variables.
    """
    if own.not_asked is not None:
        return Judgement()
    asked = parse_arguments(arguments)
    known = Known(
        version=own.version,
        target=read_model_facts(asked_text(asked, "model_path") or ""),
        draft=read_model_facts(asked_text(asked, "speculative_draft_model_path") or ""),
        environment=environment,
    )
    ours = effective_speculative(asked, known)
    if own.refusal is not None:
        return _refused(own, ours)
    of = f"SGLang {own.version}" + ("" if own.version == SUPPORTED else f", not {SUPPORTED},")
    late = _late(asked, own, known, ours) if known.is_supported else None
    if late is not None:
        return Judgement(
            refusal=f"{of} takes its arguments, and fails with them later: {late.reason} "
            f"{by_rule(late.rule)}",
            fix=late.fix,
        )
    if isinstance(ours, Rejection):
        return Judgement(
            disagreements=(
                f"the rules reject what {of} takes: {ours.reason} {by_rule(ours.rule)}",
            )
        )
    resolved = own.resolved or {}
    told = [
        f"the rules would refuse what {of} takes: {advice.text} {by_rule(advice.rule)}"
        for advice in ours.advice
        if advice.refused and not advice.late
    ]
    told += [
        f"{dest} is {_text(resolved[dest])} in {of} and {as_text(value)} by the rules"
        for dest, value in ours.values
        if dest in resolved and _text(resolved[dest]) != as_text(value)
    ]
    return Judgement(disagreements=tuple(told))


# What rules about a loaded server look at, and SGLang may have settled itself.
_LOOKED_AT: Final = (
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend"),
    *("speculative_draft_attention_backend", "speculative_draft_model_path"),
    *("context_length", "device", "page_size", "speculative_algorithm"),
    *("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
)


def _late(
    asked: Mapping[str, AskedValue],
    own: OwnResolution,
    known: Known,
    ours: EffectiveSpeculative | Rejection,
) -> Rejection | None:
    """What shows only once models are loaded, of the arguments as SGLang resolved them.

    Trees that are too large and drafts that do not fit are no concern of its resolution.
    """
    found = ours
    if not isinstance(ours, Rejection):
        resolved = own.resolved or {}
        settled = {
            dest: str(resolved[dest])
            for dest in _LOOKED_AT
            if isinstance(resolved.get(dest), str | int)
        }
        found = effective_speculative({**asked, **settled}, known)
    return found if isinstance(found, Rejection) and found.late else None


def _refused(own: OwnResolution, ours: EffectiveSpeculative | Rejection) -> Judgement:
    refusal = f"SGLang {own.version} refuses its arguments: {own.refusal}"
    if isinstance(ours, Rejection):
        return Judgement(refusal=f"{refusal}. {ours.reason} {by_rule(ours.rule)}", fix=ours.fix)
    advised = next((advice for advice in ours.advice if advice.refused), None)
    if advised is not None:
        return Judgement(
            refusal=f"{refusal}. {advised.text} {by_rule(advised.rule)}", fix=advised.fix
        )
    return Judgement(refusal=refusal, fix="Change the arm's arguments as that says.")


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(value)
    return value if isinstance(value, str) else json.dumps(value)
