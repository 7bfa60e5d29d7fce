"""What SGLang itself sets of NCCL's variables, and which values of ours it would overwrite; pure.

Source: SGLang 0.5.23, `entrypoints/engine.py` (CUMEM, NVLS, GRAPH_MIXING_SUPPORT,
CUDA_DEVICE_MAX_CONNECTIONS), `arg_groups/parallel_hook.py` (GRAPH_REGISTER),
`arg_groups/attention_hook.py` (deterministic inference), `arg_groups/moe_hook.py` (deepep_v2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.sglang.arguments import asked_text, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.sglang.arguments import AskedValue

_DETERMINISTIC_CHANNELS: Final = "SGLANG_DETERMINISTIC_NCCL_NCHANNELS"
_DEFAULT_CHANNELS: Final = "8"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineVariable:
    """One variable as the server's processes will have it.

    Attributes:
        name: The variable.
        value: What it will be.
        reason: When SGLang sets it so.
        overwrites: Whether a value from the environment is lost.
        is_users: Whether the value came from the environment, which SGLang leaves alone.
    """

    name: str
    value: str
    reason: str
    overwrites: bool = False
    is_users: bool = False


def engine_variables(
    asked: Mapping[str, AskedValue], environment: Mapping[str, str]
) -> tuple[EngineVariable, ...]:
    """What SGLang sets, or would set if the environment did not.

    Args:
        asked: The record of `parse_arguments`.
        environment: The server's environment before SGLang touches it.
    """
    symm = asked.get("enable_symm_mem") is True
    nvls = symm or asked.get("enable_nccl_nvls") is True
    a2a_cumem = asked_text(asked, "moe_a2a_backend") == "deepep_v2"
    cumem_reason = "off unless --enable-symm-mem"
    if a2a_cumem and not symm:
        cumem_reason = "--moe-a2a-backend deepep_v2"
    found = [
        _variable(
            environment,
            "NCCL_CUMEM_ENABLE",
            "1" if symm or a2a_cumem else "0",
            "--enable-symm-mem" if symm else cumem_reason,
            overwrites=symm,
        ),
        _variable(
            environment,
            "NCCL_NVLS_ENABLE",
            "1" if nvls else "0",
            "--enable-nccl-nvls or --enable-symm-mem"
            if nvls
            else "off unless --enable-nccl-nvls or --enable-symm-mem",
            overwrites=nvls,
        ),
        _variable(
            environment,
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "8",
            "always",
            overwrites=True,
        ),
    ]
    if _ranks(asked) > 1 and not _without_graphs(asked):
        reason = "several ranks and CUDA graphs: registered buffers can hang their replay"
        found.append(_variable(environment, "NCCL_GRAPH_REGISTER", "0", reason))
    if _number(asked, "dcp_size") > 1:
        found.append(
            _variable(
                environment, "NCCL_GRAPH_MIXING_SUPPORT", "0", "--dcp-size > 1", overwrites=symm
            )
        )
    if asked.get("enable_deterministic_inference") is True and _number(asked, "tp_size") > 1:
        channels = environment.get(_DETERMINISTIC_CHANNELS, _DEFAULT_CHANNELS)
        found += [
            _variable(
                environment, name, value, "--enable-deterministic-inference", overwrites=True
            )
            for name, value in (
                ("NCCL_ALGO", "allreduce:tree"),
                ("NCCL_MIN_NCHANNELS", channels),
                ("NCCL_MAX_NCHANNELS", channels),
            )
        ]
    return tuple(sorted(found, key=lambda variable: variable.name))


def environment_of_server(
    asked: Mapping[str, AskedValue], environment: Mapping[str, str]
) -> dict[str, str]:
    """The environment as NCCL finds it in the server's processes."""
    set_by_engine = {v.name: v.value for v in engine_variables(asked, environment)}
    return {**environment, **set_by_engine}


def overwritten(
    asked: Mapping[str, AskedValue], environment: Mapping[str, str]
) -> tuple[EngineVariable, ...]:
    """Those of the environment's variables whose values SGLang would replace by others."""
    return tuple(
        variable
        for variable in engine_variables(asked, environment)
        if variable.overwrites
        and variable.name in environment
        and environment[variable.name] != variable.value
    )


def _variable(
    environment: Mapping[str, str], name: str, value: str, reason: str, *, overwrites: bool = False
) -> EngineVariable:
    given = environment.get(name)
    if given is not None and not overwrites:
        return EngineVariable(name=name, value=given, reason="from the environment", is_users=True)
    return EngineVariable(name=name, value=value, reason=reason, overwrites=overwrites)


def _number(asked: Mapping[str, AskedValue], dest: str) -> int:
    return whole_number(asked_text(asked, dest) or "1") or 1


def _ranks(asked: Mapping[str, AskedValue]) -> int:
    return max(_number(asked, dest) for dest in ("tp_size", "ep_size", "dp_size"))


def _without_graphs(asked: Mapping[str, AskedValue]) -> bool:
    if asked.get("disable_cuda_graph") is True:
        return True
    return all(
        asked.get(f"disable_{phase}_cuda_graph") is True
        or asked_text(asked, f"cuda_graph_backend_{phase}") == "disabled"
        for phase in ("decode", "prefill")
    )
