"""The search over a prepared sweep's configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.model import BASELINE
from bench.sglang.arguments import asked_text, parse_arguments, whole_number
from tuner.confirm.final import FEWEST
from tuner.predict import Predictor, points_of
from tuner.space.growing import grown
from tuner.space.large import MOST_CONFIGURATIONS, MOST_POINTS
from tuner.sweep.admitting import Unexplored
from tuner.sweep.policy import Rules, Search

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuner.predict import Experience
    from tuner.space import Configuration
    from tuner.space.candidates import Candidates
    from tuner.sweep.beginning import Prepared

# Objectives that are accept length over cycle time, up to a constant of the cell.
OF_PHYSICS: Final = ("tok_per_s", "tok_per_s_per_user")


def search_of(prepared: Prepared, experience: Experience | None = None) -> Search:
    """The search, with the physics of the scenario's cards as its prior where there are any.

    Args:
        prepared: The sweep.
        experience: What earlier studies tell of trees.
    """
    candidates, tune = prepared.candidates, prepared.tune
    cells = [_cell(point) for point in candidates.ground.points]
    cards = _cards(candidates) if tune.objective in OF_PHYSICS else None

    def predictor(configurations: Sequence[Configuration]) -> Predictor:
        points = points_of(
            configurations,
            cells=cells,
            weights=np.array(candidates.weights),
            cards=cards,
            tp=_tp(candidates),
        )
        return Predictor(points, experience=experience)

    guests = (candidates.default, candidates.adaptive)
    return Search(
        predictor(candidates.searched),
        candidates.searched,
        Rules(
            budget=prepared.launches - compares_steps(prepared),
            seed=prepared.loaded.scenario.seed,
            first=candidates.known_good,
            present=candidates.present,
            guests=tuple(place for place in guests if place is not None),
            stop_below=tune.stop.expected_gain,
            least_launches=tune.stop.least_launches,
            margin=candidates.ground.measure.practical_margin,
        ),
        _unexplored(candidates, predictor, prepared.loaded.scenario.seed),
    )


def compares_steps(prepared: Prepared) -> bool:
    """Whether one launch is kept to compare step counts in: never the one a verdict needs."""
    return prepared.tune.adaptive and prepared.launches > FEWEST


def _unexplored(
    candidates: Candidates, predictor: Callable[[Sequence[Configuration]], Predictor], seed: int
) -> Unexplored | None:
    """What a large space has beyond what the search begins with."""
    large = candidates.large
    if large is None:
        return None
    begun_with = len(candidates.searched)
    return Unexplored(
        axes=large.axes,
        at=lambda choice: large.at(choice).configurations,
        runnable=lambda asked: grown(candidates, asked).searched[begun_with:],
        predictor=predictor,
        most=min(MOST_CONFIGURATIONS, MOST_POINTS // len(candidates.ground.points)),
        seed=seed,
    )


def notes_of(prepared: Prepared) -> tuple[str, ...]:
    """What is to be told of how a space is searched."""
    candidates, tune = prepared.candidates, prepared.tune
    told = []
    if tune.objective not in OF_PHYSICS and _cards(candidates) is not None:
        told.append(
            f"The physics of the cards say nothing of {tune.objective}: predictions begin with "
            "accept lengths alone, and the first are far too high."
        )
    if tune.adaptive and not compares_steps(prepared):
        told.append(
            f"Step counts are not compared inside one launch: that takes one more than the "
            f"{FEWEST} launches of a verdict."
        )
    return (*told, *_of_large(candidates))


def _of_large(candidates: Candidates) -> tuple[str, ...]:
    """What is to be told of a space that is not held as a whole."""
    large = candidates.large
    if large is None:
        return ()
    counts = large.counts
    distinct = f"{'' if counts.is_whole else 'at least '}{counts.distinct:,}"
    told = (
        f"The space has {counts.raw:,} points and {distinct} distinct configurations: more than "
        "can be weighed against one another. Held are the drafts at your own setting, and the "
        "best of them at each setting that was tried."
    )
    return (told,)


def _cell(point: Any) -> tuple[int, float]:  # noqa: ANN401  # a Point of the plan
    """(running requests, mean tokens of context) of a point."""
    told = next((e for e in point.expected.values() if e is not None), None)
    batch = point.load.concurrency or (1 if told is None else max(1, round(told.batch)))
    return batch, float((point.workload.input_tok or 512) + point.workload.max_output_tok / 2)


def _cards(candidates: Candidates) -> Any:  # noqa: ANN401  # a pair of cards, or none
    from bench.physics import load_hardware, load_target  # noqa: PLC0415  # only where named

    server = candidates.ground.arms[BASELINE].server
    if server.hardware is None or server.target_card is None:
        return None
    return load_hardware(server.hardware), load_target(server.target_card)


def _tp(candidates: Candidates) -> int | None:
    asked = parse_arguments(candidates.ground.arms[BASELINE].server.arguments)
    return whole_number(asked_text(asked, "tp_size") or "")
