"""Which transport SGLang takes for an all-reduce, and why; pure.

Source: SGLang 0.5.23, `distributed/parallel_state.py` (`all_reduce`,
`_resolve_outplace_all_reduce_method`), `layers/layer_boundary/residual/add_norm.py` (fusion),
`distributed/device_communicators/` (who takes which sizes), `arg_groups/overrides.py` (automatic
fusion). Not run on a GPU: what is told here is read from the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from bench.sglang.arguments import asked_text, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.sglang.arguments import AskedValue, GpuClass, Known
    from tuner.nccl.messages import Message, Step

Transport = Literal[
    "none",
    "cpu",
    "flashinfer",
    "custom",
    "nccl_symmetric",
    "pcie_ipc",
    "mscclpp",
    "torch_symm_mem",
    "nccl",
    "unknown",
]
"""`nccl_symmetric`: NCCL over symmetric memory (--enable-symm-mem), NVLS included."""

_MIB: Final = 1 << 20
_FUSION_ROWS: Final = 2048  # FUSE_ALLREDUCE_MAX_BATCH_SIZE
_FUSION_CLASSES: Final = ("hopper", "sm100")
_FUSION_ARCHITECTURES: Final = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "GptOssForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
    }
)
_CUSTOM_V2_BYTES: Final = 16 * _MIB  # SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB's default
_CUSTOM_V1_BYTES: Final = 8 * _MIB
_CUSTOM_V1_RANKS: Final = (2, 4, 6, 8)
_CUSTOM_V2_MOST_RANKS: Final = 16
_PCIE_IPC_RANKS: Final = (2, 4, 8)
_MSCCLPP_RANKS: Final = (4, 8, 16, 32, 64)
_TORCH_SYMM_BYTES: Final = {2: 64 * _MIB, 4: 64 * _MIB, 6: 128 * _MIB, 8: 128 * _MIB}
_TRUE: Final = frozenset({"1", "true", "yes", "y"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comms:
    """What decides about transports; None is not known.

    Attributes:
        tp: Tensor-parallel ranks.
        nodes: Machines they are on.
        gpu: The class of the GPUs.
        nvlink: Whether every pair of them is joined by NVLink.
        architecture: The target's `architectures[0]`.
        custom: Whether SGLang may use its own all-reduce kernels.
        custom_v2: Whether of the newer kind.
        deterministic: --enable-deterministic-inference.
        fusion: FlashInfer's fused all-reduce: asked for, forbidden, or SGLang's choice (None).
        reduces_whole: Whether layers all-reduce over all ranks: not with attention DP or an
            all-to-all backend, which gather and scatter.
        symm_mem: --enable-symm-mem.
        torch_symm_mem: --enable-torch-symm-mem.
        mscclpp: --enable-mscclpp.
        pcie_ipc: SGLANG_ENABLE_PCIE_IPC_ALLREDUCE.
        pcie_ipc_rows: The widest forward that its workspace is sized for.
    """

    tp: int
    nodes: int = 1
    gpu: GpuClass | None = None
    nvlink: bool | None = None
    architecture: str | None = None
    custom: bool = True
    custom_v2: bool = True
    deterministic: bool = False
    fusion: bool | None = None
    reduces_whole: bool = True
    symm_mem: bool = False
    torch_symm_mem: bool = False
    mscclpp: bool = False
    pcie_ipc: bool = False
    pcie_ipc_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The transport of a message.

    Attributes:
        transport: Which.
        reason: Why this one.
        nccl: Whether NCCL's variables can change its time; None: not known.
    """

    transport: Transport
    reason: str
    nccl: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTransport:
    """A step's messages with their transports.

    Attributes:
        step: The step.
        taken: Of each of its messages, in order.
    """

    step: Step
    taken: tuple[Taken, ...]

    @property
    def matters(self) -> bool:
        """Whether NCCL's variables can matter here: unless it is known that they cannot."""
        return any(taken.nccl is not False for taken in self.taken)

    @property
    def nccl_messages(self) -> tuple[Message, ...]:
        """The messages that go through NCCL, or may."""
        pairs = zip(self.step.messages, self.taken, strict=True)
        return tuple(message for message, taken in pairs if taken.nccl is not False)


def where_nccl_matters(steps: Sequence[Step], comms: Comms) -> tuple[StepTransport, ...]:
    """At which steps NCCL variables can matter at all, and through what the others go."""
    return tuple(
        StepTransport(
            step=step, taken=tuple(transport_of(message, comms) for message in step.messages)
        )
        for step in steps
    )


def comms_of(
    asked: Mapping[str, AskedValue], known: Known, *, nvlink: bool | None = None
) -> Comms:
    """What a launch's arguments and environment say of its transports.

    Args:
        asked: The record of `parse_arguments`.
        known: Of the target, the GPUs and the environment.
        nvlink: Whether every pair of GPUs is joined by NVLink.
    """

    def number(dest: str) -> int:
        return whole_number(asked_text(asked, dest) or "1") or 1

    deterministic = asked.get("enable_deterministic_inference") is True
    attention_dp = number("attn_dp_size") > 1 or asked.get("enable_dp_attention") is True
    forbidden = asked.get("enforce_disable_flashinfer_allreduce_fusion") is True
    fused = asked.get("flashinfer_allreduce_fusion_backend") is not None
    fused = fused or asked.get("enable_flashinfer_allreduce_fusion") is True
    v2 = known.environment.get("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", "1").strip().lower()
    return Comms(
        tp=number("tp_size"),
        nodes=number("nnodes"),
        gpu="cpu" if asked_text(asked, "device") == "cpu" else known.gpu,
        nvlink=False if nvlink is None and known.gpu == "sm120" else nvlink,
        architecture=None if known.target is None else known.target.architecture,
        custom=asked.get("disable_custom_all_reduce") is not True and not deterministic,
        custom_v2=v2 in _TRUE,
        deterministic=deterministic,
        fusion=False if forbidden else True if fused else None,
        reduces_whole=not attention_dp
        and (asked_text(asked, "moe_a2a_backend") or "none") == "none",
        symm_mem=asked.get("enable_symm_mem") is True,
        torch_symm_mem=asked.get("enable_torch_symm_mem") is True,
        mscclpp=asked.get("enable_mscclpp") is True,
        pcie_ipc=known.switched_on("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"),
    )


def transport_of(message: Message, comms: Comms) -> Taken:
    """The transport of one message: the first, in SGLang's order, that takes it."""
    for takes in _ORDER:
        taken = takes(message, comms)
        if taken is not None:
            return taken
    return Taken(transport="nccl", reason=_why_nccl(message, comms), nccl=True)


# -------------------------------------------------------------------------- who takes it, in order


def _nobody(_message: Message, comms: Comms) -> Taken | None:
    if comms.tp == 1:
        return Taken(transport="none", reason="one rank has nothing to reduce", nccl=False)
    if comms.gpu == "cpu":
        return Taken(
            transport="cpu", reason="shared memory or gloo: no GPU, so no NCCL", nccl=False
        )
    if not comms.reduces_whole:
        return Taken(
            transport="nccl",
            reason="attention DP or an all-to-all backend gathers and scatters through NCCL in "
            "place of all-reduces: sizes and ranking of all-reduces say little here",
            nccl=None,
        )
    return None


def _flashinfer(message: Message, comms: Comms) -> Taken | None:
    """Fused with the residual's addition and the norm, in layers of models that have it."""
    if message.of_draft or comms.fusion is False or comms.gpu not in {*_FUSION_CLASSES, None}:
        return None
    if message.rows > _FUSION_ROWS or (comms.nodes > 1 and comms.gpu != "sm100"):
        return None
    chosen = comms.architecture in _FUSION_ARCHITECTURES
    if not (comms.fusion or chosen):
        return None
    if comms.gpu is None:
        return Taken(
            transport="unknown",
            reason="FlashInfer's fusion on SM 9.x and 10.x, otherwise NCCL or SGLang's own: the "
            "GPU is not known",
            nccl=None,
        )
    who = "asked for" if comms.fusion else f"SGLang's choice for {comms.architecture}"
    reason = f"FlashInfer's all-reduce fused with the norm ({who}), up to {_FUSION_ROWS} tokens"
    return Taken(transport="flashinfer", reason=reason, nccl=False)


