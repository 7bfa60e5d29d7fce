"""How good the tuner is where the truth is known.

    python -m benchmarks.tuner [--quick] [--json FILE]

22 landscapes × 20 seeds (--quick: 3 seeds, less than 5 minutes), 2 % noise a launch. Ten
landscapes follow the physics that the predictor is given; twelve follow laws that it does not
contain (`landscapes_other`), and the goals are for these. Every launch counts, the final's
included.

Beside the tuner run Optuna's default TPE, random choice and a shuffled grid, on the raw axes. What
is known to be illegal costs them nothing, and they are given their configuration's mean over all
its launches, so that an alias counts as a repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # small matrices: threads only get in each other's way

import numpy as np  # noqa: E402  # after the variables it reads

from bench.physics import load_hardware, load_target  # noqa: E402
from benchmarks.landscapes import (  # noqa: E402
    DRAFT_TOKENS,
    OFF,
    STEPS,
    TOPK,
    Draft,
    Landscape,
    Machine,
)
from benchmarks.landscapes_other import OTHER  # noqa: E402
from benchmarks.landscapes_physics import KNOWN  # noqa: E402
from benchmarks.specbundle import specbundle_losses  # noqa: E402
from benchmarks.tuner_rivals import SEARCHES  # noqa: E402
from benchmarks.tuner_tables import (  # noqa: E402
    BUDGETS,
    RIVAL_LAUNCHES,
    RIVALS,
    Outcome,
    print_claims,
    print_landscapes,
    print_regret,
)
from tuner.predict import Predictor, Reading, points_of  # noqa: E402
from tuner.space import Axes, Configuration, Server, Setting, Space, survey  # noqa: E402
from tuner.sweep import Rules, Search  # noqa: E402

VARIABLE = "NCCL_ALGO"  # carries a landscape's settings; which variable it is plays no part


# ------------------------------------------------------------------------------------------ ours


@cache
def space_of(setting_count: int) -> Space:
    """The axes of the landscapes through the tuner's own rules."""
    return survey(
        Axes(
            algorithms=("EAGLE3",),
            num_steps=STEPS,
            eagle_topk=TOPK,
            num_draft_tokens=DRAFT_TOKENS,
            settings=tuple(
                Setting(environment=((VARIABLE, str(i)),) if i else ())
                for i in range(setting_count)
            ),
        ),
        Server(draft_arguments=("--speculative-draft-model-path", "draft")),
    )


def place_in(landscape: Landscape, configuration: Configuration) -> int | None:
    """Where a configuration is in the landscape; None: it would not start, or not as asked."""
    setting = int(dict(configuration.environment).get(VARIABLE, "0"))
    draft = OFF
    if configuration.algorithm is not None:
        draft = Draft(
            steps=configuration.num_steps or 0,
            topk=configuration.eagle_topk or 0,
            tokens=configuration.num_draft_tokens or 0,
        )
    keys = zip(landscape.drafts, landscape.settings, strict=True)
    return next((i for i, key in enumerate(keys) if key == (draft, setting)), None)


