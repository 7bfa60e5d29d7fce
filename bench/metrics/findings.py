"""What every kind of finding advises, and what findings do to a cell's status."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from bench.model import CellStatus, Finding, FindingKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.model import Measurement

ADVICE: Final[Mapping[FindingKind, str]] = {
    FindingKind.CLIENT_LATE: (
        "Requests left later than asked: give the load worker a core of its own, or lower the "
        "load."
    ),
    FindingKind.CLIENT_SATURATED: (
        "The client was the bottleneck, not the server: run fewer streams, or run bench on a "
        "freer or another machine."
    ),
    FindingKind.CLIENT_NOT_PROVEN: (
        "The client is not known to be exact at this load: `bench selftest SCENARIO` says up to "
        "which it is; free the machine, give --workers, or run bench on another machine."
    ),
    FindingKind.READS_COALESCED: (
        "Events that are read together share a time stamp, so chunk gaps are not the server's: "
        "give the client more of the machine, or look for a proxy that holds events up."
    ),
    FindingKind.REQUESTS_RESENT: (
        "The server, or a proxy before it, closes connections without saying so: see its "
        "keep-alive time. Should it drop requests for another reason, these are its failures."
    ),
    FindingKind.CONCURRENCY_NOT_REACHED: (
        "Slots stood idle: look for slow sends, quick failures or a client time-out, and give "
        "each slot more requests."
    ),
    FindingKind.SERVER_QUEUED: (
        "The server ran fewer requests than were sent: raise --max-running-requests above the "
        "largest load in every arm."
    ),
    FindingKind.SERVER_RETRACTED: (
        "Requests were thrown out of the batch and computed again: raise --mem-fraction-static, "
        "or lower the load or lengths."
    ),
    FindingKind.KV_FULL: (
        "The KV cache was full: raise --mem-fraction-static, or lower the load or the lengths."
    ),
    FindingKind.FOREIGN_TRAFFIC: (
        "Somebody else used the server: keep others off it and measure again."
    ),
    FindingKind.WINDOW_TOO_SHORT: (
        "Ask for more requests a slot (or a longer steady time) in `measure`."
    ),
    FindingKind.NO_WINDOW: (
        "There was no moment at which every slot was busy and past warm-up: ask for more "
        "requests a slot in `measure`."
    ),
    FindingKind.FEW_REQUESTS: (
        "The cell rests on little: ask for more requests a slot or a longer steady time in "
        "`measure`; a verdict over several pairs still holds, as wide as its interval is."
    ),
    FindingKind.DRIFTING: (
        "Speed still changed inside the window: lengthen warm-up, and look at clocks, "
        "temperature and growing contexts."
    ),
    FindingKind.CACHE_NOT_AS_STATED: (
        "Prompts met another prefix cache than stated: correct the workload's `cache`, flush "
        "between cells, and see that no other client shares the server. One that runs on after a "
        "run still has its prompts when the next one sends them again: --exclusive lets bench "
        "flush it, and another `seed` sends other prompts."
    ),
    FindingKind.ERROR_RATE: (
        "Read the failed requests' messages and the server's log; a server under errors is "
        "not measured."
    ),
    FindingKind.THROTTLED: (
        "The GPUs slowed down: improve cooling or raise the power limit, or lock the clocks, "
        "and measure again."
    ),
    FindingKind.OUTPUT_DEGENERATE: (
        "The output repeats itself, and repetition flatters acceptance: use real prompts, the "
        "chat template and a natural stop."
    ),
    FindingKind.OUTPUT_DIVERGES: (
        "Speculation should not change greedy output: compare texts with the baseline's, and "
        "check numerics, draft and kernels."
    ),
    FindingKind.COUNTERS_DISAGREE: (
        "Two counts of the same thing differ, so one is wrong: do not trust acceptance here; "
        "check the server's version."
    ),
    FindingKind.STREAM_COALESCED: (
        "Several steps arrived as one event: chunk gaps are not steps here. Set "
        "--stream-interval 1, or see that the client keeps up."
    ),
    FindingKind.TOKENS_HIDDEN: (
        "Tokens were generated before the first event: no decode speed is given. Stream "
        "reasoning, or turn it off."
    ),
    FindingKind.TOKENS_RETOKENIZED: (
        "The server gave no counts; the target's tokenizer counted the text. Prefer an API that "
        "returns usage."
    ),
    FindingKind.TOKENS_UNKNOWN: (
        "Nobody counted the output tokens: have the server return usage, or name the target's "
        "tokenizer in the workload."
    ),
    FindingKind.WORK_NOT_THE_SAME: (
        "The arms did other work than the baseline: run the scenario anew, on one version of "
        "its data."
    ),
    FindingKind.LENGTHS_CENSORED: (
        "Many answers were cut at the cap: raise the workload's output cap if lengths or "
        "acceptance near the end matter."
    ),
    FindingKind.IGNORE_EOS: (
        "Text past its end loops and flatters acceptance: take the gain from a run with natural "
        "stops."
    ),
    FindingKind.SERVER_RESTARTED: (
        "The server was started anew during the cell: read its log and measure again."
    ),
    FindingKind.CONFIG_NOT_AS_ASKED: (
        "The server does not run what was asked: compare the arm's arguments with its "
        "/server_info."
    ),
    FindingKind.ARGUMENTS_ADVICE: (
        "Ask for what will be, and leave out what does nothing (docs/arguments.md)."
    ),
    FindingKind.ARGUMENTS_DISAGREE: (
        "SGLang's own resolution counts, and bench's rules are of another version: compare "
        "/server_info with what was meant."
    ),
    FindingKind.ARMS_ALIKE: (
        "Two arms were the same server, so what differs between them is noise: remove one, "
        "unless that is the question."
    ),
    FindingKind.CONFIG_DIFFERS_BESIDE_SPECULATION: (
        "The gain includes these differences: pin them to the same values in every arm to see "
        "speculation alone."
    ),
    FindingKind.NO_CUDA_GRAPH: (
        "Decoding ran without CUDA graphs at this batch: raise --cuda-graph-max-bs-decode to "
        "the largest load in every arm."
    ),
    FindingKind.ACCEPTANCE_MISSING: (
        "The server gave no acceptance counters: use the chat API with "
        "return_spec_tokens_details or /generate, on a version that "
        "reports them."
    ),
    FindingKind.ACCEPT_COLLAPSED: (
        "Drafting was in vain for a while, mostly when the server was full: see when it began in "
        "the accept-length series, try fewer running requests, and report it to SGLang."
    ),
    FindingKind.GPU_SPIN_HANG: (
        "A collective waits for a rank that never comes: check NCCL_P2P_LEVEL and "
        "NCCL_P2P_DISABLE, IOMMU and ACS, and the server's log for a rank that died."
    ),
    FindingKind.CYCLE_DISAGREES: (
        "The mean step is not the usual gap between events, and prefills of other requests do "
        "not explain it: events are held up, or steps are not counted right; look at "
        "chunk_gap_ms."
    ),
    FindingKind.TELEMETRY_MISSING: (
        "What was not watched could not be checked: start the server with --enable-metrics and, "
        "for its GPUs, install the driver's NVML here or give the launcher a gpu_watch command."
    ),
    FindingKind.NO_REPEATS: (
        "One pair of launches has no interval and no verdict: ask for at least 3 pairs in "
        "`measure`. Attached servers always give one: let bench start them for a verdict."
    ),
    FindingKind.SIMULATED: "These figures are a simulator's: use them to plan, never to claim.",
    FindingKind.SIMULATION_SPEED: (
        "The simulation ran faster than the world: for accuracy, run it at speed 1."
    ),
    FindingKind.SIMULATION_LATE: (
        "End what else runs on this machine, or simulate more slowly: --set sim.speed=1."
    ),
    FindingKind.LAUNCH_SPLIT: (
        "The cells of this launch come from two starts of its server: measure the pair again "
        "for a clean comparison."
    ),
    FindingKind.ENVIRONMENT_LOST: (
        "What these variables were to change was not measured: see how the launcher passes the "
        "environment on (docs/launchers.md)."
    ),
    FindingKind.ENVIRONMENT_NOT_PROVED: (
        "Nothing shows that these variables reached the server: give the launcher an `environ` "
        "command, or for NCCL's own set NCCL_DEBUG=INFO."
    ),
    FindingKind.ACCESS_REFUSED: (
        "Some of what the server could tell or do was not to be had: give its key with "
        "--api-key-env or --api-key-file; abort and flush may need --admin-api-key-env or "
        "--admin-api-key-file."
    ),
    FindingKind.DIFFERENT_MACHINES: (
        "A difference of machines is in the gain: measure both arms on one machine, one after the "
        "other, before you believe it."
    ),
    FindingKind.BUDGET_DROPPED: (
        "Give a larger --budget, or ask for less with --only; what was measured stands."
    ),
    FindingKind.LAUNCH_FAILED: (
        "Read the end of the server's log; what was measured before it stands."
    ),
}

_STATUS: Final = {
    Severity.NOTE: CellStatus.VALID,
    Severity.SUSPECT: CellStatus.SUSPECT,
    Severity.INVALID: CellStatus.INVALID,
}
_ORDER: Final = (CellStatus.VALID, CellStatus.SUSPECT, CellStatus.INVALID)


def make_finding(
    kind: FindingKind,
    severity: Severity,
    message: str,
    *,
    cell_id: str | None = None,
    arm: str | None = None,
) -> Finding:
    """A finding with the advice of its kind."""
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        advice=ADVICE[kind],
        cell_id=cell_id,
        arm=arm,
    )


def worst_status(statuses: Iterable[CellStatus]) -> CellStatus:
    """The worst of several statuses; VALID of none."""
    return max(statuses, key=_ORDER.index, default=CellStatus.VALID)


def status_of(findings: Iterable[Finding]) -> CellStatus:
    """What findings make of the cell they concern."""
    return worst_status(_STATUS[f.severity] for f in findings)


def with_findings(measurement: Measurement, findings: Iterable[Finding]) -> Measurement:
    """The measurement with its status after more findings; those of other cells are ignored."""
    own = status_of(f for f in findings if f.cell_id == measurement.cell_id)
    return dataclasses.replace(measurement, status=worst_status((measurement.status, own)))
