"""Records how a real SGLang behaves when it is pushed: one launch a scene, some requests, its log.

    python tests/lab/record_scenes.py [SCENE …]

Where `record.py` keeps what a server answers to each kind of request, this keeps what happens
under a full queue or KV cache, when requests are aborted, while it adapts, with several
data-parallel ranks, and what it says when it refuses to start. In scenes/NAME: answers.json
(status and body of each exchange as they ended, long streams without their middle), metrics.prom
(without buckets), server.log (its dated lines, without that of all arguments), and where it
matters server_info.json. Paths of this machine are replaced by names.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from install import venv_path, venv_python
from record import COMMON, EAGLE3, HERE, STOP_S, redacted, wait_until_healthy

SCENES_FOLDER = HERE / "scenes"
REFUSAL_S = 90.0
LONG = "def join(path, *parts):\n"
ADAPTIVE = {
    "1": {
        "candidate_steps": [1, 3],
        "update_interval": 4,
        "warmup_batches": 3,
        "up_hysteresis": -1,
        "down_hysteresis": 1,
    },
    "3": {"candidate_steps": [0, 1], "update_interval": 5, "warmup_batches": 5},
}


@dataclass
class Server:
    """A running server and what was asked of it so far."""

    port: int
    answers: dict[str, dict[str, object]] = field(default_factory=dict)

    def ask(self, name: str, path: str, body: dict[str, object] | None = None) -> None:
        """Ask, and keep the answer under a name."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        self.answers[name] = {"status": response.status, "body": redacted(text, self.port)}

    def ask_together(self, asked: dict[str, tuple[str, dict[str, object]]], gap_s: float) -> None:
        """Ask several at once, each in a thread, and wait for all."""
        threads = [
            threading.Thread(target=self.ask, args=(name, path, body))
            for name, (path, body) in asked.items()
        ]
        for thread in threads:
            thread.start()
            time.sleep(gap_s)
        for thread in threads:
            thread.join()


def generate(
    rid: str, tokens: int, *, stream: bool, prompt: str = LONG
) -> tuple[str, dict[str, object]]:
    """A request to SGLang's own API that runs to its length."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    return "/generate", {"rid": rid, "text": prompt, "sampling_params": sampling, "stream": stream}


def openai(path: str, tokens: int, *, stream: bool) -> tuple[str, dict[str, object]]:
    """The same to an OpenAI API."""
    body: dict[str, object] = {"model": "tiny", "temperature": 0, "max_tokens": tokens}
    body |= {"ignore_eos": True, "stream": stream}
    if path.endswith("chat/completions"):
        return path, body | {"messages": [{"role": "user", "content": LONG}]}
    return path, body | {"prompt": LONG}


def adaptive(server: Server) -> None:
    """One request alone, then four together, then one again."""
    server.ask("before.prom", "/metrics")
    server.ask("alone", *generate("alone", 120, stream=False))
    server.ask("alone.prom", "/metrics")
    together = {f"together-{at}": generate(f"t{at}", 60, stream=False) for at in range(4)}
    server.ask_together(together, 0)
    server.ask("again", *generate("again", 120, stream=True))


def queue_limit(server: Server) -> None:
    """One runs, one waits, the others find the queue full."""
    runs = threading.Thread(target=server.ask, args=("runs", *generate("runs", 600, stream=False)))
    runs.start()
    time.sleep(1.0)
    waits = threading.Thread(target=server.ask, args=("waits", *generate("waits", 4, stream=True)))
    waits.start()
    time.sleep(0.5)
    server.ask("full.json", *generate("full-1", 4, stream=False))
    server.ask("full.sse", *generate("full-2", 4, stream=True))
    for name, path in (("completions", "/v1/completions"), ("chat", "/v1/chat/completions")):
        server.ask(f"full-{name}.json", *openai(path, 4, stream=False))
        server.ask(f"full-{name}.sse", *openai(path, 4, stream=True))
    runs.join()
    waits.join()


def abort(server: Server) -> None:
    """By name, by the beginning of names, all; running ones, waiting ones, streams and others."""
    asked = {
        "run.sse": generate("run", 1500, stream=True),
        "run-2.json": generate("run-2", 1500, stream=False),
        "waits.sse": generate("waits", 1500, stream=True),
        "waits-2.json": generate("waits-2", 1500, stream=False),
        "chat.sse": openai("/v1/chat/completions", 1500, stream=True),
        "completions.json": openai("/v1/completions", 1500, stream=False),
    }

    def aborts() -> None:
        time.sleep(3.0)
        server.ask("metrics-1.prom", "/metrics")
        server.ask("abort ru", "/abort_request", {"rid": "ru"})
        time.sleep(0.5)
        server.ask("still running", "/v1/loads")
        server.ask("abort waits", "/abort_request", {"rid": "waits"})
        time.sleep(0.5)
        server.ask("abort run", "/abort_request", {"rid": "run"})
        time.sleep(1.5)
        server.ask("the rest", "/v1/loads")
        server.ask("abort nothing", "/abort_request", {"rid": ""})
        server.ask("abort all", "/abort_request", {"abort_all": True})

    thread = threading.Thread(target=aborts)
    thread.start()
    server.ask_together(asked, 0.3)
    thread.join()


def abort_waiting(server: Server) -> None:
    """The OpenAI APIs' requests, aborted while they wait."""
    asked = {"run.json": generate("run", 1500, stream=False)}
    for name, path in (("completions", "/v1/completions"), ("chat", "/v1/chat/completions")):
        asked[f"{name}.json"] = openai(path, 4, stream=False)
        asked[f"{name}.sse"] = openai(path, 4, stream=True)

    def aborts() -> None:
        time.sleep(3.0)
        server.ask("abort all", "/abort_request", {"abort_all": True})

    thread = threading.Thread(target=aborts)
    thread.start()
    server.ask_together(asked, 0.2)
    thread.join()


