"""The launchers of a scenario as argv templates; pure.

Each kind has a template of its own (docs/launchers.md shows them); what the scenario gives takes
the place of a part of it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bench.http import is_http_address
from bench.model import LauncherTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.scenario import Launcher, LoadedScenario

COMMANDS: Final = (
    *("start", "alive", "stop", "force_stop", "log", "forward", "environ", "gpu_watch"),
)
_PLACE = re.compile(r"(?<![{$])\{([a-z_]+)\}(?!\})")

# What the remote shell of `ssh` runs. "$1" is a file with the server's process group and the time
# at which its leader began, which tells a process id that was given to another from the server's.
_BEGAN = 'sed "s/.*) //" /proc/$p/stat 2>/dev/null | cut -d" " -f20'
_REMOTE_START = (
    f'umask 077; set -C; p=$$; echo "$p $({_BEGAN})" >"$1" || exit 1; shift; exec env "$@"'
)
_REMOTE_FIND = (
    f'read p s <"$1" 2>/dev/null || exit 1; now=$({_BEGAN}); '
    '[ -z "$now" ] || [ "$now" = "$s" ] || exit 1; '
)
_REMOTE_ALIVE = f"( {_REMOTE_FIND}kill -s 0 -- -$p 2>/dev/null && echo alive ); exit 0"
_REMOTE_STOP = f"{_REMOTE_FIND}kill -s TERM -- -$p 2>/dev/null"
_REMOTE_FORCE_STOP = f'( {_REMOTE_FIND}kill -s KILL -- -$p 2>/dev/null ); rm -f "$1"'
_REMOTE_ENVIRON = (
    f'{_REMOTE_FIND}for q in $(pgrep -g $p); do cat /proc/$q/environ && printf "\\0\\001\\0"; done'
)
_REMOTE_FILE = "/tmp/{name}.pid"  # noqa: S108  # unguessable, and made with noclobber
_FORWARDED: Final = "http://127.0.0.1:{local_port}"
_SMI: Final = "{nvidia_smi}"


def template_of(loaded: LoadedScenario, nvidia_smi: tuple[str, ...]) -> LauncherTemplate | None:
    """The template of the scenario's launcher; None for `local`, which needs none.

    Args:
        loaded: The scenario.
        nvidia_smi: The command that prints GPUs again and again.

    Raises:
        ScenarioError: A part is missing or does not belong, or a place is unknown.
    """
    launcher = loaded.scenario.server.launcher
    _check_keys(loaded, launcher)
    if launcher.kind == "local":
        return None
    template = _KINDS[launcher.kind](launcher)
    given = {
        key: value
        for key in (*COMMANDS, "variable", "bind", "base_url", "gpus_seen")
        if (value := getattr(launcher, key)) is not None
    }
    template = replace(template, **given)
    _check_places(loaded, template)
    template = _with_facts(template, launcher)
    return replace(
        template,
        gpu_watch=tuple(
            part
            for word in template.gpu_watch
            for part in (nvidia_smi if word == _SMI else (word,))
        ),
    )


# -------------------------------------------------------------------------------------- the kinds


def _docker(launcher: Launcher) -> LauncherTemplate:
    """The client is let go at once (`--detach`): killing one does not end its container."""
    docker = ("docker", *launcher.options)
    return LauncherTemplate(
        kind="docker",
        start=(
            *docker,
            *("run", "--detach", "--name", "{name}", "--network", "host", "--ipc", "host"),
            *launcher.start_options,
            *("{env}", "{image}", "{argv}"),
        ),
        alive=(*docker, "ps", "--quiet", "--filter", "name=^{name}$"),
        stop=(*docker, "stop", "--time", "{term_s}", "{name}"),
        force_stop=(*docker, "rm", "--force", "{name}"),
        log=(*docker, "logs", "--follow", "{name}"),
        environ=(*docker, "exec", "{name}", "cat", "/proc/1/environ"),
        variable=("--env", "{variable}={value}"),
        gpus_seen="local",
    )


def _ssh(launcher: Launcher) -> LauncherTemplate:
    """The server stays on the loopback of its machine and is reached through the connection."""
    ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", *launcher.options)

    def remote(script: str, *words: str) -> str:
        return shlex.join(("sh", "-c", script, "specdyno", _REMOTE_FILE, *words))

    start = shlex.join(("setsid", "--wait")) + f" {remote(_REMOTE_START)} {{env}} {{argv}}"
    forward = ("-o", "ExitOnForwardFailure=yes", "-L", "127.0.0.1:{local_port}:127.0.0.1:{port}")
    return LauncherTemplate(
        kind="ssh",
        start=(*ssh, *forward, *launcher.start_options, "{host}", start),
        alive=(*ssh, "{host}", remote(_REMOTE_ALIVE)),
        stop=(*ssh, "{host}", remote(_REMOTE_STOP)),
        force_stop=(*ssh, "{host}", remote(_REMOTE_FORCE_STOP)),
        environ=(*ssh, "{host}", remote(_REMOTE_ENVIRON)),
        variable=("{variable}={value}",),
        base_url=_FORWARDED,
        gpu_watch=(*ssh, "{host}", _SMI),
    )


def _srun(launcher: Launcher) -> LauncherTemplate:
    """A job of its own, named, so that it can be found and ended by that."""
    place = () if launcher.host is None else ("--nodelist", "{host}")
    return LauncherTemplate(
        kind="srun",
        start=(
            *("srun", *launcher.options, "--job-name", "{name}", "--ntasks", "1", *place),
            *("--export", "ALL", "--unbuffered", *launcher.start_options, "{argv}"),
        ),
        alive=(
            *("squeue", *launcher.options, "--noheader", "--name", "{name}"),
            *("--states", "PENDING,CONFIGURING,RUNNING,COMPLETING"),
        ),
        stop=("scancel", *launcher.options, "--name", "{name}"),
        force_stop=("scancel", *launcher.options, "--name", "{name}", "--signal", "KILL"),
        bind="127.0.0.1" if launcher.host is None else "{host}",
        base_url=f"http://{'127.0.0.1' if launcher.host is None else '{host}'}:{{port}}",
        gpus_seen="local" if launcher.host is None else "remote",
    )


def _kubectl(launcher: Launcher) -> LauncherTemplate:
    """The server stays on the loopback of its pod and is reached through a forwarded port."""
    kubectl = ("kubectl", *launcher.options)
    return LauncherTemplate(
        kind="kubectl",
        start=(
            *(*kubectl, "run", "{name}", "--image", "{image}", "--restart", "Never"),
            *(*launcher.start_options, "{env}", "--command", "--", "{argv}"),
        ),
        alive=(
            *(*kubectl, "get", "pods", "--output", "name", "--field-selector"),
            "metadata.name={name},status.phase!=Succeeded,status.phase!=Failed",
        ),
        stop=(*kubectl, "delete", "pod", "{name}", "--grace-period", "{term_s}"),
        force_stop=(
            *(*kubectl, "delete", "pod", "{name}", "--grace-period", "0", "--force"),
            "--ignore-not-found",
        ),
        log=(*kubectl, "logs", "--follow", "pod/{name}"),
        forward=(*kubectl, "port-forward", "pod/{name}", "{local_port}:{port}"),
        base_url=_FORWARDED,
        environ=(*kubectl, "exec", "{name}", "--", "cat", "/proc/1/environ"),
        variable=("--env", "{variable}={value}"),
        gpu_watch=(*kubectl, "exec", "{name}", "--", _SMI),
    )


def _template(launcher: Launcher) -> LauncherTemplate:
    """Everything is the scenario's; without a `stop` there is nothing that would end a server."""
    return LauncherTemplate(kind="template", start=launcher.start or (), stop=launcher.stop or ())


