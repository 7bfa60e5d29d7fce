"""Arms on servers that run already: what comes of their being different ones."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.http import is_loopback
from bench.metrics.findings import make_finding
from bench.model import BASELINE, Finding, FindingKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.model import Cell, Measurement


def different_machines(
    cells: Sequence[tuple[Cell, Measurement]], urls: Mapping[str, str]
) -> Iterator[Finding]:
    """Mark what is compared with a baseline on another host, and note what shares one with it.

    Args:
        cells: The measured cells.
        urls: Base URL by arm, of attached servers.
    """
    baseline = urls.get(BASELINE)
    if baseline is None:
        return
    ours = _host(baseline)
    for arm, url in urls.items():
        if arm == BASELINE or url == baseline:
            continue
        theirs = _host(url)
        if theirs == ours:
            yield make_finding(
                FindingKind.DIFFERENT_MACHINES,
                Severity.NOTE,
                f"arm {arm} and the baseline are two servers on {ours}, running at the same time: "
                "their GPUs differ, or they share them.",
                arm=arm,
            )
            continue
        for cell, _ in cells:
            if cell.arm == arm:
                yield make_finding(
                    FindingKind.DIFFERENT_MACHINES,
                    Severity.SUSPECT,
                    f"arm {arm} ran on {theirs}, the baseline on {ours}.",
                    cell_id=cell.cell_id,
                    arm=arm,
                )


def _host(url: str) -> str | None:
    """The host of an address; all names of the loopback are one."""
    host = urlsplit(url).hostname
    return "127.0.0.1" if is_loopback(host) else host
