"""A container daemon of a few lines: what it starts are no children of the docker client.

Asked over a Unix socket with one JSON list of words, it answers {"code": 0, "out": "…"}.
With DROP_ENVIRONMENT the wishes for variables are lost, with WEAK_STOP `stop` is a TERM alone.
"""

import json
import os
import signal
import socketserver
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(sys.argv[1])
CONTAINERS = {}


def run(words):
    name, variables, image = "", {}, ""
    while words:
        word = words.pop(0)
        if word == "--name":
            name = words.pop(0)
        elif word == "--env":
            variable, _, value = words.pop(0).partition("=")
            variables[variable] = value
        elif word in ("--network", "--ipc"):
            words.pop(0)
        elif not word.startswith("-"):
            image = word
            break
    (ROOT / "images").open("a").write(f"{image}\n")
    if "DROP_ENVIRONMENT" in os.environ:
        variables = {}
    log = (ROOT / f"{name}.log").open("ab")
    CONTAINERS[name] = subprocess.Popen(
        words,
        env={"PATH": os.environ["PATH"], **variables},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    return 0, name


def running(name):
    container = CONTAINERS.get(name)
    return container is not None and container.poll() is None


def end(name, number):
    if running(name):
        os.killpg(CONTAINERS[name].pid, number)
        return 0, name
    return 1, "No such container"


def stop(words):
    name, wait_s = words[-1], float(words[1])
    code = end(name, signal.SIGTERM)
    give_up = time.monotonic() + wait_s
    while running(name) and time.monotonic() < give_up:
        time.sleep(0.01)
    if running(name) and "WEAK_STOP" not in os.environ:
        end(name, signal.SIGKILL)
    return code


def remove(words):
    name = words[-1]
    end(name, signal.SIGKILL)
    container = CONTAINERS.pop(name, None)
    if container is not None:
        container.wait()
        (ROOT / "removed").open("a").write(f"{name}\n")
    return 0, name


def answer(words):
    command, *rest = words
    if command == "run":
        return run(rest)
    if command == "ps":
        name = rest[-1].removeprefix("name=^").removesuffix("$")
        return 0, name if running(name) else ""
    if command == "stop":
        return stop(rest)
    if command == "rm":
        return remove(rest)
    if command == "exec":
        pid = CONTAINERS[rest[0]].pid
        return 0, Path(f"/proc/{pid}/environ").read_text()
    return 2, f"no command {command}"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        code, out = answer(json.loads(self.rfile.readline()))
        self.wfile.write(json.dumps({"code": code, "out": out}).encode())


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


with Server(str(ROOT / "socket"), Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
