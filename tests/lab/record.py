"""Records what a real SGLang answers, byte for byte, for tests that need no server.

    python tests/lab/record.py http://127.0.0.1:30000 FOLDER    a server that runs
    python tests/lab/record.py --launch [NAME …]                the lab's own launches, one by one

The second form starts each launch of LAUNCHES (all, or those named), records it in
recordings/NAME together with its log and exit status, and stops it. Paths of this machine are
replaced by names.
"""

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from install import is_built, venv_path

HERE = Path(__file__).resolve().parent
PORT = 30000  # what recordings say; the port really used is a free one
READY_S = 300.0
STOP_S = 60.0
FLUSH_TRIES = 25

COMMON = shlex.split(
    "--model-path models/tiny-llama --served-model-name tiny --device cpu --host 127.0.0.1"
    " --dtype float32 --context-length 2048 --max-total-tokens 16384 --max-running-requests 16"
    " --prefill-attention-backend intel_amx --decode-attention-backend intel_amx"
    " --sampling-backend pytorch --grammar-backend none --page-size 1 --mem-fraction-static 0.3"
    " --skip-server-warmup --sleep-on-idle --enable-metrics"
)
EAGLE3 = shlex.split(
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path models/tiny-eagle3"
    " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
LAUNCHES = {
    "baseline": [],
    "eagle3-3-1-4": EAGLE3,
    "eagle3-incremental": [*EAGLE3, "--incremental-streaming-output"],
}

CHAT = "Write a codec that reads a stream."
CHAT_CODE = "Complete this:\n\nclass StreamWriter(Codec):\n    def write(self, data):\n"
PROMPT = "def join(path, *parts):\n"
TOO_LONG = "word " * 1500  # twice the context length in this model's tokens


def main() -> int:
    """Parse and record."""
    parser = argparse.ArgumentParser(description="Records the answers of a real SGLang.")
    parser.add_argument("url", nargs="?", help="base URL of a running server")
    parser.add_argument("folder", nargs="?", type=Path, help="where the recording goes")
    parser.add_argument("--launch", nargs="*", metavar="NAME", help=", ".join(LAUNCHES))
    asked = parser.parse_args()
    if asked.launch is not None:
        if unknown := set(asked.launch) - LAUNCHES.keys():
            parser.error(
                f"no such launch: {', '.join(sorted(unknown))}; there are {', '.join(LAUNCHES)}"
            )
        for name in asked.launch or LAUNCHES:
            launch(name, HERE / "recordings" / name)
        return 0
    if asked.folder is None:
        parser.error("give a URL and a folder, or --launch")
    record(asked.url.rstrip("/"), asked.folder, port=None)
    return 0


def record(url: str, folder: Path, port: int | None) -> None:
    """Ask a server everything once. port: its port, if that is to be replaced by PORT."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, path: str, body: dict[str, object] | None = None) -> int:
        status, answer = ask(url + path, body)
        (folder / name).write_text(redacted(answer, port))
        return status

    # An empty cache first, so that cached-token counts don't depend on what was asked before. The
    # server refuses while anything runs, and a health check is a request too.
    status = 0
    for _ in range(FLUSH_TRIES):
        status = keep("flush_cache.txt", "/flush_cache", {})
        if status == 200:
            break
        time.sleep(0.2)
    with (folder / "flush_cache.txt").open("a") as answer:
        answer.write(f"\n{status}\n")
    keep("generate.sse", "/generate", generate(PROMPT, 48, stream=True))
    keep("generate.json", "/generate", generate(PROMPT, 48, stream=False))
    keep("completions.sse", "/v1/completions", completions(PROMPT, 24, stream=True))
    keep("completions.json", "/v1/completions", completions(PROMPT, 24, stream=False))
    keep("chat.sse", "/v1/chat/completions", chat(CHAT, 24, stream=True))
    keep("chat-code.sse", "/v1/chat/completions", chat(CHAT_CODE, 48, stream=True))
    keep("chat.json", "/v1/chat/completions", chat(CHAT, 200, stream=False))
    for stem, path, body in (
        ("too-long", "/generate", generate),
        ("too-long-chat", "/v1/chat/completions", chat),
    ):
        status = keep(f"{stem}.json", path, body(TOO_LONG, 8, stream=False))
        (folder / f"{stem}.status").write_text(f"{status}\n")
        status = keep(f"{stem}.sse", path, body(TOO_LONG, 8, stream=True))
        (folder / f"{stem}.sse.status").write_text(f"{status}\n")
    keep("server_info.json", "/server_info")
    keep("model_info.json", "/model_info")
    keep("models.json", "/v1/models")
    keep("loads.json", "/v1/loads?include=all")
    keep("metrics.prom", "/metrics")


def generate(prompt: str, tokens: int, *, stream: bool) -> dict[str, object]:
    """SGLang's own API."""
    sampling = {"temperature": 0, "max_new_tokens": tokens}
    return {"text": prompt, "sampling_params": sampling, "stream": stream}


def completions(prompt: str, tokens: int, *, stream: bool) -> dict[str, object]:
    """OpenAI's older API."""
    return {"prompt": prompt, **openai(tokens, stream=stream)}


def chat(prompt: str, tokens: int, *, stream: bool) -> dict[str, object]:
    """OpenAI's chat API."""
    message = {"role": "user", "content": prompt}
    return {"messages": [message], **openai(tokens, stream=stream)}


def openai(tokens: int, *, stream: bool) -> dict[str, object]:
    """What both OpenAI APIs share: everything that says something about token counts."""
    body: dict[str, object] = {
        "model": "tiny",
        "temperature": 0,
        "max_tokens": tokens,
        "stream": stream,
        "return_spec_tokens_details": True,
    }
    if stream:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return body


def ask(url: str, body: dict[str, object] | None) -> tuple[int, str]:
    """(status, body). Posts when there is something to post; an error status is an answer too."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def launch(name: str, folder: Path) -> None:
    """Start one launch, record it, stop it, keep its log and exit status."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(HERE / "serve.py"), *COMMON, *LAUNCHES[name]]
    # newline="" keeps the carriage returns of progress bars: a log reader must cope with them.
    with tempfile.TemporaryFile("w+", newline="") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port)], cwd=HERE, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            wait_until_healthy(server, f"http://127.0.0.1:{port}")
            record(f"http://127.0.0.1:{port}", folder, port)
            server.send_signal(signal.SIGTERM)
            status = server.wait(STOP_S)
        finally:
            server.kill()
            server.wait()
        log.seek(0)
        (folder / "server.log").write_text(redacted(log.read(), port))
    (folder / "exit.txt").write_text(f"exit {status}\n")
    print(f"recorded {name} in {os.path.relpath(folder)}")


def wait_until_healthy(server: subprocess.Popen[bytes], url: str) -> None:
    """Return once the server says so; raise when it ends or takes too long."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode}")
        try:
            status, _ = ask(f"{url}/health", None)
        except URLError:
            status = 0
        if status == 200:
            return
        time.sleep(0.2)
    raise SystemExit(f"the server was not healthy after {READY_S:.0f} s")


def redacted(text: str, port: int | None) -> str:
    """The text without what belongs to this machine: paths, host name, port."""
    names = {str(HERE) + "/": "", sys.base_prefix: "PYTHON", str(Path.home()): "HOME"}
    if is_built(venv_path()):
        names = {str(venv_path()): "VENV", **names}
    for found, name in names.items():
        text = text.replace(found, name)
    if socket.gethostname() != "localhost":
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
    return text if port is None else re.sub(rf"\b{port}\b", str(PORT), text)


if __name__ == "__main__":
    sys.exit(main())
