"""Where numbers come from: the machine and the software, as far as they can be told.

The server's own settings, command line and version are stored with each launch; see
`bench.model.LaunchRecord`.
"""

from __future__ import annotations

from bench.provenance import machine, software
from bench.provenance.redaction import redact_argv, redact_environment, redact_text

__all__ = ["fingerprint", "redact_argv", "redact_environment", "redact_text"]


def fingerprint() -> dict[str, object]:
    """The machine and the software now.

    Returns:
        {identity, context}. `identity` is what can change a number: a run can be resumed, and two
        runs are of the same fingerprint, when it is equal. `context` is worth knowing beside that.
        Plain JSON data; a fact that cannot be told is None. Secrets are redacted.
    """
    return {
        "identity": {
            "specdyno": software.specdyno(),
            "python": software.python(),
            "packages": software.packages(),
            "environment": software.environment(),
            "host": machine.host(),
            "kernel": machine.kernel(),
            "cpu": machine.cpu(),
            "memory_gib": machine.memory_gib(),
            "gpus": machine.gpus(),
        },
        "context": {
            "specdyno_commit": software.commit(),
            "boot_id": machine.boot_id(),
            "cpu_governor": machine.cpu_governor(),
            "gpu_topology": machine.topology(),
            "event_loop": software.event_loop(),
        },
    }