_KINDS: Final = {
    "docker": _docker,
    "ssh": _ssh,
    "srun": _srun,
    "kubectl": _kubectl,
    "template": _template,
}
_NEEDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "docker": (("image", "the container's image"),),
    "ssh": (("host", "the machine, as ssh takes it: user@gpu-7"),),
    "srun": (),
    "kubectl": (("image", "the container's image"),),
    "template": (
        ("start", "the command that starts a server, with {argv} where SGLang's command goes"),
        ("stop", "the command that ends it: killing its start would leave the server running"),
    ),
}
_TAKES_HOST: Final = ("ssh", "srun", "template")
_TAKES_IMAGE: Final = ("docker", "kubectl", "template")

# --------------------------------------------------------------------------------------- checking


def _check_keys(loaded: LoadedScenario, launcher: Launcher) -> None:
    for key in sorted(launcher.model_fields_set - {"kind", "command", "resolve"}):
        belongs = launcher.kind != "local"
        if key in {"host", "image"}:
            belongs = launcher.kind in (_TAKES_HOST if key == "host" else _TAKES_IMAGE)
        if key in {"options", "start_options"}:
            belongs = launcher.kind not in {"local", "template"}
        if not belongs:
            raise loaded.rejected(
                f"server.launcher.{key}", f"does nothing with kind: {launcher.kind}. Remove it"
            )
    for key, what in _NEEDS.get(launcher.kind, ()):
        if not getattr(launcher, key):
            raise loaded.rejected(
                f"server.launcher.{key}", f"missing for kind: {launcher.kind}. Give {what}"
            )


