"""Every kind of finding is found where it was planted; a clean cell and a clean run have none."""

import pytest
from metrics_cells import make_effective, run_summarize
from planted import PLANTED, clean_arms, plan, run_of

from bench.metrics import ADVICE
from bench.model import FindingKind


@pytest.mark.parametrize("kind", list(FindingKind))
def test_a_planted_violation_is_flagged(kind, tmp_path):
    assert kind in PLANTED, f"plant a violation of {kind} in tests/metrics/planted.py"
    found = [finding for finding in PLANTED[kind](tmp_path) if finding.kind is kind]
    assert found, f"a planted {kind} was not found"
    for finding in found:
        assert len(finding.message) > 10
        assert finding.kind in ADVICE


def test_nothing_is_planted_that_there_is_not():
    assert set(PLANTED) <= set(FindingKind)


def test_a_clean_run_has_no_finding(tmp_path):
    for speculative in (False, True):
        assert run_summarize(speculative=speculative, gpus=2)[1] == ()
    effective = {
        f"{arm}-{pair}": make_effective(speculative=arm != "baseline")
        for arm in ("baseline", "eagle3")
        for pair in (0, 1)
    }
    assert run_of(clean_arms(), effective=effective) == ()
    assert plan(tmp_path).findings == ()
