"""What exactly was run: commands, effective settings, differences, the machine, the files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from reports.blocks import Column, Command, Link, Remark, Table, Value, text
from reports.view import arms_of

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


def _setting_tables(stored: StoredRun) -> Iterator[Table]:
    """Speculative settings of every arm; other settings only where arms differ."""
    launches = _first_launches(stored)
    if not launches:
        return
    effective = {arm: launch.effective for arm, launch in launches.items() if launch.effective}
    speculative = {arm: dict(e.speculative) for arm, e in effective.items()}
    names = sorted({name for settings in speculative.values() for name in settings})
    told = [
        (name, {arm: settings.get(name) for arm, settings in speculative.items()})
        for name in names
        if any(settings.get(name) not in {None, False} for settings in speculative.values())
    ]
    if told:
        caption = "Speculative settings as the servers resolved them"
        yield _settings("speculative_settings", caption, told)
    other: dict[str, dict[str, object]] = {arm: dict(e.other) for arm, e in effective.items()}
    for arm, e in effective.items():
        other[arm]["KV cache, tokens"] = e.max_total_num_tokens
        graphs = e.decode_graph_batch_sizes
        other[arm]["captured batch sizes"] = graphs and ", ".join(map(str, graphs))
    names = sorted({name for settings in other.values() for name in settings})
    differing = [
        (name, {arm: settings.get(name) for arm, settings in other.items()})
        for name in names
        if len({str(settings.get(name)) for settings in other.values()}) > 1
    ]
    if differing:
        caption = "Other settings in which the arms differ: the gain includes them"
        yield _settings("other_settings", caption, differing)


def _settings(name: str, caption: str, rows: Sequence[tuple[str, Mapping[str, object]]]) -> Table:
    arms = list(rows[0][1])
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
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        if not value:
            yield name, "none"
        for place, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{place}]")
    else:
        yield name.removeprefix("identity.").removeprefix("context."), value


def file_links(stored: StoredRun) -> list[Block]:
    """The files beside the page."""
    return [
        Link(href=name, text=meaning)
        for name, meaning in _FILES.items()
        if (stored.folder / name).is_file()
    ]
