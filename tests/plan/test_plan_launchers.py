"""Launchers other than `local` as argv templates, and what of them is refused."""

from __future__ import annotations

import shlex

import pytest

from bench.errors import ScenarioError
from bench.http import redact
from bench.plan import make_plan


def template(loaded, small, **launcher):
    small["server"]["launcher"] = launcher
    return make_plan(loaded(small)).launches[0].server.template


def test_a_local_server_has_no_template(loaded, small):
    assert template(loaded, small, kind="local") is None


def test_a_container_is_ended_by_its_name(loaded, small):
    found = template(
        loaded,
        small,
        kind="docker",
        image="lmsysorg/sglang:v0.5.23",
        options=["--context", "box"],
        start_options=["--gpus", "all"],
    )
    assert found.start[:4] == ("docker", "--context", "box", "run")
    assert found.start[-3:] == ("{env}", "lmsysorg/sglang:v0.5.23", "{argv}")
    assert "--gpus" in found.start
    assert found.stop == (*("docker", "--context", "box", "stop", "--time", "{term_s}", "{name}"),)
    assert found.force_stop[-1] == "{name}"
    assert (found.bind, found.gpus_seen) == ("127.0.0.1", "local")


def test_ssh_quotes_for_the_remote_shell_alone(loaded, small):
    found = template(loaded, small, kind="ssh", host="me@gpu-7", options=["-p", "2222"])
    assert found.start[0] == "ssh"
    assert found.start[-2] == "me@gpu-7"
    words = shlex.split(found.start[-1])
    assert words[:4] == ["setsid", "--wait", "sh", "-c"]
    assert words[-2:] == ["{env}", "{argv}"]
    assert "127.0.0.1:{local_port}:127.0.0.1:{port}" in found.start
    for command in (found.alive, found.stop, found.force_stop, found.environ):
        assert command[-2] == "me@gpu-7"
        assert shlex.split(command[-1])[-1] == "/tmp/{name}.pid"
    assert found.gpu_watch[-1] == "100"
    assert "nvidia-smi" in found.gpu_watch


@pytest.mark.parametrize(
    "base_url",
    [
        *("http://[:{port}", "ftp://{host}", "{host}:{port}", "http://{host}:{port", "http://"),
        *(
            "http://{host}:port",
            "http://{host}:0",
            "http://{host}:99999",
            "/",
            "http://a b:{port}",
        ),
    ],
)
def test_an_address_that_nobody_could_reach_is_refused_when_it_is_planned(loaded, small, base_url):
    for launcher in (
        {"kind": "docker", "image": "i"},
        {"kind": "template", "host": "h", "start": ["run", "{argv}"], "stop": ["end"]},
    ):
        with pytest.raises(ScenarioError, match=r"base_url: makes '.*', which is no address"):
            template(loaded, small, **launcher, base_url=base_url)


@pytest.mark.parametrize(
    "base_url", ["http://{host}:{port}", "https://[::1]:{local_port}/a", "http://h"]
)
def test_addresses_that_can_be_reached(loaded, small, base_url):
    launcher = {"kind": "template", "start": ["run", "{argv}"], "stop": ["end"], "host": "me@h"}
    assert template(loaded, small, **launcher, base_url=base_url).kind == "template"


def test_a_job_is_ended_by_its_name(loaded, small):
    found = template(loaded, small, kind="srun", host="node3", start_options=["--gpus=8"])
    assert (found.bind, found.base_url) == ("node3", "http://node3:{port}")
    assert found.stop == ("scancel", "--name", "{name}")
    here = template(loaded, small, kind="srun")
    assert (here.bind, here.gpus_seen) == ("127.0.0.1", "local")


def test_a_pod_is_reached_through_a_forwarded_port(loaded, small):
    found = template(loaded, small, kind="kubectl", image="i", options=["--namespace", "bench"])
    assert found.start[:4] == ("kubectl", "--namespace", "bench", "run")
    assert found.forward[-1] == "{local_port}:{port}"
    assert found.base_url == "http://127.0.0.1:{local_port}"


def test_what_a_scenario_gives_takes_the_place_of_a_part(loaded, small):
    found = template(
        loaded,
        small,
        kind="docker",
        image="i",
        stop=["podman", "stop", "{name}"],
        gpus_seen="remote",
        base_url="http://10.0.0.7:{port}",
    )
    assert found.stop == ("podman", "stop", "{name}")
    assert (found.gpus_seen, found.base_url) == ("remote", "http://10.0.0.7:{port}")
    assert found.alive[0] == "docker"


START = ["run", "{argv}"]
STOP = ["end", "{name}"]


