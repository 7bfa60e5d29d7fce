import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.accept_rate import AcceptRate, accept_rate_meaning, accept_rate_of_depth


@given(st.integers(3, 16), st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_a_definition_is_told_rightly_or_not_at_all(num_draft_tokens, share):
    length = 1 + share * (num_draft_tokens - 1)
    printed = round(length, 2)
    old = accept_rate_meaning(printed, round(length / num_draft_tokens, 2), num_draft_tokens)
    new = accept_rate_meaning(printed, round(share, 2), num_draft_tokens)
    assert old in {AcceptRate.WITH_BONUS, None}
    assert new in {AcceptRate.DRAFTS_ONLY, None}
    if (1 - share) / num_draft_tokens > 0.02:  # they meet where all is accepted
        assert (old, new) == (AcceptRate.WITH_BONUS, AcceptRate.DRAFTS_ONLY)
    rate = accept_rate_of_depth(length, num_draft_tokens)
    assert rate == pytest.approx(share)


def test_numbers_that_fit_neither_tell_nothing():
    assert accept_rate_meaning(2.0, 0.9, 4) is None
    assert accept_rate_meaning(4.0, 1.0, 4) is None  # all accepted: both fit
    assert accept_rate_meaning(1.0, 0.0, 1) is None
    assert accept_rate_of_depth(1.0, 1) is None
