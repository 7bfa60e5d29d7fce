"""The simulator behind a front that tells all it knows: its arguments, its environment, its keys.

What is asked of it goes on to a simulator; logs, /server_info and refusals have secrets added.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

arguments = sys.argv[1:]
port = int(arguments[arguments.index("--port") + 1])
key = arguments[arguments.index("--api-key") + 1]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    inner = free.getsockname()[1]
arguments[arguments.index("--port") + 1] = str(inner)
simulator = subprocess.Popen(
    [sys.executable, "-m", "bench.simulator", *arguments],
    env={**os.environ, "SPECDYNO_CLOCK_SPEED": "10"},
)
print(f"server_args=ServerArgs(api_key={key!r}, hf={os.environ['HF_TOKEN']!r})", flush=True)
print(f"argv: {sys.argv} and once more {key}", flush=True)
print(f"environment: {dict(os.environ)}", flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.pass_on()

    def do_POST(self):
        self.pass_on(self.rfile.read(int(self.headers["Content-Length"] or 0)))

    def pass_on(self, body=None):
        inside = HTTPConnection("127.0.0.1", inner, timeout=30)
        headers = {"Authorization": self.headers["Authorization"] or ""}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            inside.request(self.command, self.path, body, headers)
            answer = inside.getresponse()
        except OSError:
            self.close_connection = True
            return
        if self.path.startswith("/server_info"):
            told = json.loads(answer.read())
            told |= {"api_key": key, "launch_command": " ".join(sys.argv)}
            told |= {"hub_token": os.environ["HF_TOKEN"], "extra": f"Bearer {key}"}
            told["environment"] = dict(os.environ)
            self.answer(answer.status, json.dumps(told).encode())
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"] or "")
        self.send_header("Connection", "close")
        self.end_headers()
        while part := answer.read1(65536):
            self.wfile.write(part)
        self.close_connection = True

    def answer(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


while True:  # the front opens when what is behind it does
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", inner)) == 0:
            break
    time.sleep(0.02)
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
server.daemon_threads = True
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
simulator.terminate()
simulator.wait()
