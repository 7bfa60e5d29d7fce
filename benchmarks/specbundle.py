"""Choosing among SpecBundle's five drafts after the baseline and two chains.

Each cell of the table (target, draft, data set) is a study of three launches: the baseline, 3-1-4
and 7-1-8. What the predictor then holds to be the best of the five is held against the best. The
table has accept lengths and no histograms, one launch each, and does not tell its noise.

Nothing of the predictor is fitted to a cell's answers; one constant, how much trees accept
less than the rule of ranks, is the middle of this table's (tuner.predict.acceptance).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.specbundle_bounds import Triple, print_bounds
from tuner.confirm import ranked
from tuner.predict import Predictor, Reading, points_of
from tuner.space import Configuration

TABLE = Path(__file__).with_name("data") / "specbundle.csv"
LAUNCHED = ((3, 1, 4), (7, 1, 8))
GOAL_MEAN, GOAL_WORST = 0.4, 6.0

Row = tuple[float, float]  # tok/s, accept length


def read_cells() -> dict[tuple[str, str, str], dict[Triple | None, Row]]:
    """By (target, draft, data set): what each triple had; None is the baseline."""
    cells: dict[tuple[str, str, str], dict[Triple | None, Row]] = defaultdict(dict)
    with TABLE.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            cell = cells[line["target"], line["draft"], line["dataset"]]
            triple = (
                int(line["num_steps"]),
                int(line["eagle_topk"]),
                int(line["num_draft_tokens"]),
            )
            cell[None] = (float(line["baseline_tok_s"]), 1.0)
            cell[triple] = (float(line["tok_s"]), float(line["accept_length"]))
    return dict(cells)


def chosen(cell: dict[Triple | None, Row], batch: int) -> Triple:
    """What the predictor would deploy after three launches."""
    triples = sorted(triple for triple in cell if triple is not None)
    configurations = [
        Configuration(),
        *(
            Configuration(algorithm="EAGLE3", num_steps=s, eagle_topk=k, num_draft_tokens=n)
            for s, k, n in triples
        ),
    ]
    predictor = Predictor(points_of(configurations, [(batch, 0.0)], np.ones(1), None))
    places = [0, *(1 + triples.index(triple) for triple in LAUNCHED)]
    readings = [
        Reading(
            configuration=place,
            at=float(at),
            log_value=np.log([cell[triple][0]]),
            log_accept_len=np.log([cell[triple][1]]),
            reach=np.full((1, 1), np.nan),
        )
        for at, (place, triple) in enumerate(zip(places, (None, *LAUNCHED), strict=True))
    ]
    speculative = np.arange(len(configurations)) > 0
    launched = np.isin(np.arange(len(configurations)), places[1:])
    best = int(ranked(predictor.learn(readings), speculative, launched)[0])
    return triples[best - 1]


def specbundle_losses() -> list[str]:
    """Print what is lost against each cell's best, %; what misses a goal."""
    losses, of_two = [], []
    cells = read_cells()
    for (target, _, _), cell in cells.items():
        batch = 1 if target.startswith("Llama-3.1-8B") else 8
        speeds = {triple: speed for triple, (speed, _) in cell.items() if triple is not None}
        best = max(speeds.values())
        losses.append(100 * (1 - speeds[chosen(cell, batch)] / best))
        of_two.append(100 * (1 - max(speeds[triple] for triple in LAUNCHED) / best))
    print(f"\nSpecBundle, {len(losses)} cells: loss against the best of five, mean / worst, %")
    for name, values in (("ours", losses), ("the better of the two measured", of_two)):
        print(f"  {name:42}{np.mean(values):6.2f} / {np.max(values):.2f}")
    print_bounds(list(cells.values()), [target for target, _, _ in cells])
    missed = []
    if np.mean(losses) > GOAL_MEAN:
        missed.append(f"SpecBundle's mean loss {np.mean(losses):.2f}")
    if np.max(losses) > GOAL_WORST:
        missed.append(f"SpecBundle's worst loss {np.max(losses):.2f}")
    return missed