@pytest.mark.parametrize(
    ("launcher", "key", "said"),
    [
        ({"kind": "template", "start": START}, "stop", "missing for kind: template"),
        ({"kind": "template", "stop": STOP}, "start", "missing for kind: template"),
        ({"kind": "template", "start": START, "stop": []}, "stop", "missing"),
        ({"kind": "docker"}, "image", "missing for kind: docker"),
        ({"kind": "ssh"}, "host", "missing for kind: ssh"),
        ({"kind": "local", "stop": STOP}, "stop", "does nothing with kind: local"),
        ({"kind": "docker", "image": "i", "host": "h"}, "host", "does nothing with"),
        ({"kind": "template", "start": ["run"], "stop": STOP}, "start", "has no {argv}"),
        (
            {"kind": "template", "start": START, "stop": ["end", "{nmae}"]},
            "stop",
            "has no place {nmae}",
        ),
        ({"kind": "template", "start": START, "stop": ["{argv}"]}, "stop", "no place {argv}"),
        (
            {"kind": "template", "start": [*START, "{env}"], "stop": STOP},
            "variable",
            "start has {env}",
        ),
    ],
)
def test_what_is_refused_has_file_and_line(loaded, small, launcher, key, said):
    small["server"]["launcher"] = launcher
    scenario = loaded(small)
    with pytest.raises(ScenarioError) as caught:
        make_plan(scenario)
    text = str(caught.value)
    where = scenario.source.position(f"server.launcher.{key}")
    assert text.startswith(f"{where} server.launcher.{key}: ")
    assert said in text


def test_what_other_languages_write_in_braces_is_no_place(loaded, small):
    found = template(
        loaded,
        small,
        kind="template",
        start=["sh", "-c", "echo ${home}; exec {argv}"],
        stop=["docker", "inspect", "-f", "{{.State}} {{name}}", "{name}"],
    )
    assert "{{.State}} {{name}}" in found.stop


# ---------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        (("server", "environment"), {"HF_TOKEN": "s3cr3t"}, "server.environment.HF_TOKEN"),
        (("server", "environment"), {"MY_KEY": "s3cr3t"}, "server.environment.MY_KEY"),
        (("server", "environment"), {"P": "http://u:s3cr3t@h"}, "server.environment.P"),
        (
            ("arms", "eagle3", "environment"),
            {"DB_PASSWORD": "s3cr3t"},
            "arms.eagle3.environment.DB_PASSWORD",
        ),
        (
            ("server", "arguments"),
            ["--max-running-requests 64", "--api-key s3cr3t"],
            "server.arguments",
        ),
        (
            ("arms", "eagle3", "arguments"),
            ["--admin-api-key=s3cr3t"],
            "arms.eagle3.arguments",
        ),
        (
            ("arms", "eagle3", "arguments"),
            ["--api-k s3cr3t"],
            "arms.eagle3.arguments",
        ),
        (
            ("server", "launcher"),
            {"kind": "ssh", "host": "bob:s3cr3t@gpu-7"},
            "server.launcher.host",
        ),
        (
            ("server", "launcher"),
            {"command": ["env", "HF_TOKEN=s3cr3t", "python3"]},
            "server.launcher.command",
        ),
    ],
)
def test_a_secret_in_a_scenario_is_refused_and_not_repeated(loaded, small, key, value, place):
    *parents, last = key
    here = small
    for part in parents:
        here = here[part]
    here[last] = value
    with pytest.raises(ScenarioError) as caught:
        make_plan(loaded(small))
    assert f" {place}: " in str(caught.value)
    assert "a secret" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert redact(str(caught.value)) == str(caught.value)  # it is still read when it is printed


def test_what_only_sounds_like_a_secret_is_none(loaded, small):
    small["server"]["environment"] = {"TOKENIZERS_PARALLELISM": "false", "EMPTY_KEY": ""}
    small["server"]["arguments"] = ["--max-running-requests 64", "--kt-experts-per-token 2"]
    make_plan(loaded(small))


@pytest.mark.parametrize(
    "value",
    ["s3cr3t", {"env": "s3cr3t-!"}, ["s3cr3t"], {"key": "s3cr3t"}, {"env": "A", "file": "s3cr3t"}],
)
def test_a_literal_key_is_refused_and_not_repeated(loaded, small, value):
    small["server"]["api_key"] = value
    with pytest.raises(ScenarioError, match=r"s\.yaml:\d+ server\.api_key") as caught:
        loaded(small)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("key", ["api_key", "admin_api_key", "environment"])
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, {"env": ""}, {"env": 1}, {"MY_KEY": [1]}])
def test_what_is_wrong_with_a_key_can_be_read_when_it_is_printed(loaded, small, key, value):
    """What is printed is redacted, and a name of a secret is followed by what is wrong with it."""
    small["server"][key] = value
    said = ""
    try:
        make_plan(loaded(small))
    except ScenarioError as error:
        said = str(error)
    assert redact(said) == said
