"""Requests as a stand-in server answers them, one verification after another."""

import itertools

import msgspec
import numpy as np
from bench_stand_ins import MS, samples_of


def decoded(cell, *, steps, step_ns, verify_ct, tokens, at_least):
    """The samples of a cell whose every verification takes `step_ns`.

    `at_least`: how many verifications accepted at least k drafts, k = 0, 1, … and a 0 behind.
    """
    counts = np.linspace(0, tokens, verify_ct + 1).round().astype(int)[1:]
    histogram = tuple(a - b for a, b in itertools.pairwise(at_least))
    made = []
    for sample in samples_of(cell):
        turn = sample.index // cell.load.concurrency
        sent_ns = sample.sent_ns - turn * 90 * MS + turn * (verify_ct + 2) * step_ns
        events = tuple(sent_ns + (i + 1) * step_ns for i in range(verify_ct))
        told = {
            "sent_ns": sent_ns,
            "due_ns": sent_ns,
            "first_byte_ns": events[0],
            "first_visible_ns": events[0],
            "ended_ns": events[-1],
            "event_ns": events,
            "event_tok": tuple(int(c) for c in counts),
            "output_tok": tokens,
            "spec_verify_ct": verify_ct if steps else None,
            "spec_num_correct_drafts": tokens - verify_ct if steps else None,
            "spec_num_proposed_drafts": verify_ct * steps if steps else None,
            "spec_correct_drafts_histogram": histogram if steps else None,
        }
        made.append(msgspec.convert(msgspec.to_builtins(sample) | told, type(sample)))
    return made
