"""What exactly was run: commands, effective settings, differences, the machine, the files."""

from __future__ import annotations

import contextlib
import json
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING

from reports.blocks import Column, Command, Link, Remark, Table, Value, text
from reports.differences import flat
from reports.view import arms_of, varies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.model import LaunchRecord
    from bench.store import StoredRun
    from reports.blocks import Block

_FILES = {
    "scenario.yaml": "the scenario, as it was",
    "manifest.json": "everything about the run",
    "measurements.parquet": "a row a cell",
    "samples.parquet": "a row a request",
    "telemetry.parquet": "a row a reading",
}


MOST_ARMS = 6  # beside each other in a table
_GRAPHS = "cuda_graph_config.decode.bs"  # the captured batch sizes, which are shown anyway


def configuration_blocks(stored: StoredRun) -> list[Block]:
    """Failed launches, effective settings, what differs, commands, provenance, files."""
    return [
        *_failed_launches(stored),
        *_setting_tables(stored),
        *_launch_commands(stored),
        *_reproduction(stored),
        fingerprint_table(stored),
        *file_links(stored),
    ]


def _failed_launches(stored: StoredRun) -> list[Block]:
    return [
        Remark(
            tone="bad",
            title=f"Launch {launch.launch_id} failed",
            text=launch.failure,
            advice=f"Its log: {launch.log_file}" if launch.log_file else "",
        )
        for launch in stored.manifest.launches
        if launch.failure
    ]


def _first_launches(stored: StoredRun) -> dict[str, LaunchRecord]:
    """The first launch of each arm that got ready, in the arms' order."""
    first: dict[str, LaunchRecord] = {}
    for launch in stored.manifest.launches:
        if launch.effective is not None:
            first.setdefault(launch.arm, launch)
    return {arm: first[arm] for arm in arms_of(stored) if arm in first}


def _setting_tables(stored: StoredRun) -> Iterator[Block]:
    """Speculative settings of every arm; other settings only where arms differ; changed ones."""
    launches = _first_launches(stored)
    if not launches:
        return
    effective = {arm: launch.effective for arm, launch in launches.items() if launch.effective}
    speculative = {arm: dict(e.speculative) for arm, e in effective.items()}
    told = [
        (name, values)
        for name, values in _by_name(speculative)
        if any(value not in {None, False} for value in values.values())
    ]
    if any(settings.get("algorithm") is None for settings in speculative.values()):
        # What an arm without speculation has too is a default that does nothing.
        told = [(name, values) for name, values in told if varies(map(str, values.values()))]
    if told:
        caption = "Speculative settings as the servers resolved them"
        yield _settings("speculative_settings", caption, told)
    other = {
        arm: {
            **{
                inner: value
                for name, text_ in e.other
                for inner, value in _opened(name, text_)
                if inner != _GRAPHS
            },
            "KV cache, tokens": e.max_total_num_tokens,
            "captured batch sizes": _listed(e.decode_graph_batch_sizes),
        }
        for arm, e in effective.items()
    }
    differing = [
        (name, values) for name, values in _by_name(other) if varies(map(str, values.values()))
    ]
    if differing:
        caption = "Other settings in which the arms differ: the gain includes them"
        yield _settings("other_settings", caption, differing)
    yield from _changed_settings(launches)


def _by_name(
    settings: Mapping[str, Mapping[str, object]],
) -> Iterator[tuple[str, dict[str, object]]]:
    """(setting, its value in each arm) of settings by arm, by name."""
    for name in sorted({name for told in settings.values() for name in told}):
        yield name, {arm: told.get(name) for arm, told in settings.items()}


def _opened(name: str, value: str) -> Iterator[tuple[str, str]]:
    """A setting that is an object, key by key, so that only what differs need be shown."""
    if value[:1] == "{":
        with contextlib.suppress(ValueError):
            yield from flat(json.loads(value), name)
            return
    yield name, value


def _listed(sizes: Sequence[int] | None) -> str | None:
    return (sizes and ", ".join(map(str, sizes))) or None


