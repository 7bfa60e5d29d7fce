"""A server that is ready: kept clean between cells, watched, stopped for good."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import clock
from bench.errors import ServerError
from bench.http import open_session
from bench.model import EffectiveConfig, Finding, FindingKind, ServerConfig, Severity, Timeouts
from bench.server.command import api_keys
from bench.server.ending import end_process, prove_gone
from bench.sglang import control
from bench.sglang.server_info import SPECULATIVE_PREFIX, differences
from bench.sglang.start_lines import NOT_TOLD, StartTimes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import aiohttp

    from bench.server.orphans import ServerNote
    from bench.server.process import ServerProcess

_RETRY_NS = 100_000_000
_FLUSH_WAIT_S = 5.0
_DISCONNECT_S = 5.0
"""SGLang notices a client that went away after 2 s: what an attached server is given for it."""


Remark = tuple[FindingKind, Severity, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What is known of a ready server.

    Attributes:
        config: What was asked.
        base_url: Where it answers.
        argv: Its command line, secrets redacted; empty for an attached server.
        effective: Its settings, read back.
        model_name: What the OpenAI APIs want as `model`.
        gpu_indices: NVML indices of the GPUs of this machine that it uses; empty for simulated,
            attached and CPU servers.
        gpu_memory_before: Bytes that were held on each of these before it started.
        gpu_watch: Prints the GPUs of a server elsewhere; empty: nothing does.
        remarks: What its start has to be told of: kind, severity and message.
        times: What its start was spent on, by its log.
        note: How it is found and ended should the process that keeps it be killed.
        log_path: Of its log; None: attached.
        started_ns: When its process was started (attached: when it was first asked).
        ready_ns: When its first generation had come back.
    """

    config: ServerConfig
    base_url: str
    argv: tuple[str, ...]
    effective: EffectiveConfig
    model_name: str
    gpu_indices: tuple[int, ...]
    started_ns: int
    ready_ns: int
    gpu_memory_before: Mapping[int, float | None] = field(default_factory=dict)
    gpu_watch: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    times: StartTimes = NOT_TOLD
    note: ServerNote | None = None
    log_path: Path | None = None