def _check_places(loaded: LoadedScenario, template: LauncherTemplate) -> None:
    everywhere = ("name", "port", "local_port", "term_s", "host", "image")
    known = {
        "variable": ("variable", "value"),
        "bind": ("host",),
        "base_url": ("host", "port", "local_port"),
    }
    for key in (*COMMANDS, "variable", "bind", "base_url"):
        value = getattr(template, key)
        places = known.get(key, (*everywhere, "argv", "env") if key == "start" else everywhere)
        for word in (value,) if isinstance(value, str) else value:
            for place in _PLACE.findall(word):
                if place not in places and word != _SMI:
                    valid = ", ".join(f"{{{name}}}" for name in places)
                    raise loaded.rejected(
                        f"server.launcher.{key}", f"has no place {{{place}}}. Valid: {valid}"
                    )
    _check_address(loaded, template)
    if not any("{argv}" in word for word in template.start):
        raise loaded.rejected(
            "server.launcher.start",
            "has no {argv}, where the server's command line goes. Add it as a word of its own",
        )
    if not template.variable and any("{env}" in word for word in template.start):
        raise loaded.rejected(
            "server.launcher.variable",
            'missing, and start has {env}. Give e.g. ["--env", "{variable}={value}"]',
        )


def _check_address(loaded: LoadedScenario, template: LauncherTemplate) -> None:
    """The address must be one before a server is started that nobody could reach."""
    host = loaded.scenario.server.launcher.host or "127.0.0.1"
    values = {"host": host.rpartition("@")[2], "port": "30000", "local_port": "30001"}
    address = filled(template.base_url, values)
    if not is_http_address(address):
        raise loaded.rejected(
            "server.launcher.base_url",
            f"makes {address!r}, which is no address. Give e.g. http://{{host}}:{{port}}",
        )


# ---------------------------------------------------------------------------------------- filling


def filled(text: str, values: Mapping[str, str]) -> str:
    """A word with its places filled in, once: what a value holds is not looked at."""
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), text)


def _with_facts(template: LauncherTemplate, launcher: Launcher) -> LauncherTemplate:
    facts = {
        name: value
        for name, value in (("host", launcher.host), ("image", launcher.image))
        if value is not None
    }
    changed: dict[str, Any] = {
        key: tuple(filled(word, facts) for word in getattr(template, key)) for key in COMMANDS
    }
    host_alone = {"host": (launcher.host or "127.0.0.1").rpartition("@")[2]}
    return replace(
        template,
        **changed,
        bind=filled(template.bind, host_alone),
        base_url=filled(template.base_url, host_alone),
    )
