"""Cards: what is known of a node, a target model and a draft's acceptance.

They are read from the YAML files in `cards/` beside this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import InputError
from bench.physics.acceptance import AcceptanceCard

if TYPE_CHECKING:
    from collections.abc import Mapping

_CARDS = Path(__file__).parent / "cards"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareCard:
    """One node of equal GPUs and what a forward costs on it.

    Attributes:
        name: The card's name.
        gpu: The GPU's name as NVML gives it.
        gpus: GPUs of the node.
        memory_gib: Memory of one GPU, GiB.
        bandwidth_gb_per_s: Peak memory bandwidth of one GPU, 10^9 bytes a second.
        bandwidth_efficiency: The share of it that weights and KV are read at.
        effective_tflops: Dense BF16 rate that one GPU reaches in a model's matrix products, 10^12
            operations a second.
        interconnect: How the GPUs are joined; for people.
        allreduce_us: Time of one all-reduce over all GPUs by message size: (bytes, µs), sizes
            rising.
        fixed_ms: Host and launch time of one target forward that runs as a CUDA graph.
        eager_extra_ms: What it takes more without a graph: the launch of about 1000 kernels.
        draft_step_ms: One forward of a one-layer EAGLE draft, its all-reduces not counted.
        launch_sd: Standard deviation of the factor by which one start of a server differs from the
            next.
        step_sd: The same for the steps of one server.
        source: Where the numbers come from and which were fitted.
    """

    name: str
    gpu: str
    gpus: int
    memory_gib: float
    bandwidth_gb_per_s: float
    bandwidth_efficiency: float
    effective_tflops: float
    interconnect: str
    allreduce_us: tuple[tuple[int, float], ...]
    fixed_ms: float
    eager_extra_ms: float
    draft_step_ms: float
    launch_sd: float
    step_sd: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPart:
    """Weights that every forward reads whole.

    Attributes:
        parameters: In the whole model.
        bits: Per parameter, scales included.
        replicated: Whether every tensor-parallel rank holds and reads all of it.
    """

    name: str
    parameters: int
    bits: float
    replicated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCard:
    """A target model: its shape and the bytes that a forward reads.

    Attributes:
        name: The card's name.
        architecture: `architectures[0]` of the model's config.json: decides SGLang's automatic
            speculative parameters.
        model_type: `model_type` of the same file.
        hidden: Hidden size: an all-reduce moves 2·hidden bytes a token.
        layers: Transformer layers.
        moe_layers: Those with routed experts; 0 for a dense model.
        experts: Routed experts of a layer.
        experts_per_token: Routed experts that a token goes through.
        expert_parameters: Of one routed expert.
        expert_bits: Bits per parameter of the routed experts, scales included.
        parts: Everything else that a forward reads.
        idle_parameters: Held in memory and not read whole by a decoding step (embedding, vision
            tower).
        idle_bits: Bits per parameter of these.
        kv_bytes_per_token_per_layer: KV cache of one token in one layer, all ranks together unless
            replicated.
        kv_replicated: Whether every rank holds all of it (MLA's latent).
        attention_flop_per_pair: Operations of all layers for one (query, key) pair.
        draft_parameters: Of the EAGLE-3 draft that goes with it, 16 bit each.
        vocab_size: Tokens of the vocabulary.
        context_len: Longest context, tokens.
        eos_token_id: The token that ends an answer.
        source: Where the numbers come from.
    """

    name: str
    architecture: str
    model_type: str
    hidden: int
    layers: int
    moe_layers: int
    experts: int
    experts_per_token: int
    expert_parameters: int
    expert_bits: float
    parts: tuple[WeightPart, ...]
    idle_parameters: int
    idle_bits: float
    kv_bytes_per_token_per_layer: int
    kv_replicated: bool
    attention_flop_per_pair: float
    draft_parameters: int
    vocab_size: int
    context_len: int
    eos_token_id: int
    source: str

    @property
    def active_parameters(self) -> int:
        """Parameters that one token goes through."""
        routed = self.moe_layers * self.experts_per_token * self.expert_parameters
        return routed + sum(part.parameters for part in self.parts)

    @property
    def total_parameters(self) -> int:
        """Parameters of the whole model."""
        routed = self.moe_layers * self.experts * self.expert_parameters
        return routed + sum(part.parameters for part in self.parts) + self.idle_parameters


def load_hardware(name: str) -> HardwareCard:
    """The hardware card `name`; InputError with the nearest names when there is none."""
    card = _read("hardware", name)
    table = tuple((int(size), float(us)) for size, us in card.pop("allreduce_us"))
    return HardwareCard(name=name, allreduce_us=table, **card)


def load_target(name: str) -> TargetCard:
    """The target card `name`; InputError with the nearest names when there is none."""
    card = _read("targets", name)
    parts = tuple(WeightPart(**part) for part in card.pop("parts"))
    return TargetCard(name=name, parts=parts, **card)


def load_acceptance(name: str | tuple[float, ...]) -> AcceptanceCard:
    """The acceptance card `name`, or a card of given numbers.

    Numbers are P(at least k drafts accepted) for k = 1, 2, …; a string such as `0.36,0.14,0.07`
    gives the numbers too.

    Raises:
        InputError: No such card, with the nearest names; or numbers that are not falling between 0
            and 1.
    """
    if isinstance(name, tuple):
        return AcceptanceCard(
            name=",".join(f"{p:g}" for p in name), reach=name, source="given by the user"
        )
    try:
        given = tuple(float(part) for part in name.split(","))
    except ValueError:
        card = _read("acceptance", name)
        thinking = card.pop("reach_thinking", None)
        return AcceptanceCard(
            name=name,
            reach=tuple(card.pop("reach")),
            reach_thinking=None if thinking is None else tuple(thinking),
            **card,
        )
    return AcceptanceCard(name=name, reach=given, source="given by the user")


def _read(kind: str, name: str) -> dict[str, Any]:
    folder = _CARDS / kind
    path = folder / f"{name}.yaml"
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(
            f"no {_TITLES[kind]} card {name!r}",
            hint=f"{_nearest(name, known)}Cards: {', '.join(known)}.",
        )
    import yaml  # noqa: PLC0415  # only where a card is read

    # The C loader halves the simulator's start; a build without libyaml has the Python one only.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    card: Mapping[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  # both are safe loaders
    return dict(card)


_TITLES = {"hardware": "hardware", "targets": "target", "acceptance": "acceptance"}


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415  # only for the error message

    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}? " if close else ""
