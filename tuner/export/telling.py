"""What `tuner export` prints."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bench.provenance.redaction import REDACTED
from tuner.export.command import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuner.export.writing import Exported


def export_text(exported: Exported) -> str:
    """The text: the answer, the command, what is written and what was not, and why."""
    return "\n".join(_lines(exported)) + "\n"


def _lines(exported: Exported) -> Iterator[str]:
    if exported.simulated:
        yield SIMULATED
    yield exported.answer
    yield ""
    for name, value in exported.environment.items():
        secret = REDACTED in value
        yield f"# {name} holds a secret" if secret else f"export {name}={shlex.quote(value)}"
    yield exported.command
    yield ""
    if exported.adaptive_reason is None:
        steps = ", ".join(f"{n} from batch {batch}" for batch, n in exported.adaptive_steps)
        yield f"Adaptive steps, still to be measured: {steps}. {exported.adaptive_use}"
    else:
        yield f"No adaptive configuration: {exported.adaptive_reason}"
    yield from exported.notes
    yield ""
    yield f"Written to {exported.folder}:"
    width = max(map(len, exported.files))
    yield from (f"  {name:<{width}}  {about}" for name, about in exported.files.items())
    run = shlex.join(["bench", "run", str(exported.folder / exported.scenario)])
    yield f"Measure it again: {run}{' --sim' if exported.simulated else ''}"
