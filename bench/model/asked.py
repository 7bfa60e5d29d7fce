"""What is asked: servers, workloads, loads, and the plan of cells made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

# The records are read back by their type hints, which must resolve.
from bench.model.concluded import Finding  # noqa: TC001

BASELINE = "baseline"


class Api(StrEnum):
    """The HTTP API that requests go through."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherTemplate:
    """How a server is started through another program: argv lists with places to fill in.

    A place is `{argv}`, `{env}`, `{name}`, `{port}`, `{local_port}` (of this machine, to forward
    from) or `{term_s}` (docs/launchers.md). A word that is just `{argv}` or `{env}` becomes as
    many words as these have; inside a longer word they are quoted for a shell.

    Attributes:
        kind: `docker`, `ssh`, `srun`, `kubectl` or `template`.
        start: Starts the server; stays in the foreground, or ends with status 0 once it has.
        stop: Ends the server in order.
        force_stop: Ends it for certain and clears up; run last at every stop.
        alive: Ends with status 0, and prints something if and only if the server lives.
        log: Follows its log, where `start` does not print it.
        forward: Makes its port reachable, for as long as it runs.
        environ: Prints the environments of its processes as /proc/PID/environ has them; of
            several, each with the bytes 0, 1 and 0 behind it.
        variable: The words that pass one variable on, `{name}` and `{value}` filled in.
        bind: What the server is given as `--host`.
        base_url: Where bench reaches it.
        gpus_seen: Whether its GPUs are this machine's.
        gpu_watch: Prints its GPUs ten times a second, in nvidia-smi's CSV.
    """

    kind: str
    start: tuple[str, ...]
    stop: tuple[str, ...]
    force_stop: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    variable: tuple[str, ...] = ()
    bind: str = "127.0.0.1"
    base_url: str = "http://127.0.0.1:{port}"
    gpus_seen: Literal["local", "remote"] = "remote"
    gpu_watch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where an API key is read from; never the key itself."""

    kind: Literal["env", "file"]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything that decides what one server is; equal values need no restart (`server_key`).

    Attributes:
        arguments: SGLang's arguments as on its command line, without host and port, model and
            draft paths included.
        environment: Variables set for the server beside the inherited ones, sorted by name.
        launcher: `local` (a command run here), `template` (started through another program),
            `simulated` (the bundled simulator) or `attached` (already running).
        command: The argv before `arguments` of a local launcher, e.g. ("python3", "-m",
            "sglang.launch_server").
        resolve: The command of a Python in which SGLang can be imported, asked before a launch
            what it makes of the arguments; empty: nobody is asked.
        working_dir: Where the command runs; None: bench's own.
        url: Base URL of an attached server, else None.
        template: How a server of the launcher `template` is started.
        exclusive: Attached servers only: whether bench may abort and flush there between cells.
        api_key: Where the key of its requests is read from; None: there is none.
        admin_api_key: Where the key of calls that abort and flush is read from; None: they need
            none, or the same.
        worker_urls: Base URLs of the workers behind it, where it is a router: all of them are
            read, emptied and asked what they run. Empty: it is one server.
        gpus: How many GPUs the server uses; 0 for a CPU server.
        hardware: Name of the hardware card, if one was named: for simulation and estimates.
        target_card: Name of the target's model card, likewise.
        acceptance: Simulated servers only: name of an acceptance card, or P(at least k drafts
            accepted) for k = 1, 2, …
        simulation_seed: Simulated servers only: seeds launch noise and acceptance.
        faults: Simulated servers only: what is to go wrong, as `bench.model.faults` reads it.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    launcher: Literal["local", "template", "simulated", "attached"] = "local"
    command: tuple[str, ...] = ()
    resolve: tuple[str, ...] = ()
    working_dir: str | None = None
    url: str | None = None
    template: LauncherTemplate | None = None
    exclusive: bool = False
    api_key: KeySource | None = None
    admin_api_key: KeySource | None = None
    worker_urls: tuple[str, ...] = ()
    gpus: int = 0
    hardware: str | None = None
    target_card: str | None = None
    acceptance: str | tuple[float, ...] | None = None
    simulation_seed: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters, always sent: a server's own defaults come from the model's files."""

    temperature: float
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the requests of a cell are.

    Attributes:
        name: Its name in the scenario.
        api: The API its requests use.
        dataset: `generated`, `jsonl` or `sharegpt`.
        dataset_path: The file of `jsonl` and `sharegpt`.
        categories: Categories of the generated prompts, empty for all.
        input_tok: Wanted prompt length in tokens (by the 4-bytes-a-token estimate unless a
            tokenizer is given); None: as they come.
        max_output_tok: The cap on generated tokens.
        sampling: Sent with every request.
        ignore_eos: Whether generation runs past the end of text to the cap; marked wherever
            results appear.
        chat_template_kwargs: As (key, value) pairs, e.g. (("thinking", False),).
        cache: `cold`, `primed` or `shared-prefix`.
        shared_prefix_share: Share of the prompt that is the same in all requests; only for
            `shared-prefix`.
        tokenizer_path: A tokenizer.json to measure prompt lengths and to count outputs that a
            server does not count.
        store_text: Whether output text is kept; else its hash only.
    """

    name: str
    api: Api
    dataset: Literal["generated", "jsonl", "sharegpt"]
    dataset_path: str | None = None
    categories: tuple[str, ...] = ()
    input_tok: int | None = None
    max_output_tok: int
    sampling: Sampling
    ignore_eos: bool = False
    chat_template_kwargs: tuple[tuple[str, bool | int | float | str], ...] = ()
    cache: Literal["cold", "primed", "shared-prefix"] = "cold"
    shared_prefix_share: float = 0.0
    tokenizer_path: str | None = None
    store_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How requests arrive.

    Attributes:
        kind: `closed` (a fixed number of slots, each always busy), `open` (a schedule of arrivals)
            or `capacity` (bisection over open rates for the highest that meets the limits).
        concurrency: Closed only: the number of slots.
        rate_per_s: Open only: mean arrivals a second.
        gaps: Open and capacity: how arrivals are spaced.
        gap_cv: Gamma gaps only: coefficient of variation (1 is Poisson).
        min_rate_per_s: Capacity only: the lowest rate tried.
        max_rate_per_s: Capacity only: the highest rate tried.
        probes: Capacity only: how many rates are tried.
    """

    kind: Literal["closed", "open", "capacity"]
    concurrency: int | None = None
    rate_per_s: float | None = None
    gaps: Literal["poisson", "constant", "gamma"] = "poisson"
    gap_cv: float = 1.0
    min_rate_per_s: float | None = None
    max_rate_per_s: float | None = None
    probes: int = 6

    @property
    def label(self) -> str:
        """`8` for a concurrency, `rate=4` for a rate, `capacity` for the search."""
        if self.kind == "closed":
            return str(self.concurrency)
        if self.kind == "open":
            return f"rate={self.rate_per_s:g}"
        return "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits a request must meet to count as goodput; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Every time-out there is, in seconds of the clock; passing one fails request or launch."""

    ready_s: float = 2700.0
    request_s: float = 600.0
    connect_s: float = 10.0
    drain_s: float = 120.0
    term_s: float = 30.0
    scrape_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement to make: arm × workload × load × pair.

    Attributes:
        cell_id: Hash of all that was asked and can change the numbers.
        comparison_key: The same hash without arm and pair: equal in the cells that are compared.
        requests: How many requests are sent after warm-up, fixed in advance and equal in every arm
            ("same work").
        warmup_requests: How many warm-up requests come before them (closed: a whole number a
            slot).
        steady_s: The least length of a window that is not called too short, in seconds.
        seed: The scenario's seed; request i of this workload uses `request_seed(seed, workload,
            i)`, never arm or pair.
        arm_is_speculative: Whether the arm's arguments turn speculation on.
    """

    cell_id: str
    comparison_key: str
    arm: str
    workload: Workload
    load: Load
    pair: int
    requests: int
    warmup_requests: int
    steady_s: float
    seed: int
    slo: Slo = field(default_factory=Slo)
    timeouts: Timeouts = field(default_factory=Timeouts)
    arm_is_speculative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of one server and the cells measured in it; the unit of replication.

    Attributes:
        ordinal: 0-based place in the plan.
        server_key: Hash of `server`: equal keys need no restart.
        estimated_s: What starting and measuring is expected to take, in seconds of the world.
        cells_s: What each of its cells is expected to take of that; the rest is its start.
    """

    ordinal: int
    arm: str
    pair: int
    server: ServerConfig
    server_key: str
    cells: tuple[Cell, ...]
    estimated_s: float
    cells_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Launches in an order such that stopping at any time leaves the most useful answer.

    Attributes:
        practical_margin: Speedups within ± this share of 1 are SAME (0.02 is 2 %).
        simulated: Whether the servers are simulated: then every output says so.
        speed: The clock's speed, 1 unless simulated.
        findings: What is worth knowing of the arms before anything is measured.
    """

    scenario: str
    question: str
    launches: tuple[Launch, ...]
    arms: tuple[str, ...]
    pairs: int
    simulated: bool
    speed: int
    practical_margin: float
    gpus: int
    findings: tuple[Finding, ...] = ()
