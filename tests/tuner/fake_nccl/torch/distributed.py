"""See the package."""

import os
import time
from pathlib import Path

import torch


class ReduceOp:
    MAX = "max"


def say(line):
    os.write(1, f"{line}\n".encode())


def is_nccl_available():
    return True


def init_process_group(backend, init_method, rank, world_size, timeout):
    assert backend in {"nccl", "gloo"}
    assert init_method.startswith("file://")
    assert (rank, world_size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if (folder := os.environ.get("FAKE_PIDS")) is not None:
        (Path(folder) / str(os.getpid())).touch()
    algorithm = os.environ.get("NCCL_ALGO")
    if algorithm == "Hang":
        time.sleep(600)
    if algorithm == "Die" and rank == 1:
        os.kill(os.getpid(), 11)
    if algorithm == "Crash":
        say("h:1:1 [0] init.cc:9 NCCL WARN no such algorithm")
        raise RuntimeError("NCCL error in: ncclInvalidUsage")
    if os.environ.get("NCCL_DEBUG") == "INFO" and algorithm is not None:
        say(f"h:1:1 [{rank}] NCCL INFO NCCL_ALGO set by environment to {algorithm}")


def all_reduce(tensor, op=None):
    if op is not None:
        return
    size = int(os.environ["WORLD_SIZE"])
    if tensor.values[0]:
        wrong = os.environ.get("NCCL_ALGO") == "Wrong"
        tensor.fill_(float(sum(1 + rank % 2 for rank in range(size)) + wrong))
    graph = torch.clock["captured"]
    if graph is not None:
        graph.us += torch.cost_us(tensor.size)
    if os.environ.get("NCCL_DEBUG") == "INFO" and os.environ["RANK"] == "0":
        algorithm = os.environ.get("NCCL_ALGO", "Ring").upper()
        say(
            f"h:1:1 [0] NCCL INFO AllReduce: {tensor.size} Bytes -> Algo {algorithm} proto LL "
            "channel{Lo..Hi}={0..3}"
        )


def get_world_size():
    return int(os.environ["WORLD_SIZE"])


def get_rank():
    return int(os.environ["RANK"])


def barrier():
    pass


def destroy_process_group():
    pass
