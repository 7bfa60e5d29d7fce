"""The schema of a scenario: what each key is, its unit and its default.

pydantic lives here, at the edge, and nowhere inside. Types are strict: a text is no number and a
number no text. Rules that concern several keys at once are in `bench.scenario.rules`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bench.model import Timeouts as TimeoutDefaults
from bench.scenario.fields import (
    MOST_DRAFT_TOKENS,
    MOST_STEPS,
    MOST_TOPK,
    Acceptance,
    ArgumentLines,
    Cache,
    Category,
    Environment,
    FaultText,
    KwargValue,
    Name,
    PositiveFloat,
    PositiveInt,
    Text,
    VariableName,
    Words,
    empty_for_null,
    no_literal_key,
)

_timeouts = TimeoutDefaults()


class _Block(BaseModel):
    """What all blocks have in common: no unknown keys, no conversions, no change after reading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class ModelRef(_Block):
    """A model's weights."""

    path: Text
    """A repository (owner/name), an absolute path, or one that begins with ./ or ../ (relative to
    this file) or ~/."""
    revision: Text
    """The branch, tag or commit. For a local folder, which has none: main."""


class Launcher(_Block):
    """How the server is started."""

    kind: Literal["local", "docker", "ssh", "srun", "kubectl", "template"] = "local"
    """local: the command is run on this machine; docker, ssh, srun, kubectl: through that program;
    template: as start and stop say. docs/launchers.md shows each."""
    command: tuple[Text, ...] = Field(
        default=("python3", "-m", "sglang.launch_server"), min_length=1
    )
    """The command before SGLang's arguments. {python} is the Python that runs bench; ./ and ../
    are relative to this file."""
    resolve: Words | None = None
    """The command of a Python in which SGLang can be imported. Before a launch it is asked what it
    makes of the arguments, which takes seconds. Left out: that of a command that ends in
    -m sglang.launch_server; [] asks nobody."""
    host: Text | None = None
    """The machine: of ssh as it takes it (user@gpu-7), of srun a node."""
    image: Text | None = None
    """The container image of docker and kubectl."""
    options: Words = ()
    """Words behind the program's name in each of its commands, e.g. [-p, 2222]."""
    start_options: Words = ()
    """Words for the command that starts a server alone, e.g. [--gpus, all]."""
    start: Words | None = None
    """Starts a server; {argv} is its command line, {env} its environment, {name} a name of its
    own, {port} its port, {local_port} one of this machine to forward from."""
    stop: Words | None = None
    """Ends the server called {name}; {term_s} is how long it may take. Templates must have it."""
    force_stop: Words | None = None
    """Ends it for certain, and clears up; run last at every stop."""
    alive: Words | None = None
    """Ends with status 0, and prints something if and only if the server lives."""
    log: Words | None = None
    """Follows the server's log, where start does not print it."""
    forward: Words | None = None
    """Makes the server's port reachable for as long as it runs."""
    environ: Words | None = None
    """Prints the environments of the server's processes as /proc/PID/environ has them."""
    variable: Words | None = None
    """The words of {env} for one variable: {variable} and {value}."""
    bind: Text | None = None
    """The address that the server is told to listen on."""
    base_url: Text | None = None
    """Where bench reaches the server, with {port} or {local_port}."""
    gpus_seen: Literal["local", "remote"] | None = None
    """Whether the server's GPUs are this machine's, to be watched through its driver."""
    gpu_watch: Words | None = None
    """Prints the GPUs of a server elsewhere; {nvidia_smi} is the command that does."""


class ApiKey(_Block):
    """Where an API key is read from; a scenario never holds one."""

    env: VariableName | None = None
    """The environment variable that holds it."""
    file: Text | None = None
    """The file that holds it and nothing else; ./ and ../ are relative to this file."""


class Server(_Block):
    """What all arms' servers have in common."""

    gpus: Annotated[int, Field(ge=0, le=4096)]
    """How many GPUs one server uses: for GPU-hours and per-GPU figures. 0 for a CPU server."""
    launcher: Launcher = Launcher()
    """How a server is started."""
    arguments: ArgumentLines
    """SGLang's arguments as on its command line, without model, host, port and speculation.
    --max-running-requests must be among them. ./ and ../ are relative to this file."""
    environment: Environment = {}
    """Variables set for the server beside the inherited ones; values need no quotes."""
    api_key: Annotated[ApiKey, BeforeValidator(no_literal_key)] | None = None
    """Where the server's API key is read from: {env: NAME} or {file: PATH}, never the key."""
    admin_api_key: Annotated[ApiKey, BeforeValidator(no_literal_key)] | None = None
    """Where its admin key (SGLang's --admin-api-key) is read from, if it has one of its own; sent
    with the calls that abort and flush alone."""
    worker_urls: tuple[Text, ...] = ()
    """Base URLs of the workers, where the server is a router before several: each is read, emptied
    between cells and asked for its settings, so that one never stands for all."""


