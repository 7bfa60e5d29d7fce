"""`--set PATH=VALUE`: one key of a scenario set from the command line, checked like the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.scenario.mistakes import Mistake, found, nearest
from bench.scenario.yaml_text import Key, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

# Mappings whose keys are names of the scenario: an override changes what is there and never adds
# one by a slip of the pen.
_NAMED = (("arms",), ("workloads",))


def apply_override(
    data: Mapping[str, object], override: str
) -> tuple[dict[str, object], dict[Key, str], list[Mistake]]:
    """The scenario's data with one key set.

    Args:
        data: The whole scenario as plain data.
        override: `PATH=VALUE`; the path's parts are joined by dots, the value is YAML.

    Returns:
        The new data, the positions of the keys that were set, and mistakes (then the data is as
        before).
    """
    path, equals, text = override.partition("=")
    path = path.strip()
    label = f"--set {path}"
    if not equals or not path:
        return (
            dict(data),
            {},
            [
                Mistake(
                    position=f"--set {override}", text="wanted PATH=VALUE, e.g. measure.pairs=5"
                )
            ],
        )
    try:
        key = _key(data, path)
        reading = read_yaml(text, label=label, below=key, with_lines=False)
        if reading.mistakes:
            return dict(data), {}, reading.mistakes
        changed = _with(data, key, reading.data, ())
    except _WrongPathError as error:
        return dict(data), {}, [Mistake(position=label, key=path, text=str(error))]
    assert isinstance(changed, dict)
    # Blocks that were not there before stand where the key does that brought them.
    made = {key[:depth]: label for depth in range(1, len(key)) if not _has(data, key[:depth])}
    return changed, {**made, **reading.positions, key: label}, []


class _WrongPathError(Exception):
    """The path leads nowhere."""


def _key(data: object, path: str) -> Key:
    """The path's parts. Names may hold dots: the longest key that is there and fits is meant."""
    key: list[str] = []
    rest, here = path, data
    while rest:
        names = here if isinstance(here, dict) else {}
        fitting = [name for name in names if rest == name or rest.startswith(f"{name}.")]
        part = max(fitting, key=len) if fitting else rest.partition(".")[0]
        if not part:
            raise _WrongPathError("has an empty part. Write e.g. measure.pairs=5")
        key.append(part)
        rest = rest[len(part) + 1 :]
        if isinstance(here, tuple) and part.isdecimal() and int(part[:9]) < len(here):
            here = here[int(part)]
        else:
            here = names.get(part)
    return tuple(key)


def _has(data: object, key: Key) -> bool:
    for part in key:
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, tuple) and part.isdecimal():
            data = data[int(part)]
        else:
            return False
    return True


def _with(here: object, key: Key, value: object, above: Key) -> object:
    """`here` with `key` set to `value`; mappings on the way are made."""
    if not key:
        return value
    part, rest = key[0], key[1:]
    if isinstance(here, tuple):
        if not part.isdecimal() or int(part[:9]) >= len(here):
            raise _WrongPathError(
                f"{'.'.join(above)} has {len(here)} elements, none is called {part}. Count from 0"
            )
        index = int(part)
        return (*here[:index], _with(here[index], rest, value, (*above, part)), *here[index + 1 :])
    if here is not None and not isinstance(here, dict):
        raise _WrongPathError(
            f"{'.'.join(above)} is {found(here)}, with no key {part}. Set {'.'.join(above)}"
        )
    names = dict(here or {})
    if above in _NAMED and part not in names:
        raise _WrongPathError(f"no {above[0][:-1]} is called {part}. {nearest(part, names)}")
    names[part] = _with(names.get(part), rest, value, (*above, part))
    return names
