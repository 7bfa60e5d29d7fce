"""A Hugging Face hub on this machine: repositories of local folders, and what was read of each."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from local_http import serving_on

COMMIT = "0" * 40


class FakeHub:
    """What it has, and what it was asked.

    Attributes:
        repositories: Folder of each id.
        sent: Bytes sent of each file, by `id/file`.
        whole: Files that were asked for without a range.
        asked: Every method and path.
    """

    def __init__(self, repositories):
        self.repositories = {name: Path(folder) for name, folder in repositories.items()}
        self.sent, self.whole, self.asked = {}, [], []

    def info(self, name):
        files = [{"rfilename": path.name} for path in sorted(self.repositories[name].iterdir())]
        return {"id": name, "sha": COMMIT, "private": False, "siblings": files}

    def tree(self, name):
        return [
            {"type": "file", "oid": "1" * 40, "size": path.stat().st_size, "path": path.name}
            for path in sorted(self.repositories[name].iterdir())
        ]

    @contextmanager
    def serving(self):
        """Its endpoint, while it serves."""
        with serving_on(_Handler, self) as url:
            yield url


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def do_POST(self):
        """`paths-info`: some of a repository's files."""
        hub = self.server.world
        length = int(self.headers.get("Content-Length") or 0)
        wanted = set(json.loads(self.rfile.read(length) or b"{}").get("paths") or [])
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        hub.asked.append(("POST", self.path))
        found = [item for item in hub.tree("/".join(parts[2:4])) if item["path"] in wanted]
        self.send(200, json.dumps(found).encode())

    def answer(self):
        hub = self.server.world
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        hub.asked.append((self.command, self.path))
        is_api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if is_api else parts[:2])
        if name not in hub.repositories:
            self.send(404, b'{"error": "not found"}', **{"X-Error-Code": "RepoNotFound"})
        elif is_api:
            told = hub.tree(name) if parts[4:5] == ["tree"] else hub.info(name)
            self.send(200, json.dumps(told).encode())
        else:
            self.file(name, parts[-1])

    def file(self, name, file):
        hub = self.server.world
        raw = (hub.repositories[name] / file).read_bytes()
        asked = self.headers.get("Range")
        if asked is None:
            hub.whole += [f"{name}/{file}"] * (self.command == "GET")
            self.send(200, raw)
        else:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            part = raw[first : last + 1]
            place = f"bytes {first}-{first + len(part) - 1}/{len(raw)}"
            self.send(206, part, **{"Content-Range": place})
        if self.command == "GET":
            sent = len(raw) if asked is None else len(part)
            hub.sent[f"{name}/{file}"] = hub.sent.get(f"{name}/{file}", 0) + sent

    def send(self, status, body, **headers):
        self.send_response(status)
        always = {"Content-Type": "application/json", "X-Repo-Commit": COMMIT, "ETag": '"1"'}
        for header, value in {**always, **headers, "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass
