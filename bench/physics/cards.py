"""Cards: what is known of a node, of a target model and of the draft that goes with it.

They are read from YAML (`bench.physics.reading`); an acceptance card is in
`bench.physics.acceptance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Transport = Literal["nvlink", "pcie"]
AllreducePath = Literal["custom", "fused", "nvls", "nccl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How the GPUs of a node talk to one another; figures for `bench.physics.allreduce`.

    Attributes:
        transport: What NCCL's rings run over.
        bus_gb_per_s: Bus bandwidth of a large NCCL ring, 10^9 bytes a second.
        nccl_channels: Channels NCCL opens when told nothing.
        channel_gb_per_s: What one channel moves, 10^9 bytes a second.
        one_shot_us: Time of SGLang's own all-reduce of a few bytes; None: it does not run here
            (it wants NVLink, or no more than two GPUs).
        link_gb_per_s: What one GPU reads from its peers in one direction; None with `one_shot_us`.
        nvls: Whether NVSwitch can reduce (NCCL's NVLS).
        default_path: What SGLang uses on this node when told nothing: the path of the card's
            `allreduce_us`.
    """

    transport: Transport
    bus_gb_per_s: float
    nccl_channels: int
    channel_gb_per_s: float
    one_shot_us: float | None = None
    link_gb_per_s: float | None = None
    nvls: bool = False
    default_path: AllreducePath = "nccl"


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
            operations a second; 8-bit operands go twice, 4-bit operands four times as fast.
        interconnect: How the GPUs are joined; for people.
        allreduce_us: Time of one all-reduce over all GPUs on the default path by message size:
            (bytes, µs), sizes rising. One GPU alone has none.
        links: What the other paths and settings cost; None for one GPU.
        fixed_ms: Host and GPU time of a forward that belongs to no layer: scheduling, sampling.
        layer_us: What a layer takes beyond reading and computing when it runs as a CUDA graph:
            gaps between kernels, norms, rotary embedding.
        eager_layer_us: Host time to launch a layer's kernels without a graph.
        draft_fixed_ms: One forward of a one-layer draft in a graph, beyond its bytes and
            all-reduces: its kernels, the choice of candidates.
        tree_layer_us: What a layer's attention takes more when a tree is verified (topk > 1).
        tree_step_us: The same for each draft step of a tree.
        cycle_fixed_ms: What a draft-and-verify cycle adds once: building the tree, accepting,
            moving KV.
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
    allreduce_us: tuple[tuple[int, float], ...] = ()
    links: Links | None = None
    fixed_ms: float
    layer_us: float
    eager_layer_us: float
    draft_fixed_ms: float
    tree_layer_us: float
    tree_step_us: float
    cycle_fixed_ms: float = 0.0
    launch_sd: float
    step_sd: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPart:
    """Weights that every forward reads whole.

    Attributes:
        parameters: In the whole model.
        bits: Per parameter, scales included.
        compute_bits: Of the operands it is multiplied in: 16 for weight-only quantisation.
        shards: The most tensor-parallel ranks it is split over; more ranks hold copies. 1: every
            rank holds and reads all of it; the KV heads for a K or V projection; None: as many
            as there are.
        extend_only: Of a draft: read in the first forward of a cycle only, which takes in what was
            verified (EAGLE-3's fc).
    """

    name: str
    parameters: int
    bits: float
    compute_bits: int = 16
    shards: int | None = None
    extend_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCard:
    """A draft model: what its forwards read.

    Attributes:
        name: The card's name.
        method: SGLang's algorithm for it: EAGLE3, EAGLE or NEXTN.
        hidden: Hidden size: an all-reduce moves 2·hidden bytes a token.
        layers: Transformer layers; an EAGLE draft has one.
        parts: What a forward reads, the vocabulary head included. The embedding is looked up in.
        experts: Routed experts of a layer (NEXTN of a MoE model); 0 for a dense draft.
        experts_per_token: Routed experts that a token goes through.
        expert_parameters: Of one routed expert.
        expert_bits: Bits per parameter of them, scales included.
        expert_compute_bits: Of the operands they are multiplied in.
        idle_parameters: Held in memory and not read whole (its own embedding).
        idle_bits: Bits per parameter of these.
        kv_bytes_per_token_per_layer: KV cache of one token in one layer, before it is split.
        kv_shards: The most ranks that KV is split over (KV heads; 1: every rank holds all).
        source: Where the numbers come from.
    """

    name: str
    method: str
    hidden: int
    layers: int = 1
    parts: tuple[WeightPart, ...]
    experts: int = 0
    experts_per_token: int = 0
    expert_parameters: int = 0
    expert_bits: float = 16
    expert_compute_bits: int = 16
    idle_parameters: int = 0
    idle_bits: float = 16
    kv_bytes_per_token_per_layer: int
    kv_shards: int
    source: str

    @property
    def moe_layers(self) -> int:
        """Its layers with routed experts."""
        return self.layers if self.experts else 0


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
        expert_compute_bits: Of the operands they are multiplied in.
        parts: Everything else that a forward reads.
        idle_parameters: Held in memory and not read whole by a decoding step (embedding, vision
            tower).
        idle_bits: Bits per parameter of these.
        kv_bytes_per_token_per_layer: KV cache of one token in one layer, before it is split.
        kv_shards: The most ranks that KV is split over (KV heads); more ranks hold copies. 1:
            every rank holds all of it (MLA's latent).
        attention_flop_per_pair: Operations of all layers for one (query, key) pair of a prefill.
        decode_attention_flop_per_pair: The same while decoding: MLA attends to its latent then;
            None: as in a prefill.
        draft: The draft that goes with it; None: none is known.
        vocab_size: Tokens of the vocabulary.
        context_len: Longest context, tokens.
        eos_token_id: The token that ends an answer.
        fixed_ms: Fitted: host and launch time of a whole forward in a graph, in place of the
            hardware's `fixed_ms` and `layer_us`; None: not fitted.
        cycle_fixed_ms: Fitted: in place of the hardware's `cycle_fixed_ms`; None: not fitted.
        source: Where the numbers come from.
    """

    name: str
    architecture: str
    model_type: str
    hidden: int
    layers: int
    moe_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_parameters: int = 0
    expert_bits: float = 16
    expert_compute_bits: int = 16
    parts: tuple[WeightPart, ...]
    idle_parameters: int
    idle_bits: float
    kv_bytes_per_token_per_layer: int
    kv_shards: int
    attention_flop_per_pair: float
    decode_attention_flop_per_pair: float | None = None
    draft: DraftCard | None = None
    vocab_size: int
    context_len: int
    eos_token_id: int
    fixed_ms: float | None = None
    cycle_fixed_ms: float | None = None
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