class Speculative(_Block):
    """Speculative decoding: --speculative-… arguments. SGLang chooses what is left out."""

    algorithm: Text
    """--speculative-algorithm: EAGLE3, EAGLE, NEXTN, STANDALONE, NGRAM, …"""
    num_steps: Annotated[int, Field(ge=0, le=MOST_STEPS)] | None = None
    """--speculative-num-steps: draft steps of one cycle."""
    eagle_topk: Annotated[int, Field(ge=1, le=MOST_TOPK)] | None = None
    """--speculative-eagle-topk: candidates kept at each draft step; 1 is a chain."""
    num_draft_tokens: Annotated[int, Field(ge=1, le=MOST_DRAFT_TOKENS)] | None = None
    """--speculative-num-draft-tokens: tokens verified at once; num_steps + 1 for a chain."""


class ArmSim(_Block):
    """What the simulator must be told of an arm."""

    acceptance: Acceptance | None = None
    """An acceptance card's name, or the shares P(at least k drafts accepted) for k = 1, 2, …"""
    faults: tuple[FaultText, ...] = ()
    """What is to go wrong with the simulated server, e.g. ["crash:cell=2", "stall:p=0.01"]:
    docs/faults.md."""


class Arm(_Block):
    """A difference in server configuration; `baseline: {}` is the server without speculation."""

    arguments: ArgumentLines = ()
    """More arguments of SGLang, after the server's: the last one of a kind counts."""
    environment: Environment = {}
    """More environment variables; they win over the server's."""
    speculative: Speculative | None = None
    """Speculative decoding; none in the baseline."""
    worker_urls: tuple[Text, ...] | None = None
    """The workers behind this arm's server in place of the server's."""
    draft: ModelRef | None = None
    """The draft model of this arm in place of the scenario's; null: an algorithm without one."""
    sim: ArmSim = ArmSim()
    """What the simulator must be told of this arm."""


class Sampling(_Block):
    """Sent with every request: a server's own defaults come from the model's files."""

    temperature: Annotated[float, Field(ge=0)]
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling; 1 is off."""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """Keep the k likeliest tokens; -1 is off."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Least probability relative to the likeliest token; 0 is off."""


class Rate(_Block):
    """An open load: requests arrive on a schedule, whether earlier ones have ended or not."""

    rate_per_s: PositiveFloat
    """Mean arrivals a second."""
    gaps: Literal["poisson", "constant", "gamma"] = "poisson"
    """How arrivals are spaced."""
    gap_cv: PositiveFloat = 1.0
    """Coefficient of variation of gamma gaps; 1 is Poisson, more is burstier."""


class Capacity(_Block):
    """A search, by bisection over open rates, for the highest rate that meets the slo."""

    min_rate_per_s: PositiveFloat
    """The lowest rate tried."""
    max_rate_per_s: PositiveFloat
    """The highest rate tried."""
    probes: Annotated[int, Field(ge=1, le=20)] = 6
    """How many rates are tried."""
    gaps: Literal["poisson", "constant", "gamma"] = "poisson"
    """How arrivals are spaced."""
    gap_cv: PositiveFloat = 1.0
    """Coefficient of variation of gamma gaps."""


class Loads(_Block):
    """How requests arrive; every kind given is measured."""

    concurrency: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = ()
    """Closed loads: numbers of requests kept in flight."""
    rates: tuple[Rate, ...] = ()
    """Open loads."""
    capacity: Capacity | None = None
    """The highest rate that meets the slo."""


class Workload(_Block):
    """What the requests are."""

    api: Literal["chat", "completions", "generate"] = "chat"
    """/v1/chat/completions, /v1/completions or SGLang's own /generate."""
    dataset: Literal["generated", "jsonl", "sharegpt"] = "generated"
    """generated: prompts of our own writing; jsonl: a prompt or a list of messages a line;
    sharegpt: ShareGPT's JSON."""
    dataset_path: Text | None = None
    """The file of jsonl and sharegpt; ./ and ../ are relative to this file."""
    categories: tuple[Category, ...] = ()
    """Categories of the generated prompts; empty: all."""
    input_tok: PositiveInt | None = None
    """Length of a prompt in tokens (at 4 bytes a token unless tokenizer_path is given); left out:
    as they come."""
    max_output_tok: PositiveInt
    """The cap on generated tokens; an answer may end before it."""
    sampling: Sampling
    """Sampling parameters, always explicit."""
    ignore_eos: bool = False
    """Generate to the cap even past the end of text. Such text loops and flatters acceptance:
    results are marked."""
    chat_template_kwargs: dict[Text, KwargValue] = {}
    """Passed to the chat template, e.g. {thinking: false} to turn reasoning off."""
    cache: Cache = "cold"
    """cold: no prompt finds a prefix in the server's cache. primed: every prompt was sent before.
    shared-prefix:SHARE: this share of each prompt is the same in all requests, and cached."""
    loads: Loads | None = None
    """Loads of this workload in place of the scenario's."""
    tokenizer_path: Text | None = None
    """A tokenizer.json to measure prompts and to count outputs that a server does not count."""
    store_text: bool = False
    """Keep output text with the results; else its hash only."""