class RunningServer:
    """A server that has generated tokens; made by `start_server`.

    Attributes:
        api_key: Of its requests; None: it has none.
        admin_api_key: Of calls that abort and flush, where they need one of their own.
    """

    def __init__(
        self, facts: ServerFacts, *, process: ServerProcess | None, timeouts: Timeouts
    ) -> None:
        self._facts = facts
        self._process = process
        self._timeouts = timeouts
        self._remarks: list[Remark] = []
        self._foreign_ct = 0
        self.api_key, self.admin_api_key = api_keys(facts.config)

    @property
    def base_url(self) -> str:
        """Where it answers."""
        return self._facts.base_url

    @property
    def worker_urls(self) -> tuple[str, ...]:
        """Of the workers behind it; empty: it is one server."""
        return self._facts.config.worker_urls

    @property
    def argv(self) -> tuple[str, ...]:
        """Its command line, secrets redacted; empty for an attached server."""
        return self._facts.argv

    @property
    def pid(self) -> int | None:
        """Of its main process; None for an attached server."""
        return self._process.pid if self._process else None

    @property
    def effective(self) -> EffectiveConfig:
        """Its settings, read back after the start."""
        return self._facts.effective

    @property
    def model_name(self) -> str:
        """What the OpenAI APIs want as `model`."""
        return self._facts.model_name

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """NVML indices of the GPUs of this machine that it uses."""
        return self._facts.gpu_indices

    @property
    def gpu_watch(self) -> tuple[str, ...]:
        """The command that prints the GPUs of a server elsewhere; empty: nothing does."""
        return self._facts.gpu_watch

    @property
    def started_ns(self) -> int:
        """When its process was started; of an attached server, when it was first asked."""
        return self._facts.started_ns

    @property
    def ready_ns(self) -> int:
        """When its first generation had come back."""
        return self._facts.ready_ns

    @property
    def times(self) -> StartTimes:
        """What its start was spent on, by its log; nothing is known of an attached server's."""
        return self._facts.times

    def exited(self) -> int | None:
        """Its exit code once it has ended (negative: a signal); None while it runs or attached."""
        return self._process.exited() if self._process else None

    @property
    def gpus_unseen(self) -> str | None:
        """Why the readings of its GPUs are missing, where none are asked for."""
        config = self._facts.config
        if self.gpu_indices or self.gpu_watch or config.gpus == 0:
            return None
        if config.launcher == "attached":
            return "those of a server that bench did not start are not read"
        if config.template is not None and config.template.gpus_seen == "remote":
            return "they are another machine's, and the launcher has no gpu_watch command"
        return "NVML shows no GPU here"

    def findings(self, cell_id: str) -> tuple[Finding, ...]:
        """What its start and its settings make of a cell.

        Settings that are not those its arguments ask for make the cell SUSPECT where speculation
        or the running limit is concerned, which decide what was measured; other settings make a
        note (those that differ between arms are listed beside the speedup anyway).
        """
        from bench.metrics.findings import make_finding  # noqa: PLC0415  # numpy and scipy

        remarks = tuple(
            make_finding(kind, severity, message, cell_id=cell_id)
            for kind, severity, message in dict.fromkeys((*self._facts.remarks, *self._remarks))
        )
        if self._foreign_ct:
            message = f"before the cell the server had {self._foreign_ct} requests of others."
            foreign = make_finding(
                FindingKind.FOREIGN_TRAFFIC, Severity.SUSPECT, message, cell_id=cell_id
            )
            remarks = (*remarks, foreign)
        found = differences(self._facts.config.arguments, self.effective)
        if not found:
            return remarks
        decisive = any(
            d.name.startswith(SPECULATIVE_PREFIX) or d.name == "max_running_requests"
            for d in found
        )
        told = ", ".join(f"{d.name} {d.effective} (asked {d.asked})" for d in found)
        return (
            *remarks,
            make_finding(
                FindingKind.CONFIG_NOT_AS_ASKED,
                Severity.SUSPECT if decisive else Severity.NOTE,
                f"the server runs with other settings than its arguments ask for: {told}.",
                cell_id=cell_id,
            ),
        )

    async def between_cells(self) -> None:
        """Leave nothing of earlier requests: abort all, drain, flush the cache until it says 200.

        Where it is a router with known workers, each of these is asked, not the router.

        On an attached server others may be at work: unless it is exclusive nothing is aborted or
        flushed there. It is given the time it needs to notice that our cancelled requests are
        gone. Where it refuses to be flushed that is remarked, and no error.

        Raises:
            ServerError: It does not drain within `timeouts.drain_s`, or does not answer.
        """
        async with AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(self._session(url))
                for url in self.worker_urls or (self.base_url,)
            ]
            if self._process is not None:
                await self._drain(sessions)
                return
            if self._facts.config.exclusive:
                try:
                    await self._drain(sessions)
                except control.CallRefusedError as error:
                    if error.status not in control.DENIED:
                        raise
                    self._remarks.append(refused("abort and flush between cells", error.status))
                else:
                    return
            self._foreign_ct = await _until_idle(sessions)

    async def _drain(self, sessions: Sequence[aiohttp.ClientSession]) -> None:
        give_up_ns = clock.now_ns() + int(self._timeouts.drain_s * 1e9)
        for session in sessions:
            await control.abort_all(session, admin_api_key=self.admin_api_key)
        for session in sessions:
            await self._flush(session, give_up_ns)

    async def _flush(self, session: aiohttp.ClientSession, give_up_ns: int) -> None:
        while True:
            left_s = (give_up_ns - clock.now_ns()) / 1e9
            flushed = await control.flush_cache(
                session,
                timeout_s=max(0.0, min(_FLUSH_WAIT_S, left_s)),
                admin_api_key=self.admin_api_key,
            )
            if flushed:
                return
            if clock.now_ns() > give_up_ns:
                raise ServerError(
                    "asked the server to drop its cache between two cells; it still had requests "
                    f"{self._timeouts.drain_s:g} s after all were aborted.",
                    hint="see its log; a longer timeouts.drain_s may help.",
                )
            await clock.sleep_ns(_RETRY_NS)

    async def stop(self) -> int | None:
        """Stop it and prove that it is gone; an attached server is left alone.

        Requests still in it are aborted first, since SGLang waits for them after TERM. Stopping a
        stopped server does nothing.

        Returns:
            Its exit code; None for an attached server.

        Raises:
            ServerError: Processes of it are left, its port still answers, or its GPU memory is
                not free again.
        """
        if self._process is None:
            return None
        urls = (self.base_url, *self.worker_urls)
        if self._process.exited() is None:
            for url in self.worker_urls or (self.base_url,):
                async with self._session(url) as session:
                    with contextlib.suppress(ServerError):
                        await control.abort_all(session, admin_api_key=self.admin_api_key)
        facts = self._facts
        exit_code = await end_process(self._process, facts.note, facts.log_path)
        await prove_gone(self._process, urls, facts.gpu_memory_before, facts.note)
        return exit_code

    def _session(self, url: str) -> aiohttp.ClientSession:
        return open_session(url, api_key=self.api_key, connect_s=self._timeouts.connect_s)


def refused(what: str, status: int) -> Remark:
    """That an attached server did not let bench do something."""
    message = f"the server refused to {what} (status {status})."
    return FindingKind.ACCESS_REFUSED, Severity.NOTE, message


async def _until_idle(sessions: Sequence[aiohttp.ClientSession]) -> int:
    """Until servers say that they run nothing, for as long as a disconnect takes to be seen.

    Returns:
        How many requests they have all the same: these are not ours.
    """
    give_up_ns = clock.now_ns() + int(_DISCONNECT_S * 1e9)
    while True:
        running = sum([await control.running_requests(session) or 0 for session in sessions])
        if not running or clock.now_ns() > give_up_ns:
            return running
        await clock.sleep_ns(_RETRY_NS)
