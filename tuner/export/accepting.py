"""Accept lengths for capacity planners, measured where they were, else predicted and marked."""

from __future__ import annotations

from statistics import harmonic_mean
from typing import TYPE_CHECKING, Any, Final

from bench.model.study import TrialState, of_their_configuration

if TYPE_CHECKING:
    from bench.model.study import Study, StudyConfiguration

MEANING: Final = {
    "accept_len_tok": "tokens a verification yields, the target's own counted, the one of prefill "
    "not. Measured: over the launches of the configuration, each weighted by its "
    "verifications.",
    "source": "measured: in that many launches; predicted: by the study's model, never launched "
    "or not counted there.",
    "SGLANG_SIMULATE_ACC_LEN": "SGLang's variable that forces an accept length: accept_len_tok.",
    "nextn": "AIConfigurator and AISimulate, --nextn: draft tokens a step; chains only.",
    "nextn_accepted": "the same, --nextn-accepted: accepted drafts, accept_len_tok - 1.",
}
"""What the keys mean, in the file itself."""


def accept_lengths(study: Study) -> list[dict[str, Any]]:
    """Each configuration that speculates and may be launched, with its accept length by cell."""
    return [
        _configuration(study, configuration)
        for configuration in study.configurations
        if configuration.algorithm is not None
        and (configuration.launches or configuration.excluded is None)
    ]


def _configuration(study: Study, configuration: StudyConfiguration) -> dict[str, Any]:
    deployed = study.conclusion is not None and study.conclusion.deploy == configuration.place
    return {
        "configuration": configuration.label,
        "deployed": deployed,
        "algorithm": configuration.algorithm,
        "num_steps": configuration.num_steps,
        "eagle_topk": configuration.eagle_topk,
        "num_draft_tokens": configuration.num_draft_tokens,
        "arguments": dict(configuration.arguments),
        "environment": dict(configuration.environment),
        "cells": [_cell(study, configuration, cell) for cell in range(len(study.cells))],
    }


def _cell(study: Study, configuration: StudyConfiguration, cell: int) -> dict[str, Any]:
    measured = [
        length
        for trial in of_their_configuration(study.trials)
        if trial.configuration == configuration.place and trial.state == TrialState.MEASURED
        if (length := trial.accept_len_tok[cell]) is not None and length > 0
    ]
    told: dict[str, Any] = {
        "workload": study.cells[cell].workload,
        "load": study.cells[cell].load,
    }
    if measured:
        # Every launch of a cell makes the same tokens, in tokens / accept length verifications.
        length, source = harmonic_mean(measured), "measured"
    else:
        expected = configuration.accept_len_tok
        predicted = None if expected is None else expected[cell]
        if predicted is None:
            return {**told, "accept_len_tok": None, "source": None, "launches": 0}
        length, source = predicted, "predicted"
    told |= {"accept_len_tok": round(length, 4), "source": source, "launches": len(measured)}
    told["SGLANG_SIMULATE_ACC_LEN"] = round(length, 4)
    if configuration.eagle_topk == 1:
        told |= {"nextn": configuration.num_steps, "nextn_accepted": round(length - 1, 4)}
    return told
