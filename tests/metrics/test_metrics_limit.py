import dataclasses

from metrics_cells import healthy_samples, make_cell, make_effective

from bench.metrics import limit_tok_per_s
from bench.model import Load, RequestStatus, ServerConfig

SERVER = ServerConfig(
    arguments=("--tp-size", "8"), hardware="h200-x8", target_card="kimi-k2.5", gpus=8
)


def limit(*, speculative=False, samples=None, server=SERVER, **cell_changes):
    cell = make_cell(arm="eagle3" if speculative else "baseline", **cell_changes)
    effective = make_effective(speculative=speculative)
    effective = dataclasses.replace(
        effective, speculative=(*effective.speculative, ("num_draft_tokens", 4))
    )
    if samples is None:
        samples = healthy_samples(speculative=speculative)
    return limit_tok_per_s(cell, server, effective, samples)


def test_speculation_lifts_the_floor_by_less_than_its_accept_length():
    plain, lifted = limit(), limit(speculative=True)
    assert 0 < plain < lifted <= 2.3 * plain + 1e-9


def test_no_card_no_load_or_no_answer_gives_no_limit():
    assert limit(server=dataclasses.replace(SERVER, hardware=None)) is None
    assert limit(load=Load(kind="open", rate_per_s=1.0)) is None
    failed = [dataclasses.replace(s, status=RequestStatus.TIMEOUT) for s in healthy_samples()]
    assert limit(samples=failed) is None


def test_a_speculative_arm_without_acceptance_has_no_limit():
    assert limit(speculative=True, samples=healthy_samples()) is None
