"""Choosing among SpecBundle's five drafts after the baseline and two chains.

Each cell of the table (target, draft, data set) is a study of three launches: the baseline, 3-1-4
and 7-1-8. What the predictor then holds to be the best of the five is held against the best. The
table has accept lengths and no histograms, one launch each, and does not tell its noise.

Nothing of the predictor is fitted to a cell's answers; one constant, how much trees accept
less than the rule of ranks, is the middle of this table's (tuner.predict.acceptance). The goal is
held by a tuner with experience: what trees accepted in the table's *other* cells is what earlier
studies would have told it. The cell itself is never among them. What is left when more is left
out is printed beside it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.specbundle_bounds import Triple, print_bounds
from tuner.confirm import ranked
from tuner.predict import Experience, Predictor, Reading, Record, points_of
from tuner.predict.experience import model_name, records_of
from tuner.space import Configuration

TABLE = Path(__file__).with_name("data") / "specbundle.csv"
LAUNCHED = ((3, 1, 4), (7, 1, 8))
GOAL_MEAN, GOAL_WORST = 0.4, 6.0

Row = tuple[float, float]  # tok/s, accept length
Key = tuple[str, str, str]  # target, draft, data set
Table = dict[Key, dict[Triple | None, Row]]

# What the tuner has not seen when it chooses in a cell, by row of the table.
WITH_OTHERS = "with the other cells as experience"
LEFT_OUT: dict[str, Callable[[Key, Key], bool]] = {
    WITH_OTHERS: lambda cell, other: cell == other,
    "the same, its target on its data set left out": lambda c, o: (c[0], c[2]) == (o[0], o[2]),
    "the same, its draft left out": lambda c, o: c[1] == o[1],
    "the same, its data set left out": lambda c, o: c[2] == o[2],
    "the same, its target left out": lambda c, o: c[0] == o[0],
}


def read_cells() -> Table:
    """By (target, draft, data set): what each triple had; None is the baseline."""
    cells: Table = defaultdict(dict)
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


def records_by_cell(cells: Table) -> dict[Key, list[Record]]:
    """What each cell tells of trees."""
    return {
        (target, draft, data_set): records_of(
            {t: accept_len for t, (_, accept_len) in cell.items() if t is not None},
            origin="SpecBundle",
            target=target,
            draft=draft,
            workload=data_set,
        )
        for (target, draft, data_set), cell in cells.items()
    }


def experience_of(
    records: dict[Key, list[Record]], here: Key, left_out: Callable[[Key, Key], bool]
) -> Experience:
    """What trees accepted in the cells that are not left out."""
    target, draft, data_set = here
    told = (of_cell for key, of_cell in records.items() if not left_out(here, key))
    return Experience(
        records=tuple(chain.from_iterable(told)),
        target=model_name(target),
        draft=model_name(draft),
        workloads=(data_set,),
    )


def batch_of(key: Key) -> int:
    """Requests running at a time."""
    return 1 if key[0].startswith("Llama-3.1-8B") else 8


def chosen(
    cell: dict[Triple | None, Row], batch: int, experience: Experience | None = None
) -> Triple:
    """What the predictor would deploy after three launches."""
    triples = sorted(triple for triple in cell if triple is not None)
    configurations = [
        Configuration(),
        *(
            Configuration(algorithm="EAGLE3", num_steps=s, eagle_topk=k, num_draft_tokens=n)
            for s, k, n in triples
        ),
    ]
    points = points_of(configurations, [(batch, 0.0)], np.ones(1), None)
    predictor = Predictor(points, experience=experience)
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


def loss(cell: dict[Triple | None, Row], triple: Triple) -> float:
    """What a triple loses against the cell's best, %."""
    best = max(speed for other, (speed, _) in cell.items() if other is not None)
    return 100 * (1 - cell[triple][0] / best)


def specbundle_losses() -> list[str]:
    """Print what is lost against each cell's best, %; what misses a goal."""
    cells = read_cells()
    records = records_by_cell(cells)
    lost = {
        "a cell alone": [loss(cell, chosen(cell, batch_of(key))) for key, cell in cells.items()]
    }
    for name, left_out in LEFT_OUT.items():
        lost[name] = [
            loss(cell, chosen(cell, batch_of(key), experience_of(records, key, left_out)))
            for key, cell in cells.items()
        ]
    lost["the better of the two measured"] = [
        min(loss(cell, triple) for triple in LAUNCHED) for cell in cells.values()
    ]
    print(f"\nSpecBundle, {len(cells)} cells: loss against the best of five, mean / worst, %")
    for name, values in lost.items():
        print(f"  {name:46}{np.mean(values):6.2f} / {np.max(values):.2f}")
    print(" bounds of rules that know a cell alone:")
    print_bounds(list(cells.values()), [target for target, _, _ in cells])
    missed = []
    mean, worst = np.mean(lost[WITH_OTHERS]), np.max(lost[WITH_OTHERS])
    if mean > GOAL_MEAN:
        missed.append(f"SpecBundle's mean loss {mean:.2f} {WITH_OTHERS}")
    if worst > GOAL_WORST:
        missed.append(f"SpecBundle's worst loss {worst:.2f} {WITH_OTHERS}")
    return missed
