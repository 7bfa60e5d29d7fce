"""A stand-in for SGLang that starts at once; what it does wrong is told by its --mode."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--acting", default="good")
parser.add_argument("--api-key")
parser.add_argument("--admin-api-key")
parser.add_argument("--version-told", default="0.5.23")
parser.add_argument("--running", type=int, default=0, help="requests that it says to run")
parser.add_argument("--state", type=Path, help="a folder to leave marks in")
parser.add_argument("--speculative-num-draft-tokens", type=int)
asked, _ = parser.parse_known_args()

calls = []


def say(text):
    print(text, flush=True)


def mark(name, text=""):
    with (asked.state / name).open("a") as file:
        file.write(text + "\n")


class Handler(BaseHTTPRequestHandler):
    def has(self, key):
        return not key or self.headers["Authorization"] == f"Bearer {key}"

    def do_GET(self):
        if not self.has(asked.api_key):
            return self.answer(401, {"error": "Unauthorized"})
        path = self.path.partition("?")[0]
        if path == "/model_info":
            return self.answer(200, {"model_path": "m"})
        if path == "/v1/loads":
            load = {"num_running_reqs": asked.running, "num_waiting_reqs": 0}
            return self.answer(200, {"loads": [load]})
        if path == "/server_info":
            return self.answer(
                200,
                {
                    "served_model_name": "tiny",
                    "version": asked.version_told,
                    "api_key": asked.api_key,
                    "max_total_num_tokens": 1000,
                    "speculative_num_draft_tokens": 4,
                    "internal_states": [{"decode_cuda_graph_bs": [1, 2]}],
                    "environment_of_the_server": dict(os.environ),
                },
            )
        return self.answer(404, {})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        path = self.path.partition("?")[0]
        if asked.state:
            mark("calls", path)
        of_admin = path in ("/flush_cache", "/abort_request")
        if asked.acting == "admin-key" and of_admin:
            return self.answer(401, {"error": "Unauthorized"})
        if not self.has(asked.admin_api_key if of_admin else None):
            return self.answer(403, {"error": "Forbidden"})
        if path == "/generate":
            if asked.acting == "refuses":
                return self.answer(400, {"error": {"message": "this model does not generate"}})
            calls.append(path)
            if asked.acting == "warming" and len(calls) < 3:
                return self.answer(503, {"error": "warming up"})
            return self.answer(200, {"text": "x", "meta_info": {"completion_tokens": 8}})
        if path == "/flush_cache":
            calls.append(path)
            if asked.acting == "never-drains" or calls.count(path) < 3:
                return self.answer(400, {"error": "Flush cache failed"})
            return self.answer(200, {})
        return self.answer(200, {})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


if asked.api_key:
    say(f"server_args={{'api_key': '{asked.api_key}'}} and {asked.api_key} again")
if asked.acting == "oom":
    say("Load weight begin. avail mem=10 GB")
    say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    sys.exit(1)
if asked.acting == "port-taken-once" and not (asked.state / "tried").exists():
    mark("tried")
    say(f"[Errno 98] error while attempting to bind {asked.port}: address already in use")
    sys.exit(1)
if asked.acting == "ignores-term":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if asked.state:
    # a child that runs away into a session of its own, as a scheduler might
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    mark("pids", f"{os.getpid()} {child.pid}")
if asked.acting == "repeats":
    while True:
        say(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] waiting for the other rank")
        time.sleep(0.05)
if asked.acting == "silent":
    say("Capture target decode CUDA graph begin. avail mem=13.38 GB")
    time.sleep(600)

server = ThreadingHTTPServer((asked.host, asked.port), Handler)
say("[2026-11-29 17:28:01] The server is fired up and ready to roll!")
if asked.acting == "dies-later":
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGSEGV)).start()
server.serve_forever()