def _mscclpp(_message: Message, comms: Comms) -> Taken | None:
    if not comms.mscclpp or comms.tp not in _MSCCLPP_RANKS:
        return None
    reason = "--enable-mscclpp: where its own tuning at start has an algorithm for the size"
    return Taken(transport="mscclpp", reason=reason, nccl=None)


def _custom(message: Message, comms: Comms) -> Taken | None:
    if not comms.custom or comms.nodes > 1 or message.message_bytes % 16:
        return None
    if comms.nvlink is None and comms.tp > 2:
        if message.message_bytes > _CUSTOM_V2_BYTES:
            return None
        return Taken(
            transport="unknown",
            reason="SGLang's own kernels if NVLink joins every pair of GPUs, else NCCL: the links "
            "are not known",
            nccl=None,
        )
    if comms.nvlink and comms.custom_v2 and comms.tp <= _custom_v2_ranks(comms):
        if message.message_bytes > _CUSTOM_V2_BYTES:
            return None
        reason = f"SGLang's own kernels over NVLink, up to {_CUSTOM_V2_BYTES // _MIB} MiB"
        return Taken(transport="custom", reason=reason, nccl=False)
    fits = message.message_bytes <= _CUSTOM_V1_BYTES and comms.tp in _CUSTOM_V1_RANKS
    if fits and (comms.nvlink or comms.tp == 2):
        reason = (
            f"SGLang's own kernels for {'two GPUs' if comms.tp == 2 else 'GPUs on NVLink'}, up to "
            f"{_CUSTOM_V1_BYTES // _MIB} MiB"
        )
        return Taken(transport="custom", reason=reason, nccl=False)
    return None


def _custom_v2_ranks(comms: Comms) -> int:
    return 8 if comms.gpu == "hopper" else _CUSTOM_V2_MOST_RANKS


def _symmetric(_message: Message, comms: Comms) -> Taken | None:
    if not comms.symm_mem:
        return None
    return Taken(
        transport="nccl_symmetric",
        reason="--enable-symm-mem: NCCL's kernels over symmetric memory; NCCL_ALGO and NCCL_PROTO "
        "may not reach them",
        nccl=True,
    )


def _pcie_ipc(message: Message, comms: Comms) -> Taken | None:
    if not comms.pcie_ipc or comms.deterministic or comms.tp not in _PCIE_IPC_RANKS:
        return None
    if comms.pcie_ipc_rows is not None and message.rows > comms.pcie_ipc_rows:
        return None
    reason = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE: FlashInfer's kernels over PCIe, up to the widest "
    return Taken(transport="pcie_ipc", reason=f"{reason}decoding batch", nccl=False)


def _torch_symm_mem(message: Message, comms: Comms) -> Taken | None:
    if not comms.torch_symm_mem or comms.gpu not in {*_FUSION_CLASSES, None}:
        return None
    if message.message_bytes >= _TORCH_SYMM_BYTES.get(comms.tp, 0):
        return None
    reason = "--enable-torch-symm-mem: PyTorch's symmetric memory, for bfloat16 on SM 9.x and 10.x"
    known = None if comms.gpu is None else False
    return Taken(transport="torch_symm_mem", reason=reason, nccl=known)


_ORDER: Final[tuple[Callable[[Message, Comms], Taken | None], ...]] = (
    *(_nobody, _flashinfer, _mscclpp, _custom, _symmetric, _pcie_ipc, _torch_symm_mem),
)


def _why_nccl(message: Message, comms: Comms) -> str:
    """Why nobody before NCCL took it."""
    if comms.deterministic:
        return "deterministic inference: SGLang's own kernels are off"
    if not comms.custom:
        return "--disable-custom-all-reduce"
    if comms.nodes > 1:
        return "the ranks are on several machines"
    if comms.nvlink is False and comms.tp > 2:
        return "more than two GPUs without NVLink: SGLang's own kernels are off"
    size_kib = message.message_bytes / 1024
    return f"{size_kib:g} KiB is more than SGLang's own kernels take, or has no fit among them"