def stream_interval(server: Server) -> None:
    """The server's interval, a request's own, and requests whose end is not a multiple."""
    server.ask("server.sse", *generate("server", 42, stream=True))
    path, body = generate("own", 42, stream=True)
    body["sampling_params"]["stream_interval"] = 3  # type: ignore[index]
    server.ask("own.sse", path, body)
    server.ask("chat.sse", *openai("/v1/chat/completions", 21, stream=True))


def retraction(server: Server) -> None:
    """More answers than the KV cache holds: they might have ended early, and do not."""
    asked = {}
    for at in range(6):
        path, body = generate(f"r{at}", 400, stream=at == 5, prompt=f"{LONG}# {at}\n" * 6)
        body["sampling_params"]["ignore_eos"] = False  # type: ignore[index]
        body["sampling_params"]["min_new_tokens"] = 400  # type: ignore[index]
        asked[f"r{at}"] = (path, body)
    server.ask_together(asked, 0.05)


def plain(server: Server) -> None:
    """A request alone, streamed and not, and four together."""
    server.ask("stream.sse", *generate("stream", 90, stream=True))
    server.ask("whole.json", *generate("whole", 90, stream=False))
    server.ask_together({f"t{at}": generate(f"t{at}", 90, stream=False) for at in range(4)}, 0)


def ranks(server: Server) -> None:
    """Several ranks: who gets what, a rank asked for, one that is not there, pages of both."""
    plain(server)
    for rank in (1, 5):
        path, body = generate(f"rank-{rank}", 4, stream=False)
        server.ask(f"rank-{rank}.json", path, body | {"routed_dp_rank": rank})
    server.ask("server_info.json", "/server_info")
    server.ask("loads.json", "/v1/loads?include=all")
    server.ask("loads-1.json", "/v1/loads?dp_rank=1")
    server.ask("flush", "/flush_cache", {})


@dataclass(frozen=True)
class Scene:
    """A launch and what is asked of it."""

    arguments: str
    play: Callable[[Server], None] = plain
    environment: dict[str, str] = field(default_factory=dict)


SPEC = " ".join(EAGLE3)
SCENES = {
    "adaptive": Scene(
        f"{SPEC} --speculative-adaptive --speculative-adaptive-config ADAPTIVE"
        " --disable-cuda-graph --decode-log-interval 10",
        adaptive,
    ),
    "queue-limit": Scene("--max-running-requests 1 --max-queued-requests 1", queue_limit),
    "abort": Scene("--max-running-requests 2", abort),
    "stream-interval": Scene("--stream-interval 8", stream_interval),
    "stream-interval-eagle3": Scene(f"{SPEC} --stream-interval 8", stream_interval),
    "abort-waiting": Scene("--max-running-requests 1", abort_waiting),
    "stream-interval-incremental": Scene(
        f"{SPEC} --stream-interval 8 --incremental-streaming-output", stream_interval
    ),
    "retraction": Scene(
        "--max-total-tokens 1600 --schedule-conservativeness 0.3 --decode-log-interval 20",
        retraction,
    ),
    "retraction-eagle3": Scene(
        f"{SPEC} --max-total-tokens 1600 --schedule-conservativeness 0.3 --decode-log-interval 20",
        retraction,
    ),
    "ranks": Scene(
        "--dp-size 2 --decode-log-interval 20",
        ranks,
        environment={"SGLANG_CPU_OMP_THREADS_BIND": "0|1"},
    ),
    "simulated-acceptance": Scene(
        f"{SPEC} --decode-log-interval 10",
        environment={"SGLANG_SIMULATE_ACC_LEN": "2.6"},
    ),
    "ngram": Scene(
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8 --disable-cuda-graph"
        " --decode-log-interval 20"
    ),
}
REFUSED = {
    "no model": [],
    "unknown option": [*COMMON, "--max-runing-requests", "8"],
    "ambiguous option": [*COMMON, "--cuda-graph-max-bs", "8"],
    "no number": [*COMMON, "--max-running-requests", "many"],
    "no value": [*COMMON, "--max-running-requests"],
    "C1": [*COMMON, *EAGLE3[:4], "--speculative-num-steps", "3"],
    "C2": [*COMMON, *EAGLE3[:4], "--speculative-eagle-topk", "1"],
    "C29": [*COMMON, *EAGLE3, "--speculative-adaptive", "--speculative-num-steps", "2"],
    "C35": [*COMMON, "--page-size", "16", "--chunked-prefill-size", "1000"],
    "algorithm": [*COMMON, "--speculative-algorithm", "GUESS"],
    "no config": [
        *(*COMMON, *EAGLE3, "--speculative-adaptive"),
        *("--speculative-adaptive-config", "/nowhere/adaptive.json"),
    ],
}


