"""What nobody should send is refused; a scheduler that raises ends the process."""

import json
import socket
import subprocess
import sys

import pytest

from bench.errors import BenchError, InputError
from bench.simulator.adaptive import ConfigError, read_tiers
from bench.simulator.faults_process import scheduler_work
from bench.simulator.forced_acceptance import LENGTH, read_forced
from bench.simulator.refusals import StartFailure
from bench.simulator.server import Server
from bench.simulator.settings import read_settings

BASE = ["--model-path", "/models/kimi", "--tp-size", "8"]
ADAPTIVE = [*BASE, "--speculative-algorithm", "EAGLE3", "--speculative-adaptive"]
DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
MESSAGES = [{"role": "user", "content": "hello"}]


def test_an_exception_of_the_scheduler_ends_the_process():
    code = (
        f"from {scheduler_work.__module__} import scheduler_work\n"
        "with scheduler_work():\n    1 / 0\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode < 0
    assert "Scheduler hit an exception: Traceback (most recent call last):" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "SIGQUIT received" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "--mem-fraction-static nan",
        "--mem-fraction-static 9",
        "--mem-fraction-static 0",
        "--context-length 0",
        "--context-length -1",
        "--max-total-tokens -5",
        "--max-running-requests 0",
        "--cuda-graph-bs-decode 0 -1",
        "--port 99999",
        "--decode-log-interval 0",
        "--schedule-conservativeness nan",
    ],
)
def test_sizes_that_cannot_be_are_refused_at_the_start(arguments):
    with pytest.raises(StartFailure, match=arguments.split()[0]) as caught:
        read_settings([*BASE, *arguments.split()])
    assert caught.value.exit_code == 1


def test_a_truth_file_that_cannot_be_written_is_refused():
    with pytest.raises(InputError, match="--sim-truth /nowhere/truth"):
        Server(read_settings([*BASE, "--sim-truth", "/nowhere/truth"]))


@pytest.mark.parametrize("length", ["nan", "inf"])
def test_a_forced_length_is_a_number(length):
    with pytest.raises(InputError, match=LENGTH):
        read_forced({LENGTH: length})


@pytest.mark.parametrize(
    "config",
    [
        {"1": [1, 3]},
        {"1": None},
        {"²": {"candidate_steps": [1, 3]}},
        {"1": {"candidate_steps": [1, 3], "update_interval": 0, "warmup_batches": 1}},
        {"3": {"candidate_steps": [1, 3], "ema_alpha": "x"}},
        {"3": {"candidate_steps": [1, 3], "ceiling_coeff": float("nan")}},
        {"3": {"candidate_steps": [1, 3], "warmup_batches": None}},
    ],
)
def test_an_adaptive_configuration_is_of_the_right_types(config, tmp_path):
    path = tmp_path / "adaptive.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError):
        read_tiers(str(path))
    with pytest.raises((StartFailure, BenchError)):
        read_settings([*ADAPTIVE, "--speculative-adaptive-config", str(path)])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"text": "a", "sampling_params": [1]}),
        ("/generate", {"text": "a", "sampling_params": {"temperature": "hot"}}),
        ("/generate", {"text": "a", "sampling_params": {"temperature": None}}),
        ("/generate", {"text": "a", "sampling_params": {"temperature": [1]}}),
        ("/generate", {"text": "a", "sampling_params": {"temperature": -1}}),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": -1}}),
        ("/generate", {"text": "a", "sampling_params": {"sampling_seed": 10**40}}),
        ("/generate", {"text": "a", "sampling_params": {"temperature": 10**400}}),
        ("/v1/completions", {"prompt": "a", "stream_options": "x"}),
        ("/v1/completions", {"prompt": "a", "max_tokens": -3}),
        ("/v1/chat/completions", {"messages": ["x"]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": ["x"]}]}),
        ("/v1/chat/completions", {"messages": MESSAGES, "chat_template_kwargs": [1]}),
    ],
)
def test_json_of_wrong_types_is_a_bad_request(plain, path, body):
    assert plain.ask(path, body).status == 400


def test_json_nested_too_deep_is_a_bad_request(plain):
    connection = plain.connect()
    connection.request("POST", "/generate", DEEP)
    assert connection.getresponse().status == 400
    assert not any("Traceback" in line for line in plain.log())


def test_a_length_without_end_is_too_large(plain):
    with socket.create_connection(("127.0.0.1", plain.port), timeout=20) as client:
        head = f"POST /generate HTTP/1.1\r\nContent-Length: {'9' * 5000}\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(64).startswith(b"HTTP/1.1 413 ")
