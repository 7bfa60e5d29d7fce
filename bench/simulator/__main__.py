"""Start the simulated server.

Exit codes as SGLang's: 2 for bad arguments, 1 for a failed start.
"""

from __future__ import annotations

import sys

from bench.errors import BenchError
from bench.simulator.refusals import StartFailure
from bench.simulator.server import serve
from bench.simulator.settings import read_settings


def main(argv: list[str]) -> int:
    """Run until SIGTERM; the exit code."""
    try:
        return serve(read_settings(argv))
    except StartFailure as failure:
        sys.stderr.write(f"{failure}\n")
        return failure.exit_code
    except BenchError as error:
        sys.stderr.write(f"error: {error}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
