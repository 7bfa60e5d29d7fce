"""Draft checkpoints: their formats, what SGLang 0.5.23 makes of them, and conversion.

    examined = examine("my-draft", target="my-target")
    for finding in examined.findings: …

All of it reads files; nothing is run, and torch is not needed.
"""

from __future__ import annotations

from bench.draft.case import Case, LaunchArguments, launch_arguments, launch_of
from bench.draft.converting import Conversion, convert
from bench.draft.examining import Examination, as_json, examine
from bench.draft.findings import DraftFinding, Level
from bench.draft.sources import is_folder

__all__ = [
    "Case",
    "Conversion",
    "DraftFinding",
    "Examination",
    "LaunchArguments",
    "Level",
    "as_json",
    "convert",
    "examine",
    "is_folder",
    "launch_arguments",
    "launch_of",
]
