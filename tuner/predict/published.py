"""Accept lengths of trees that are published, as experience.

`specbundle.csv` beside this file: 44 cells of target, draft and data set, from the dashboard of
SpecBundle (https://docs.sglang.io/SpecForge/SpecBundle/index.html), one launch each, of an SGLang
of December 2025.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from tuner.predict.experience import Record, records_of

if TYPE_CHECKING:
    from tuner.predict.experience import Shape

SPECBUNDLE: Final = "SpecBundle's published table"


def published_records() -> tuple[Record, ...]:
    """What the trees of SpecBundle's published table accepted."""
    text = files("tuner.predict").joinpath("specbundle.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    cells: dict[tuple[str, str, str], dict[Shape, float]] = defaultdict(dict)
    for row in csv.DictReader(lines):
        shape = (int(row["num_steps"]), int(row["eagle_topk"]), int(row["num_draft_tokens"]))
        cell = cells[row["target"], row["draft"], row["workload"]]
        cell[shape] = float(row["accept_len_tok"])
    return tuple(
        record
        for (target, draft, workload), lengths in cells.items()
        for record in records_of(
            lengths, origin=SPECBUNDLE, target=target, draft=draft, workload=workload
        )
    )
