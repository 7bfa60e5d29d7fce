"""Run by the Python of a server's environment: has SGLang resolve a command line and prints it.

It is handed over as text (`python -c`), so it imports nothing of bench. It loads no weights. The
last line of its standard output is a marker and a JSON object: `version`, and either `resolved`
(SGLang's server arguments) or `stage` (`import`, `parse` or `resolve`) and `error`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from typing import Any

MARKER = "specdyno-own-resolution: "


def main(argv: list[str]) -> dict[str, Any]:
    """What SGLang makes of a command line."""
    try:
        version = importlib.import_module("sglang.version").__version__
        module = importlib.import_module("sglang.srt.server_args")
    except Exception as error:  # noqa: BLE001  # whatever an import may raise
        return {"version": None, "stage": "import", "error": _told(error)}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            server_args = module.prepare_server_args(argv)
    except SystemExit:  # argparse prints its usage before the reason, which is the last line
        last = said.getvalue().strip().rpartition("\n")[2]
        return {"version": version, "stage": "parse", "error": last[-2000:]}
    except Exception as error:  # noqa: BLE001  # older versions resolve while they parse
        return {"version": version, "stage": "resolve", "error": _told(error)}
    try:  # both are what its launch does first
        for step in ("resolve_once", "check_server_args"):
            getattr(server_args, step, lambda: None)()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # any rejection of SGLang's
        return {"version": version, "stage": "resolve", "error": _told(error)}
    return {"version": version, "resolved": _resolved(server_args)}


def _resolved(server_args: object) -> dict[str, Any]:
    whole = getattr(server_args, "resolved_dict", None)
    if whole is not None:
        return dict(whole())
    return {name: value for name, value in vars(server_args).items() if name[:1] != "_"}


def _told(error: BaseException) -> str:
    """The error and the place it was raised at: some of SGLang's assertions have no text."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = ""
    if place is not None:
        code = place.tb_frame.f_code
        where = f" (in {code.co_name}, {code.co_filename.rpartition('/')[2]}:{place.tb_lineno})"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text[:2000] + where


if __name__ == "__main__":
    print("\n" + MARKER + json.dumps(main(sys.argv[1:]), default=str), flush=True)  # noqa: T201  # its answer
