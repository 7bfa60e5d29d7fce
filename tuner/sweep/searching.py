"""The search over a prepared sweep's configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.model import BASELINE
from bench.sglang.arguments import asked_text, parse_arguments, whole_number
from tuner.predict import Predictor, points_of
from tuner.sweep.policy import Rules, Search

if TYPE_CHECKING:
    from tuner.space.candidates import Candidates
    from tuner.sweep.beginning import Prepared


def search_of(prepared: Prepared) -> Search:
    """The search, with the physics of the scenario's cards as its prior where there are any."""
    candidates, tune = prepared.candidates, prepared.tune
    configurations = candidates.searched
    points = points_of(
        configurations,
        cells=[_cell(point) for point in candidates.ground.points],
        weights=np.array(candidates.weights),
        cards=_cards(candidates) if tune.objective == "tok_per_s" else None,
        tp=_tp(candidates),
    )
    guests = (candidates.default, candidates.adaptive)
    return Search(
        Predictor(points),
        configurations,
        Rules(
            budget=prepared.launches - (1 if tune.adaptive else 0),  # one to compare steps in
            seed=prepared.loaded.scenario.seed,
            first=candidates.known_good,
            present=candidates.present,
            guests=tuple(place for place in guests if place is not None),
            stop_below=tune.stop.expected_gain,
            least_launches=tune.stop.least_launches,
            margin=candidates.ground.measure.practical_margin,
        ),
    )


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
