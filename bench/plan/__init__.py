"""From a scenario to launches and cells: pure, no server is touched.

    plan = make_plan(load_scenario(path), simulated=True)
    estimate(plan).hours

One launch of an arm in each pair measures every workload and load. Pairs alternate their order (AB
BA AB …), so that a drift of the machine cancels, and a pair is complete before the next begins:
stopped at any time, what is there answers as much as it can.
"""

from __future__ import annotations

from bench.plan.estimating import PlanEstimate, estimate
from bench.plan.identity import request_seed
from bench.plan.making import make_plan

__all__ = ["PlanEstimate", "estimate", "make_plan", "request_seed"]
