"""Secrets wherever one can be, and then every stored and printed byte searched for them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bench_command import TINY, run_bench

PLANTED = {
    "key": "planted-k3y-of-the-server",
    "token": "planted-t0ken-of-the-hub",
    "password": "planted-passw0rd",
    "aws": "planted-aws-secret",
    "comment": "hf_plantedInAComment1234",
}
CHATTY = Path(__file__).with_name("chatty.py")


@pytest.fixture
def environment():
    return {
        "OUR_KEY": PLANTED["key"],
        "HF_TOKEN": PLANTED["token"],
        "AWS_SECRET_ACCESS_KEY": PLANTED["aws"],
        "http_proxy": f"http://me:{PLANTED['password']}@127.0.0.1:9",
        "NCCL_PROXY": f"http://me:{PLANTED['password']}@127.0.0.1:9",
    }


@pytest.fixture
def scenario(tmp_path):
    data = yaml.safe_load(Path(TINY).read_text())
    data["server"] |= {
        "gpus": 0,
        "launcher": {"command": ["{python}", str(CHATTY)]},
        "api_key": {"env": "OUR_KEY"},
    }
    data["arms"] = {"baseline": {}}
    data["measure"] = {"steady_s": 0.3, "requests_per_slot": 2, "pairs": 1}
    path = tmp_path / "chatty.yaml"
    path.write_text(f"# {PLANTED['comment']}\n" + yaml.safe_dump(data))
    return path


def leaks(folder, *printed):
    """Where planted secrets are found: files below a folder, and printed texts."""
    stored = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any(name.endswith("manifest.json") for name in stored)
    texts = stored | {f"printed {n}": text.encode() for n, text in enumerate(printed)}
    return [
        f"{what} in {name}"
        for name, text in texts.items()
        for what, secret in PLANTED.items()
        if secret.encode() in text
    ]


def test_no_secret_is_stored_or_printed(tmp_path, scenario, environment):
    ours = run_bench("run", str(scenario), cwd=tmp_path, **environment)
    assert ours[0] in (0, 4), ours[2]
    logs = list((tmp_path / "results").rglob("*.log"))
    text = logs[0].read_text()
    assert "server_args=ServerArgs(api_key='[redacted]'" in text  # it was printed, and taken out
    assert "environment: " in text
    shown = run_bench("show", "--json", cwd=tmp_path, **environment)
    assert leaks(tmp_path / "results", *ours[1:], *shown[1:]) == []


def test_no_secret_of_an_attached_server_is_stored_or_printed(tmp_path, scenario, environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, CHATTY, "--model-path", "m", "--tp-size", "8"),
        *("--max-running-requests", "8", "--enable-metrics"),
        *("--api-key", PLANTED["key"], "--host", "127.0.0.1", "--port", str(port)),
    ]
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            for _ in range(400):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                server_is_up = server.poll() is None
                assert server_is_up
                try:
                    server.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
            key = tmp_path / "key"
            key.write_text(PLANTED["key"])
            printed = []
            for options in (
                ["--attach", url, "--api-key-file", str(key)],
                ["--attach", url, "--api-key-env", "OUR_KEY", "--exclusive"],
                ["--attach", url, "--api-key-env", "HF_TOKEN"],  # the wrong one
            ):
                code, *said = run_bench(
                    "run", str(scenario), *options, cwd=tmp_path, **environment
                )
                assert code == (3 if "HF_TOKEN" in options else 4), "".join(said)
                printed += said
            user = f"http://me:{PLANTED['password']}@127.0.0.1:{port}"
            for refused in (
                ["--attach", user],
                ["--attach", user.replace("http:", "ftp:")],
                ["--set", f"server.environment.HF_TOKEN={PLANTED['token']}"],
                ["--set", f"server.api_key={PLANTED['key']}"],
                ["--set", f"server.arguments.0=--api-key {PLANTED['key']}"],
            ):
                code, *said = run_bench(
                    "run", str(scenario), *refused, cwd=tmp_path, **environment
                )
                assert code == 2, said
                printed += said
        finally:
            server.terminate()
    assert leaks(tmp_path / "results", *printed) == []
