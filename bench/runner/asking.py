"""SGLang itself asked what it makes of a server's arguments, before it is launched."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.errors import ServerError
from bench.http import redact
from bench.metrics.findings import make_finding
from bench.model import FindingKind, Severity
from bench.runner.events import LaunchProgress, Noted
from bench.server.command import secrets_of, server_environment
from bench.sglang.own_resolution import Judgement, OwnResolution, ask_sglang, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.model import Finding, Launch, ServerConfig
    from bench.runner.events import Event

AT_ONCE: Final = 2
"""How many are asked for at the same time: importing SGLang takes a core and a gigabyte."""


class Asking:
    """SGLang's answers: each configuration is asked for once."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._judged: dict[str, Judgement] = {}
        self._own: dict[str, OwnResolution] = {}

    async def ask_all(self, launches: Iterable[Launch]) -> None:
        """Ask for every server of these launches that was not asked for yet."""
        servers = {
            launch.server_key: launch.server
            for launch in launches
            if is_asked(launch.server) and launch.server_key not in self._judged
        }
        turns = asyncio.Semaphore(AT_ONCE)

        async def in_turn(server_key: str, server: ServerConfig) -> None:
            async with turns:
                await self._ask(server, server_key)

        await asyncio.gather(*(in_turn(key, server) for key, server in servers.items()))

    def judged(self, server_key: str) -> Judgement | None:
        """What a server's answer means; None: it was not asked."""
        return self._judged.get(server_key)

    def own(self, server_key: str) -> OwnResolution | None:
        """The answer itself; its resolved settings may hold secrets."""
        return self._own.get(server_key)

    async def require_accepted(self, server: ServerConfig, server_key: str) -> None:
        """Raise if SGLang would not start with the server's arguments; does nothing if unasked.

        Raises:
            ServerError: It would not; the message has its own words.
        """
        if not is_asked(server):
            return
        if server_key not in self._judged:
            await self._ask(server, server_key)
        judged = self._judged[server_key]
        if judged.refusal is not None:
            raise ServerError(judged.refusal, hint=judged.fix)

    def disagreements(self, server_key: str) -> tuple[str, ...]:
        """Where our rules and SGLang differ about a server."""
        judged = self._judged.get(server_key)
        return () if judged is None else judged.disagreements

    def findings(self, server_key: str, cell_id: str) -> tuple[Finding, ...]:
        """The same as a note to one of its cells."""
        told = "; ".join(self.disagreements(server_key))
        if not told:
            return ()
        kind = FindingKind.ARGUMENTS_DISAGREE
        return (make_finding(kind, Severity.NOTE, f"{told}.", cell_id=cell_id),)

    async def _ask(self, server: ServerConfig, server_key: str) -> None:
        self._on_event(LaunchProgress(text="asking SGLang what it makes of the arguments"))
        own = await _answer(server)
        if own.not_asked is not None:
            text = f"SGLang could not be asked about the arguments: {own.not_asked}"
            if not any(other.not_asked == own.not_asked for other in self._own.values()):
                self._on_event(Noted(text=text))
        self._own[server_key] = own
        self._judged[server_key] = judge(
            server.arguments, own, environment=dict(server.environment)
        )


def is_asked(server: ServerConfig) -> bool:
    """Whether there is somebody to ask about a server's arguments."""
    return server.launcher in {"local", "template"} and bool(server.resolve)


def taken_by_sglang(server: ServerConfig) -> str | None:
    """The version of the SGLang that takes a server's arguments; None: it refuses, or is unasked.

    Not to be called where an event loop runs.
    """
    if server.launcher != "local" or not is_asked(server):
        return None
    own = asyncio.run(_answer(server))
    return own.version if own.resolved is not None else None


async def _answer(server: ServerConfig) -> OwnResolution:
    """SGLang's answer; what it says in words is free of secrets."""
    environment = server_environment(server, os.environ)
    own = await ask_sglang(
        server.resolve,
        server.arguments,
        environment=environment,
        gpus=server.gpus,
        working_dir=server.working_dir,
    )
    secrets = secrets_of(server, environment)
    return replace(
        own,
        not_asked=own.not_asked and redact(own.not_asked, secrets),
        refusal=own.refusal and redact(own.refusal, secrets),
    )
