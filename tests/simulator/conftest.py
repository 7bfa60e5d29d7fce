"""Simulated servers as processes, at ten times the world's speed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bench import clock

SPEED = 10
COMMON = [
    "--model-path",
    "models/tiny-llama",
    "--served-model-name",
    "tiny",
    "--tp-size",
    "8",
    "--context-length",
    "2048",
    "--max-total-tokens",
    "16384",
    "--max-running-requests",
    "16",
    "--enable-metrics",
    "--sleep-on-idle",
]
EAGLE3 = [
    "--speculative-algorithm",
    "EAGLE3",
    "--speculative-draft-model-path",
    "models/tiny-eagle3",
    "--speculative-num-steps",
    "3",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "4",
]

OPENED: list[HTTPConnection] = []


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)

    def events(self) -> list:
        """The payloads of a stream, [DONE] left out; the framing is checked on the way."""
        assert self.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, done, end = self.body.decode().split("\n\n")
        assert (done, end) == ("data: [DONE]", "")
        assert all(re.fullmatch(r"data: \{.*\}", event) for event in events)
        return [json.loads(event.removeprefix("data: ")) for event in events]


@dataclass(frozen=True)
class Simulated:
    """A running simulator."""

    port: int
    process: subprocess.Popen
    log_path: Path
    truth_path: Path

    def connect(self) -> HTTPConnection:
        """A connection that is closed when the test is over."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        OPENED.append(connection)
        return connection

    def ask(self, path: str, body: dict | None = None, method: str | None = None) -> Answer:
        connection = self.connect()
        data = None if body is None else json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, data)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, headers, response.read())
        connection.close()
        return answer

    def generate(self, text: str, tokens: int, **extra) -> Answer:
        sampling = {"temperature": 0, "max_new_tokens": tokens, **extra.pop("sampling", {})}
        return self.ask("/generate", {"text": text, "sampling_params": sampling, **extra})

    def wait_idle(self) -> None:
        """Until no request waits or runs; also empties the cache."""
        assert self.ask("/flush_cache?timeout=300").status == 200

    def log(self) -> list[str]:
        return self.log_path.read_text().splitlines()

    def truth(self, kind: str) -> list[dict]:
        if self.process.poll() is None:
            self.ask("/health")  # the lines of a step are written after its tokens are sent
        lines = map(json.loads, self.truth_path.read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]

    def metrics(self) -> dict[tuple[str, tuple], float]:
        from prometheus_client.parser import text_string_to_metric_families

        text = self.ask("/metrics").body.decode()
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@contextmanager
def simulated(folder: Path, *arguments: str) -> Iterator[Simulated]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log_path, truth_path = folder / "server.log", folder / "truth.jsonl"
    command = [sys.executable, "-m", "bench.simulator", *COMMON, *arguments]
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--sim-truth", str(truth_path)],
            stderr=log,
            env={**os.environ, clock.SPEED_VARIABLE: str(SPEED)},
        )
    try:
        started_ns = clock.monotonic_ns()
        while "ready to roll" not in log_path.read_text():
            assert process.poll() is None, log_path.read_text()
            assert clock.monotonic_ns() - started_ns < 20e9, log_path.read_text()
            try:
                process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
        yield Simulated(port, process, log_path, truth_path)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(autouse=True)
def close_connections() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture(scope="session")
def plain(tmp_path_factory) -> Iterator[Simulated]:
    with simulated(tmp_path_factory.mktemp("plain")) as server:
        yield server


@pytest.fixture(scope="session")
def eagle3(tmp_path_factory) -> Iterator[Simulated]:
    with simulated(tmp_path_factory.mktemp("eagle3"), *EAGLE3) as server:
        yield server


@pytest.fixture(params=["baseline", "eagle3-3-1-4"])
def arm(request, plain, eagle3) -> tuple[str, Simulated]:
    """Name of a recording, and a simulator launched the same way."""
    return request.param, plain if request.param == "baseline" else eagle3


@pytest.fixture
def launch(tmp_path):
    """Launch one for a single test: `with launch(*arguments) as server`."""
    return lambda *arguments: simulated(tmp_path, *arguments)