class Measure(_Block):
    """How long and how often to measure."""

    warmup_requests_per_slot: PositiveInt = 1
    """Requests of each slot before measuring begins."""
    steady_s: PositiveFloat = 60.0
    """Least length of a measured window in seconds; a shorter one is marked."""
    requests_per_slot: PositiveInt = 5
    """Least number of measured requests of each slot."""
    pairs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Launches of each arm, each next to one of the baseline. With 1 there is no verdict."""
    practical_margin: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Speedups within ± this share of 1 are SAME."""
    expected_output_tok_per_s_per_user: PositiveFloat = 50.0
    """What one user is expected to get at most: sizes the number of requests of a scenario that
    names no hardware and target cards."""


class SimMeasure(_Block):
    """Keys of `measure` that a simulated run has otherwise; what is left out stays."""

    warmup_requests_per_slot: PositiveInt | None = None
    """In place of measure.warmup_requests_per_slot."""
    steady_s: PositiveFloat | None = None
    """In place of measure.steady_s."""
    requests_per_slot: PositiveInt | None = None
    """In place of measure.requests_per_slot."""
    pairs: Annotated[int, Field(ge=1, le=1000)] | None = None
    """In place of measure.pairs."""
    practical_margin: Annotated[float, Field(ge=0, lt=1)] | None = None
    """In place of measure.practical_margin."""


class Slo(_Block):
    """Limits that a request must meet to count as goodput; those left out are no limits."""

    ttft_ms: PositiveFloat | None = None
    """Time to the first token."""
    tpot_ms: PositiveFloat | None = None
    """Mean time a token after the first."""
    e2e_ms: PositiveFloat | None = None
    """Time to the last byte."""


class Timeouts(_Block):
    """Every time-out, in seconds. Passing one fails the request or the launch and is counted."""

    ready_s: PositiveFloat = _timeouts.ready_s
    """A server gets ready: without progress in its log, memory or disk reads."""
    request_s: PositiveFloat = _timeouts.request_s
    """One request, to its last byte."""
    connect_s: PositiveFloat = _timeouts.connect_s
    """One connection."""
    drain_s: PositiveFloat = _timeouts.drain_s
    """What is in flight at the end of a cell, and the server's own emptying between cells."""
    term_s: PositiveFloat = _timeouts.term_s
    """A server ends after TERM, before KILL."""
    scrape_s: PositiveFloat = _timeouts.scrape_s
    """One reading of the server's metrics."""


class Sim(_Block):
    """What the simulator stands for. The cards also size and estimate real runs."""

    hardware: Text
    """Name of a hardware card."""
    target: Text
    """Name of a target model card."""
    acceptance: Acceptance | None = None
    """Acceptance of speculative arms that give none themselves: a card's name or shares."""
    speed: Annotated[int, Field(ge=1, le=10)] = 1
    """How much faster than the world the simulation's clock may run; accuracy checks run at 1."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seeds launch noise and acceptance."""
    measure: SimMeasure = SimMeasure()
    """Keys of `measure` that simulated runs have otherwise."""


class Scenario(_Block):
    """A question about a server, and all that is needed to answer it."""

    name: Name
    """Names the folder of the results."""
    question: Text
    """What the scenario asks, in prose; printed with the answer."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seeds prompts, arrivals and sampling, equally in all arms."""
    target: ModelRef
    """The model that is served."""
    draft: ModelRef | None = None
    """The draft model of speculative arms that name none."""
    server: Server
    """What all arms' servers have in common."""
    arms: dict[Name, Annotated[Arm, BeforeValidator(empty_for_null)]]
    """The configurations that are compared; `baseline` is always one."""
    workloads: dict[Name, Workload] = Field(min_length=1)
    """What the requests are."""
    loads: Loads = Loads()
    """How requests arrive, for every workload without loads of its own."""
    measure: Measure = Measure()
    """How long and how often to measure."""
    slo: Slo = Slo()
    """Limits that a request must meet to count as goodput."""
    timeouts: Timeouts = Timeouts()
    """Every time-out."""
    sim: Sim | None = None
    """What the simulator stands for; needed by --sim."""
    tune: dict[str, Any] | None = None
    """Read and checked by the tuner."""