def ours(landscape: Landscape, seed: int, launches: int, *, prior: bool) -> dict[str, Any]:
    """The tuner's search, its final and what it says."""
    configurations = space_of(len(landscape.setting_names)).configurations
    places = [place_in(landscape, c) for c in configurations]
    cards = None
    if prior:
        cards = (load_hardware(landscape.card[0]), load_target(landscape.card[1]))
    weights = np.array([load.weight for load in landscape.loads], dtype=float)
    points = points_of(
        configurations,
        cells=[(load.batch, float(load.context_tok)) for load in landscape.loads],
        weights=weights / weights.sum(),
        cards=cards,
    )
    search = Search(Predictor(points), configurations, Rules(budget=launches, seed=seed))
    machine = Machine(landscape, seed=seed)
    met: dict[int, Configuration] = {}
    aliases = illegal = 0
    while (proposal := search.ask()) is not None:
        place = places[proposal.configuration]
        if place is None:
            illegal += 1
            machine.launches += 1
            search.fail(proposal, why="it does not start")
            continue
        configuration = configurations[proposal.configuration]
        aliases += met.setdefault(place, configuration) != configuration
        reading = machine.measure(place)
        search.tell(
            Reading(
                configuration=proposal.configuration,
                at=float(machine.launches),
                log_value=np.log(reading.tok_per_s),
                log_accept_len=np.log(reading.accept_len),
                reach=reading.reach,
            )
        )
    if machine.launches > launches:
        raise AssertionError(f"{machine.launches} launches of {launches}")
    answer = search.conclude()
    handed, best = places[answer.configuration], places[answer.best]
    assert handed is not None
    assert best is not None
    assert search.final is not None
    baselines = [place for b in search.final.baselines if (place := places[b]) is not None]
    # Over the best of the baselines that the gain may be said over.
    true = landscape.objective[best] - max(landscape.objective[baselines])
    return {
        "regret": 100 * landscape.regret(handed),
        "said": 100 * answer.gain,
        "true": 100 * float(true),
        "low": 100 * answer.low,
        "high": 100 * answer.high,
        "verdict": str(answer.verdict),
        "handed_is_best": handed == best,
        "optimism": 100 * answer.optimism,
        "aliases": aliases,
        "illegal": illegal,
    }


# ------------------------------------------------------------------------------------- the table

Task = tuple[str, int, int, str]
HALVES = {"known": KNOWN, "other": OTHER}


def run_task(task: Task) -> list[Outcome]:
    """All budgets of one method on one landscape and seed."""
    half, index, seed, method = task
    landscape = HALVES[half][index](seed)
    made = Outcome(
        half=half, landscape=landscape.name, seed=seed, method=method, launches=0, regret=0.0
    )
    if method in SEARCHES:
        found = []
        for rival in SEARCHES[method](landscape, seed):
            launches = rival.machine.launches
            found.append(
                replace(made, launches=launches, regret=rival.regret(), aliases=rival.aliases)
            )
            if launches == RIVAL_LAUNCHES:
                return found
    return [
        replace(
            made,
            launches=launches,
            **ours(landscape, seed, launches, prior=method == "ours"),
        )
        for launches in BUDGETS
    ]


def main() -> int:
    """Run all, print the tables; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 seeds")
    parser.add_argument("--seeds", type=int, default=None, help="how many seeds")
    parser.add_argument("--json", type=Path, default=None, help="write every outcome")
    asked = parser.parse_args()
    seeds = asked.seeds or (3 if asked.quick else 20)
    methods = ("ours", "prior-off", *RIVALS)
    tasks = [
        (half, index, seed, method)
        for method in methods
        for half, landscapes in HALVES.items()
        for index in range(len(landscapes))
        for seed in range(seeds)
    ]
    with ProcessPoolExecutor(max_workers=2, initializer=os.nice, initargs=(5,)) as pool:
        outcomes = [o for found in pool.map(run_task, tasks, chunksize=4) for o in found]
    if asked.json is not None:
        asked.json.write_text(json.dumps([_plain(o) for o in outcomes]))
    missed = []
    for half in HALVES:
        missed += print_regret(outcomes, half)
        missed += print_claims(outcomes, half)
        print_landscapes(outcomes, half)
    mine = [o for o in outcomes if o.method in {"ours", "prior-off"}]
    wasted = sum(o.aliases + o.illegal for o in mine)
    rivals = {m: max(o.aliases for o in outcomes if o.method == m) for m in RIVALS}
    print(
        f"\nlaunches spent on aliases or illegal points: ours {wasted}; most of a rival: {rivals}"
    )
    if wasted:
        missed.append(f"{wasted} launches on aliases or illegal points")
    missed += specbundle_losses()
    print("\n" + ("goals missed: " + "; ".join(missed) if missed else "every goal is met"))
    return 1 if missed else 0


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in outcome.__slots__}


if __name__ == "__main__":
    sys.exit(main())
