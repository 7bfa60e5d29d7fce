"""SGLang itself asked what it makes of a server's arguments, before it is launched."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.errors import ServerError
from bench.http import redact
from bench.metrics.findings import make_finding
from bench.model import FindingKind, Severity
from bench.runner.events import LaunchProgress, Noted
from bench.server.command import secrets_of, server_environment
from bench.sglang.own_resolution import Judgement, ask_sglang, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.model import Finding, ServerConfig
    from bench.runner.events import Event


class Asking:
    """SGLang's answers: each configuration is asked for once."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._judged: dict[str, Judgement] = {}

    async def require_accepted(self, server: ServerConfig, server_key: str) -> None:
        """Raise if SGLang would not start with the server's arguments; does nothing if unasked.

        Raises:
            ServerError: It would not; the message has its own words.
        """
        if server.launcher not in {"local", "template"} or not server.resolve:
            return
        if server_key not in self._judged:
            self._judged[server_key] = await self._ask(server)
        judged = self._judged[server_key]
        if judged.refusal is not None:
            raise ServerError(judged.refusal, hint=judged.fix)

    def findings(self, server_key: str, cell_id: str) -> tuple[Finding, ...]:
        """Where our rules and SGLang differ about a server, as a note to one of its cells."""
        judged = self._judged.get(server_key)
        if judged is None or not judged.disagreements:
            return ()
        told = "; ".join(judged.disagreements)
        kind = FindingKind.ARGUMENTS_DISAGREE
        return (make_finding(kind, Severity.NOTE, f"{told}.", cell_id=cell_id),)

    async def _ask(self, server: ServerConfig) -> Judgement:
        self._on_event(LaunchProgress(text="asking SGLang what it makes of the arguments"))
        environment = server_environment(server, os.environ)
        own = await ask_sglang(
            server.resolve,
            server.arguments,
            environment=environment,
            gpus=server.gpus,
            working_dir=server.working_dir,
        )
        secrets = secrets_of(server, environment)
        if own.not_asked is not None:
            text = redact(own.not_asked, secrets)
            self._on_event(Noted(text=f"SGLang could not be asked about the arguments: {text}"))
        if own.refusal is not None:
            own = replace(own, refusal=redact(own.refusal, secrets))
        return judge(server.arguments, own, environment=dict(server.environment))
