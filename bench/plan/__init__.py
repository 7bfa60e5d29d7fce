"""From a scenario to launches and cells: pure, no server is touched.

    plan = make_plan(load_scenario(path), simulated=True)
    estimate(plan).hours

One launch of an arm in each pair measures every workload and load. Pairs alternate their order (AB
BA AB …), so that a drift of the machine cancels, and a pair is complete before the next begins:
stopped at any time, what is there answers as much as it can.
"""

from __future__ import annotations

from bench.plan.budget import Fit, fit_budget, parse_budget
from bench.plan.estimating import PlanEstimate, estimate
from bench.plan.identity import request_seed
from bench.plan.making import make_plan

__all__ = [
    "Fit",
    "PlanEstimate",
    "estimate",
    "fit_budget",
    "make_plan",
    "parse_budget",
    "request_seed",
]