def _changed_settings(launches: Mapping[str, LaunchRecord]) -> Iterator[Block]:
    """Options of the commands that the servers resolved otherwise."""
    rows = [
        (text(arm), text(f"--{name.replace('_', '-')}"), text(asked), text(resolved))
        for arm, launch in launches.items()
        for name, asked, resolved in _changes(launch)
    ]
    if rows:
        yield Table(
            name="changed_settings",
            caption="Options that a server resolved otherwise than its command asks",
            columns=tuple(
                Column(name=name, label=name, numeric=False)
                for name in ("arm", "option", "asked", "resolved")
            ),
            rows=tuple(rows),
        )
    elif any(len(launch.argv) > 1 for launch in launches.values()):
        yield "Every option that the servers told of is as their commands ask."


def _changes(launch: LaunchRecord) -> Iterator[tuple[str, str, str]]:
    """(name, asked, resolved) of a command's options with one value that the server resolved."""
    assert launch.effective is not None
    resolved: dict[str, object] = dict(launch.effective.other)
    resolved |= {f"speculative_{name}": v for name, v in launch.effective.speculative}
    for option, asked in pairwise(launch.argv):
        name = option.removeprefix("--").replace("-", "_")
        if option[:2] != "--" or asked[:2] == "--" or name not in resolved:
            continue
        if _same(asked, told := resolved[name]):
            continue
        yield name, asked, "not set" if told is None else str(told)


def _same(asked: str, resolved: object) -> bool:
    told = str(resolved)
    if asked in {told, "auto"}:
        return True
    try:
        return float(asked) == float(told)
    except ValueError:
        return asked.lower() == told.lower() or told[:1] in "[{"  # written in another form


def _settings(name: str, caption: str, rows: Sequence[tuple[str, Mapping[str, object]]]) -> Table:
    arms = list(rows[0][1])
    if len(arms) > MOST_ARMS:  # one below the other, else nothing is as wide
        return Table(
            name=name,
            caption=caption,
            columns=(
                Column(name="arm", label="arm", numeric=False),
                *(Column(name=setting, label=setting, numeric=False) for setting, _ in rows),
            ),
            rows=tuple((text(arm), *(text(values[arm]) for _, values in rows)) for arm in arms),
        )
    return Table(
        name=name,
        caption=caption,
        columns=(
            Column(name="setting", label="setting", numeric=False),
            *(Column(name=arm, label=arm, numeric=False) for arm in arms),
        ),
        rows=tuple((text(setting), *(text(values[a]) for a in arms)) for setting, values in rows),
    )


def _launch_commands(stored: StoredRun) -> list[Block]:
    return [
        Command(title=f"How {arm} was started (first launch)", text=shlex.join(launch.argv))
        for arm, launch in _first_launches(stored).items()
        if launch.argv
    ]


def _reproduction(stored: StoredRun) -> list[Block]:
    sessions = stored.manifest.sessions
    if not sessions:
        return []
    return [
        Command(title="The command that made this run", text=shlex.join(sessions[0].command_line))
    ]


def fingerprint_table(stored: StoredRun) -> Table:
    """Machine and software as they were recorded."""
    rows = tuple(
        (text(name), Value(text="not told" if value is None else str(value), raw=_raw(value)))
        for name, value in _flat(stored.manifest.fingerprint, "")
    )
    return Table(
        name="provenance",
        caption="Machine and software",
        columns=(
            Column(name="fact", label="fact", numeric=False),
            Column(name="value", label="value", numeric=False),
        ),
        rows=rows,
    )


def _raw(value: object) -> str | None:
    return None if value is None else str(value)


def _flat(value: object, name: str) -> Iterator[tuple[str, object]]:
    shown = name.removeprefix("identity.").removeprefix("context.")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        if not value:
            yield shown, "none"
        for place, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{place}]")
    else:
        yield shown, value


def file_links(stored: StoredRun) -> list[Block]:
    """The files beside the page."""
    return [
        Link(href=name, text=meaning)
        for name, meaning in _FILES.items()
        if (stored.folder / name).is_file()
    ]
