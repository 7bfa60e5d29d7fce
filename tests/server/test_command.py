import socket
import sys

import pytest

from bench import clock
from bench.errors import InputError
from bench.model import ServerConfig
from bench.server.command import (
    api_keys,
    command_line,
    free_port,
    secrets_of,
    server_environment,
)


def test_a_local_server_gets_its_arguments_and_an_address():
    config = ServerConfig(
        arguments=("--model-path", "m", "--tp-size=8"),
        command=("numactl", "-N0", "{python}", "-m", "sglang.launch_server"),
    )
    assert command_line(config, port=4242) == (
        *("numactl", "-N0", sys.executable, "-m", "sglang.launch_server"),
        *("--model-path", "m", "--tp-size=8", "--host", "127.0.0.1", "--port", "4242"),
    )


def test_a_simulated_server_gets_the_simulators_options(tmp_path):
    config = ServerConfig(
        arguments=("--model-path", "m"),
        launcher="simulated",
        hardware="h200x8",
        target_card="kimi",
        acceptance=(0.75, 0.5),
        simulation_seed=7,
        faults=("crash:cell=2", "stall:p=0.1"),
    )
    truth_path = tmp_path / "L00-baseline-p0.1.truth.jsonl"
    argv = command_line(config, port=1, truth_path=truth_path)
    assert argv[:3] == (sys.executable, "-m", "bench.simulator")
    options = dict(zip(argv[3::2], argv[4::2], strict=True))
    assert options == {
        "--model-path": "m",
        "--sim-hardware": "h200x8",
        "--sim-target": "kimi",
        "--sim-acceptance": "0.75,0.5",
        "--sim-seed": "7",
        "--sim-truth": str(truth_path),
        "--sim-launch": "L00-baseline-p0.1",
        "--sim-faults": "crash:cell=2,stall:p=0.1",
        "--host": "127.0.0.1",
        "--port": "1",
    }


def test_unnamed_cards_are_not_passed_on():
    config = ServerConfig(arguments=(), launcher="simulated", acceptance="card")
    argv = command_line(config, port=1)
    assert "--sim-hardware" not in argv
    assert "--sim-truth" not in argv
    assert "--sim-faults" not in argv
    assert argv[argv.index("--sim-acceptance") + 1] == "card"


@pytest.mark.parametrize("argument", ["--port=1", "--host=0.0.0.0"])
def test_an_address_of_ones_own_is_refused(argument):
    with pytest.raises(InputError, match=argument.partition("=")[0]):
        command_line(ServerConfig(arguments=(argument,), command=("x",)), port=1)


def test_a_server_without_a_command_is_refused():
    with pytest.raises(InputError, match="no launch command"):
        command_line(ServerConfig(arguments=()), port=1)


def test_only_simulated_servers_are_told_the_clocks_speed():
    inherited = {"PATH": "/bin", clock.SPEED_VARIABLE: "6", "A": "inherited"}
    local = ServerConfig(arguments=(), environment=(("A", "configured"),))
    assert server_environment(local, inherited, {"B": "extra"}) == {
        "PATH": "/bin",
        "A": "configured",
        "B": "extra",
    }
    simulated = ServerConfig(arguments=(), launcher="simulated")
    environment = server_environment(simulated, {})
    assert environment == {clock.SPEED_VARIABLE: str(clock.speed())}


def test_secrets_are_the_keys_and_the_tokens_in_the_environment():
    config = ServerConfig(arguments=("--api-key", "open-sesame", "--admin-api-key=shazam-shazam"))
    assert api_keys(config) == ("open-sesame", "shazam-shazam")
    environment = {"HF_TOKEN": "hf-123456", "TOKENIZERS_PARALLELISM": "false", "MY_SECRET": "x"}
    assert secrets_of(config, environment) == ("shazam-shazam", "open-sesame", "hf-123456")


def test_a_free_port_can_be_listened_on():
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()