OTHERS = ("refusals", "decisions")


def main() -> int:
    """Parse and record."""
    parser = argparse.ArgumentParser(description="Records scenes of a real SGLang.")
    parser.add_argument("scene", nargs="*", help=", ".join([*SCENES, *OTHERS]))
    asked = parser.parse_args().scene or [*SCENES, *OTHERS]
    if unknown := set(asked) - SCENES.keys() - set(OTHERS):
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    for name in asked:
        if name == "refusals":
            record_refusals()
        elif name == "decisions":
            record_decisions()
        else:
            record_scene(SCENES[name], SCENES_FOLDER / name)
        print(f"recorded {name}", flush=True)
    return 0


def record_scene(scene: Scene, folder: Path) -> None:
    """Start, play, stop, and keep what was said."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "adaptive.json"
        config.write_text(json.dumps(ADAPTIVE))
        arguments = scene.arguments.replace("ADAPTIVE", str(config))
        port = free_port()
        command = [sys.executable, str(HERE / "serve.py"), *COMMON, *shlex.split(arguments)]
        log_path = Path(scratch) / "log"
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [*command, "--port", str(port)],
                cwd=HERE,
                env={**os.environ, **scene.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                wait_until_healthy(process, f"http://127.0.0.1:{port}")
                server = Server(port)
                scene.play(server)
                server.ask("metrics.prom", "/metrics")
                process.send_signal(signal.SIGTERM)
                status = process.wait(STOP_S)
            finally:
                process.kill()
                process.wait()
                text = log_path.read_text(errors="replace").replace(scratch, "SCRATCH")
                (folder / "server.log").write_text(without_arguments(redacted(text, port)))
    keep(folder, server, status)


def keep(folder: Path, server: Server, status: int) -> None:
    """The answers; a page of metrics or of the server's facts in a file of its own."""
    answers = {}
    for name, answer in server.answers.items():
        body = str(answer["body"])
        if name.endswith(".prom"):
            lines = [line for line in body.splitlines() if not re.search("_bucket{|^# HELP", line)]
            (folder / name).write_text("\n".join(lines) + "\n")
        elif name == "server_info.json":
            (folder / name).write_text(body)
        else:
            answers[name] = answer | {"body": shortened(body)}
    answers["exit"] = {"status": status, "body": ""}
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


def record_refusals() -> None:
    """Exit status and last words of servers that do not start."""
    folder = SCENES_FOLDER / "refusals"
    folder.mkdir(parents=True, exist_ok=True)
    refusals = {}
    for name, words in REFUSED.items():
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "serve.py"), *words, "--port", str(free_port())],
                cwd=HERE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(REFUSAL_S)
            except subprocess.TimeoutExpired:  # it has started
                print(f"  {name}: not refused", flush=True)
                continue
            finally:  # a scheduler that fails leaves its detokenizer behind
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.seek(0)
            said = log.read()
        lines = [
            line
            for line in redacted(said, None).splitlines()
            if line and "server_args=" not in line
        ]
        kept = {"arguments": words, "exit": process.returncode, "end": lines[-12:]}
        refusals[name] = kept
        (folder / "answers.json").write_text(json.dumps(refusals, indent=1) + "\n")
        print(f"  {name}: {process.returncode}", flush=True)


def record_decisions() -> None:
    """What SGLang's own adaptive controller decides on made-up batches."""
    folder = SCENES_FOLDER / "decisions"
    folder.mkdir(parents=True, exist_ok=True)
    command = [venv_python(venv_path()), HERE / "decide.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE)
    (folder / "answers.json").write_text(done.stdout.splitlines()[-1] + "\n")


def shortened(body: str) -> str:
    """A long stream without its middle: its first four and last four events."""
    events = body.split("\n\n")
    if len(events) < 30:
        return body
    return "\n\n".join([*events[:4], *events[-6:]])


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def without_arguments(log: str) -> str:
    """The dated lines without the longest, which `server_info.json` repeats."""
    dated = [line for line in log.splitlines() if line.startswith("[20")]
    return "".join(f"{line}\n" for line in dated if "server_args=" not in line)


if __name__ == "__main__":
    sys.exit(main())
