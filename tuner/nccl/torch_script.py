"""Run by the Python of the server's environment: times all-reduces through torch.distributed.

It is handed over as text (`python -c`) with one argument, a JSON job, so it imports nothing of
ours. It forks the ranks with the variables that torchrun gives them (RANK, LOCAL_RANK,
WORLD_SIZE), and ends when all have ended; when one fails, or time is up, the others are killed.
What is to be read are lines of standard output that begin with a marker, JSON behind it: `probe`,
`begin`, one `size` each, `error`. Everything else there is NCCL's own log.

On NCCL a size is timed as SGLang runs it: captured in a CUDA graph, in place, replayed, by CUDA
events; the slowest rank counts. On gloo, which has no graphs, a loop by the CPU's clock: that
proves the way from end to end and says nothing of NCCL.

The job's keys: task (`probe` or `time`), backend, world_size, sizes (bytes), element_bytes, calls
(all-reduces a graph), replays, blocks, timeout_s, environment ({name: value or null}).
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from timeit import default_timer  # the process's own clock: bench's is not there
from typing import Any

MARKER = "specdyno-nccl: "
Torch = Any  # its modules and tensors: torch is not here to be named
_FAILED = 1
_TIMED_OUT = 3


def main(argument: str) -> int:
    """Do the job; the exit status."""
    job = json.loads(argument)
    for name, value in job["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if job["task"] == "probe":
        return _probe()
    with tempfile.TemporaryDirectory() as folder:
        return _run_ranks(job, Path(folder) / "store")


def _say(kind: str, **values: object) -> None:
    """One line in one write, so that the lines of several ranks do not mix."""
    sys.stdout.flush()
    os.write(1, f"\n{MARKER}{json.dumps({'kind': kind, **values})}\n".encode())


def _probe() -> int:
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except Exception as error:  # noqa: BLE001  # whatever an import may raise
        _say("error", text=f"torch cannot be imported: {type(error).__name__}: {error}")
        return _FAILED
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    nccl = torch.distributed.is_nccl_available() and gpus > 0
    version = ".".join(map(str, torch.cuda.nccl.version())) if nccl else None
    names = [torch.cuda.get_device_name(index) for index in range(gpus)]
    _say("probe", torch=torch.__version__, gpus=gpus, names=names, nccl=version)
    return 0


def _run_ranks(job: dict[str, Any], store: Path) -> int:
    """Fork the ranks and wait; the first failure or the time-out ends all."""
    children: dict[int, int] = {}
    for rank in range(job["world_size"]):
        child = os.fork()
        if child == 0:
            os._exit(_as_rank(job, rank, store))
        children[child] = rank

    def kill_all(*_arguments: object) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:  # what holds a GPU must be gone before the next start
            os.waitpid(child, 0)
        _say("error", text=f"no end within {job['timeout_s']:g} s: a hang")
        os._exit(_TIMED_OUT)

    signal.signal(signal.SIGALRM, kill_all)
    signal.alarm(max(int(job["timeout_s"]), 1))
    failed = False
    while children:
        child, status = os.wait()
        rank = children.pop(child)
        if status == 0:
            continue
        if not failed and os.WIFSIGNALED(status):
            _say("error", text=f"rank {rank} ended by signal {os.WTERMSIG(status)}")
        failed = True
        for other in children:
            os.kill(other, signal.SIGKILL)
    signal.alarm(0)
    return _FAILED if failed else 0


def _as_rank(job: dict[str, Any], rank: int, store: Path) -> int:
    size = job["world_size"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    try:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
        on_gpu = job["backend"] == "nccl"
        if on_gpu:
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(1)
        dist.init_process_group(
            job["backend"],
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=dt.timedelta(seconds=job["timeout_s"]),
        )
        if rank == 0:
            _say("begin", backend=job["backend"], world_size=size, torch=torch.__version__)
        for message_bytes in job["sizes"]:
            us, right = _one_size(torch, dist, job, message_bytes)
            if rank == 0:
                _say("size", bytes=message_bytes, us=us, right=right)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:  # noqa: BLE001  # told by the parent's line, whatever it is
        _say("error", text=f"rank {rank}: {type(error).__name__}: {error}"[:2000])
        return _FAILED
    return 0


def _one_size(
    torch: Torch, dist: Torch, job: dict[str, Any], message_bytes: int
) -> tuple[float, bool]:
    """Microseconds of one all-reduce, and whether sums come out right."""
    on_gpu = job["backend"] == "nccl"
    kind = torch.bfloat16 if job["element_bytes"] == 2 else torch.float32
    device = "cuda" if on_gpu else "cpu"
    tensor = torch.zeros(message_bytes // job["element_bytes"], dtype=kind, device=device)
    size = dist.get_world_size()
    # Small whole numbers, which bfloat16 adds without an error.
    tensor.fill_(float(1 + dist.get_rank() % 2))
    dist.all_reduce(tensor)
    right = bool((tensor == sum(1 + rank % 2 for rank in range(size))).all().item())
    tensor.zero_()
    replay = _captured(torch, dist, tensor, job["calls"]) if on_gpu else None
    blocks = []
    for _ in range(job["blocks"]):
        dist.barrier()
        if replay is None:
            began = default_timer()
            for _ in range(job["calls"]):
                dist.all_reduce(tensor)
            blocks.append((default_timer() - began) * 1e6 / job["calls"])
            continue
        replay()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(job["replays"]):
            replay()
        last.record()
        torch.cuda.synchronize()
        blocks.append(first.elapsed_time(last) * 1e3 / (job["calls"] * job["replays"]))
    told = torch.tensor([sorted(blocks)[len(blocks) // 2], float(not right)], device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return float(told[0]), not float(told[1])


def _captured(torch: Torch, dist: Torch, tensor: Torch, calls: int) -> Torch:
    """A graph of `calls` all-reduces, as a function that replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            dist.all_reduce(tensor)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads (NCCL's watchdog) may ask the driver for things that a global capture forbids.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return graph.replay


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
