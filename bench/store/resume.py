"""Whether a part-run may be taken up: only when the rest would be measured in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.store.manifest import Manifest


def check_resumable(stored: Manifest, new: Manifest) -> None:
    """Refuse to add cells to a run that was begun with something else.

    Args:
        stored: The part-run's.
        new: What the manifest would be if the run began now.

    Raises:
        StoreError: Scenario, plan arguments, specdyno's version or the fingerprint's `identity`
            (the part that can change a number) differ; the message names each field and both
            values.
    """
    found = list(_differences("", _compared(stored), _compared(new)))
    if found:
        lines = "".join(f"\n  {field}: it has {old!r}, now {now!r}" for field, old, now in found)
        raise StoreError(
            f"cannot resume {stored.run_id}: not the same as when it was begun{lines}",
            hint="put it back as it was, or begin a new run",
        )


def _compared(manifest: Manifest) -> dict[str, object]:
    return {
        "scenario": manifest.scenario,
        "scenario_sha256": manifest.scenario_sha256,
        "simulated": manifest.simulated,
        "speed": manifest.speed,
        "specdyno_version": manifest.specdyno_version,
        "plan_arguments": manifest.plan_arguments,
        "fingerprint": manifest.fingerprint.get("identity"),
    }


def _differences(at: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    """Every (field, old, new) that differs, dots and [indices] leading to the innermost."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(f"{at}.{key}" if at else str(key), old.get(key), new.get(key))
    elif (
        isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new)
    ):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{at}[{index}]", before, now)
    elif old != new:
        yield at, old, new
