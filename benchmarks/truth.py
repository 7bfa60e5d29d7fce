"""How far what bench measures is from what the simulated server did, at the world's speed.

    python -m benchmarks.truth [--out DIR]

Runs benchmarks/truth.yaml (two minutes) and holds each cell against the server's truth file:

- tok/s: tokens that the server's steps delivered inside the cell's window over its length;
- accept length: 1 + accepted drafts / verify steps over the cell's measured requests;
- cycle: time that requests were decoding inside the window / decode steps they took part in there;
- TTFT: median time from arrival at the server to the first token handed to the socket.

Limits: tok/s and cycle within 2 %, accept length within 0.01, TTFT p50 within 3 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.store import find_run, load_run, load_samples

if TYPE_CHECKING:
    from bench.model import Measurement, RequestSample

SCENARIO = Path(__file__).with_name("truth.yaml")
RATIO_LIMIT = 0.02
ACCEPT_LEN_LIMIT_TOK = 0.01
TTFT_LIMIT_MS = 3.0


def read_truth(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(requests, steps) of a truth file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return (
        [line for line in lines if line["kind"] == "request"],
        [line for line in lines if line["kind"] == "step"],
    )


def overlap_ns(start_ns: int, end_ns: int, window: tuple[int, int]) -> int:
    """Nanoseconds that a span has inside the window."""
    return max(0, min(end_ns, window[1]) - max(start_ns, window[0]))


def inside(step: dict[str, Any], window: tuple[int, int]) -> float:
    """The share of a step that is inside the window."""
    span_ns = step["end_ns"] - step["start_ns"]
    return float(overlap_ns(step["start_ns"], step["end_ns"], window) / span_ns)


def served(requests: list[dict[str, Any]], samples: list[RequestSample]) -> list[dict[str, Any]]:
    """The server's own rows of the measured samples: the nth sent is the nth that arrived."""
    sent = sorted(s.sent_ns for s in samples if s.sent_ns is not None)
    ended_ns = max(s.ended_ns for s in samples)
    arrived = sorted(
        (r for r in requests if sent[0] <= r["arrival_ns"] <= ended_ns),
        key=lambda r: r["arrival_ns"],
    )
    assert len(arrived) == len(sent), (len(arrived), len(sent))
    measured = {s.sent_ns for s in samples if s.phase == "measure"}
    return [row for sent_ns, row in zip(sent, arrived, strict=True) if sent_ns in measured]


def figures_of(
    m: Measurement,
    samples: list[RequestSample],
    requests: list[dict[str, Any]],
    steps: list[dict[str, Any]],
) -> dict[str, tuple[float, float]]:
    """(measured, true) of each figure of a cell."""
    assert m.window_start_ns is not None
    assert m.window_end_ns is not None
    assert m.output_tok_per_s is not None
    assert m.cycle_ms is not None
    assert m.ttft_ms is not None
    window = (m.window_start_ns, m.window_end_ns)
    window_s = (window[1] - window[0]) / 1e9
    rows = served(requests, samples)
    delivered_tok = sum(step["output_tok"] * inside(step, window) for step in steps)
    decode_ms = sum(
        overlap_ns(r["first_emitted_ns"], r["finish_emitted_ns"], window) / 1e6 for r in requests
    )
    taken_ct = sum(s["batch"] * inside(s, window) for s in steps if s["step"] == "decode")
    first_ms = [(r["first_emitted_ns"] - r["arrival_ns"]) / 1e6 for r in rows]
    figures = {
        "tok/s": (m.output_tok_per_s, delivered_tok / window_s),
        "cycle ms": (m.cycle_ms, decode_ms / taken_ct),
        "TTFT p50 ms": (m.ttft_ms.p50, statistics.median(first_ms)),
    }
    if m.accept_len_tok is not None:
        true_len = 1 + sum(r["correct_ct"] for r in rows) / sum(r["verify_ct"] for r in rows)
        figures["accept length"] = (m.accept_len_tok, true_len)
    return figures


def within(name: str, measured: float, true: float) -> bool:
    """Whether a figure is as near to the truth as it has to be."""
    if name == "accept length":
        return abs(measured - true) <= ACCEPT_LEN_LIMIT_TOK
    if name == "TTFT p50 ms":
        return abs(measured - true) <= TTFT_LIMIT_MS
    return abs(measured / true - 1) <= RATIO_LIMIT


def main() -> int:
    """Run, compare, print a line a cell and figure; 1 when one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="keep the run below this folder")
    out = parser.parse_args().out or Path(tempfile.mkdtemp(prefix="specdyno-truth-"))
    command = [Path(sys.executable).with_name("bench"), "run", SCENARIO, "--sim", "--out", out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    folder = find_run(out, "latest")
    samples = load_samples(folder)
    all_within = True
    for m in load_run(folder).measurements:
        requests, steps = read_truth(folder / "logs" / f"{m.launch_id}.truth.jsonl")
        of_cell = [s for s in samples if s.cell_id == m.cell_id]
        for name, (measured, true) in figures_of(m, of_cell, requests, steps).items():
            ok = within(name, measured, true)
            all_within &= ok
            print(
                f"{m.arm:9} load {m.load:>3}  {name:13} measured {measured:9.3f}  "
                f"true {true:9.3f}  error {measured - true:+8.3f} ({measured / true - 1:+.2%})"
                f"{'' if ok else '  BEYOND ITS LIMIT'}"
            )
    return 0 if all_within else 1


if __name__ == "__main__":
    sys.exit(main())
