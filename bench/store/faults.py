"""The faults that a run's simulated servers were asked to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.store.manifest import Manifest


def faults_of(manifest: Manifest) -> str:
    """`eagle3 crash:cell=2`: what went wrong on request, by arm; empty: nothing was to.

    Args:
        manifest: Of the run; launches that were not made yet are not known.
    """
    asked = {
        (launch.arm, launch.argv[place + 1])
        for launch in manifest.launches
        for place, word in enumerate(launch.argv[:-1])
        if word == "--sim-faults"
    }
    return "; ".join(f"{arm} {faults.replace(',', ', ')}" for arm, faults in sorted(asked))
