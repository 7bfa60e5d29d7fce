"""As much of PyTorch as the all-reduce script uses, on GPUs that are made up.

NCCL_ALGO decides: Ring is fast for small messages, Tree for large ones, Wrong adds wrongly, Crash
raises, Hang never comes back, Die ends the process. FAKE_GPUS is how many there are. Time is a
number that replaying a graph adds to.
"""

import contextlib
import os
import random

__version__ = "9.9"
bfloat16, float32 = "bfloat16", "float32"
BYTES = {bfloat16: 2, float32: 4}

clock = {"us": 0.0, "captured": None}
start = random.SystemRandom().gauss(1, 0.002)  # how this start differs from the next


def cost_us(size):
    slope = {"Ring": (10, 3e-4), "Tree": (40, 1e-4)}.get(
        os.environ.get("NCCL_ALGO", ""), (20, 4e-4)
    )
    return (slope[0] + slope[1] * size) * start


class Tensor:
    def __init__(self, values, size=0):
        self.values, self.size = values, size

    def fill_(self, value):
        self.values = [value]

    def zero_(self):
        self.fill_(0.0)

    def __eq__(self, other):
        return Tensor([value == other for value in self.values])

    __hash__ = None

    def all(self):
        return Tensor([all(self.values)])

    def item(self):
        return self.values[0]

    def __getitem__(self, place):
        return self.values[place]


def zeros(count, dtype, device):
    return Tensor([0.0], count * BYTES[dtype])


def tensor(values, device):
    return Tensor(values)


def set_num_threads(count):
    pass


class Stream:
    def wait_stream(self, other):
        pass


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.us = clock["us"]

    def elapsed_time(self, last):
        return (last.us - self.us) / 1e3


class CUDAGraph:
    us = 0.0

    def replay(self):
        clock["us"] += self.us


class nccl:  # noqa: N801  # as torch has it
    @staticmethod
    def version():
        return (2, 30, 1)


class cuda:  # noqa: N801  # as torch has it
    Stream, Event, CUDAGraph, nccl = Stream, Event, CUDAGraph, nccl

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        return int(os.environ["FAKE_GPUS"])

    @staticmethod
    def get_device_name(index):
        return f"made up {index}"

    @staticmethod
    def set_device(index):
        assert index < int(os.environ["FAKE_GPUS"])

    @staticmethod
    def current_stream():
        return Stream()

    @staticmethod
    def stream(stream):
        assert isinstance(stream, Stream)
        return contextlib.nullcontext()

    @staticmethod
    def synchronize():
        pass

    @staticmethod
    @contextlib.contextmanager
    def graph(graph, capture_error_mode):
        assert capture_error_mode == "thread_local"
        clock["captured"] = graph
        yield
        clock["captured"] = None
