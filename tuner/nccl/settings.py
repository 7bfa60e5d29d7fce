"""Which NCCL settings are ranked: those of the `tune:` block, or a built-in list; pure.

The built-in list is of single variables that NCCL's documentation names, and of one combination
that helped in public on PCIe machines (https://github.com/voipmonitor/rtx6kpro,
optimization/nccl-tuning.md). It is short on purpose: each costs a start of the ranks in every
round. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.errors import InputError
from tuner.nccl.engine import overwritten
from tuner.space.points import Setting, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.sglang.arguments import AskedValue
    from tuner.space.schema import Tune

MOST_SETTINGS: Final = 64
DEFAULT: Final = "default"
_PREFIX: Final = "NCCL_"

_EVERYWHERE: Final = (
    ("NCCL_ALGO=Ring", "rings alone: the least traffic, and latency that grows with the ranks"),
    ("NCCL_ALGO=Tree", "trees alone: fewer hops for small messages"),
    ("NCCL_PROTO=LL", "flags with the data: the least latency, half of the bandwidth"),
    ("NCCL_PROTO=Simple", "full bandwidth, the most latency"),
    ("NCCL_PROTO=^LL128", "LL128 left out of NCCL's choice"),
    ("NCCL_MIN_NCHANNELS=8", "at least 8 channels: more SMs, more links in parallel"),
    ("NCCL_MIN_NCHANNELS=16", "at least 16 channels"),
    ("NCCL_MAX_NCHANNELS=4", "at most 4 channels: less to synchronise"),
    ("NCCL_NTHREADS=256", "fewer threads a channel"),
    ("NCCL_BUFFSIZE=1048576", "buffers of 1 MiB in place of 4: shorter pipelines"),
    ("NCCL_CUMEM_ENABLE=1", "buffers by cuMem, which SGLang turns off"),
)
_PCIE: Final = (
    ("NCCL_P2P_LEVEL=SYS", "peer to peer across sockets too"),
    ("NCCL_P2P_DISABLE=1", "through host memory"),
    (
        "NCCL_P2P_DISABLE=1 NCCL_MIN_NCHANNELS=32 NCCL_MAX_NCHANNELS=64 NCCL_BUFFSIZE=67108864",
        "through host memory, wide: bandwidth for latency on dual-socket PCIe machines",
    ),
)
_NVLINK: Final = (
    ("NCCL_PROTO=LL128", "flags of 8 in every 128 bytes, on NVLink alone safe"),
    ("NCCL_NVLS_ENABLE=1", "reduction in the NVLink switch, which SGLang turns off"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclSetting:
    """A setting to rank.

    Attributes:
        name: Its variables, or `default`.
        environment: Variables it sets beside the server's, sorted.
        why: What it is expected to change; empty for the user's own.
    """

    name: str
    environment: tuple[tuple[str, str], ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChoice:
    """What is ranked and what is not.

    Attributes:
        default: What is in use: the tune block's first values, or nothing set.
        others: What is ranked against it.
        left_out: (name, why) of settings that cannot be ranked so.
        is_built_in: Whether the list is the built-in one.
    """

    default: NcclSetting
    others: tuple[NcclSetting, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    is_built_in: bool = False


def built_in_settings(*, nvlink: bool | None) -> tuple[NcclSetting, ...]:
    """The built-in list for GPUs on NVLink (True), on PCIe (False), or of either (None)."""
    listed = [*_EVERYWHERE]
    listed += [] if nvlink else _PCIE
    listed += _NVLINK if nvlink else ()
    return tuple(
        NcclSetting(name=name, environment=_variables(name), why=why) for name, why in listed
    )


def choose_settings(
    tune: Tune | None,
    asked: Mapping[str, AskedValue],
    environment: Mapping[str, str],
    *,
    nvlink: bool | None,
) -> SettingChoice:
    """What is ranked: the NCCL variables of `tune.environment` and `tune.bundles`, else the list.

    Args:
        tune: The scenario's block, if it has one.
        asked: The record of `parse_arguments` of the server.
        environment: The server's environment.
        nvlink: Whether every pair of GPUs is joined by NVLink.

    Raises:
        InputError: The block's axes have more combinations than can be ranked.
    """
    given = _of_tune(tune)
    left_out: list[tuple[str, str]] = []
    if given:
        first = _named(given[0].environment)
        default = NcclSetting(name=DEFAULT, environment=first.environment)
        wanted = []
        for setting in given[1:]:
            named = _named(setting.environment)
            if setting.arguments:
                words = " ".join(f"{option} {value}" for option, value in setting.arguments)
                left_out.append(
                    (f"{words} {named.name}".strip(), "changes SGLang's arguments: launch it")
                )
            elif named.environment != first.environment:
                wanted.append(named)
    else:
        default = NcclSetting(name=DEFAULT)
        wanted = [*built_in_settings(nvlink=nvlink)]
    if len(wanted) > MOST_SETTINGS:
        raise InputError(
            f"{len(wanted)} NCCL settings asked for by tune.environment and tune.bundles; "
            f"at most {MOST_SETTINGS} are ranked at once",
            hint="Give fewer values, or whole settings as the values of one axis of tune.bundles.",
        )
    others = []
    for one in dict.fromkeys(wanted):
        lost = overwritten(asked, {**environment, **dict(one.environment)})
        mine = [variable for variable in lost if variable.name in dict(one.environment)]
        if mine:
            why = f"SGLang sets {mine[0].name}={mine[0].value} itself ({mine[0].reason})"
            left_out.append((one.name, why))
        elif dict(one.environment).items() <= environment.items() and one.environment:
            left_out.append((one.name, "is what the server's environment has already"))
        else:
            others.append(one)
    return SettingChoice(
        default=default, others=tuple(others), left_out=tuple(left_out), is_built_in=not given
    )


def _of_tune(tune: Tune | None) -> Sequence[Setting]:
    """The settings of the block that name an NCCL variable; the first is what is in use."""
    if tune is None:
        return ()
    environment = {
        name: values for name, values in tune.environment.items() if name.startswith(_PREFIX)
    }
    bundles = [
        [
            Setting(
                arguments=tuple((o, v) for o, v in bundle.arguments.items() if v is not None),
                environment=tuple(
                    (name, value)
                    for name, value in bundle.environment.items()
                    if value is not None and name.startswith(_PREFIX)
                ),
            )
            for bundle in axis.values()
        ]
        for axis in tune.bundles.values()
        if any(name.startswith(_PREFIX) for bundle in axis.values() for name in bundle.environment)
    ]
    if not environment and not bundles:
        return ()
    return settings_of({}, environment, bundles)


def _named(environment: tuple[tuple[str, str], ...]) -> NcclSetting:
    name = " ".join(f"{variable}={value}" for variable, value in environment)
    return NcclSetting(name=name or "nothing set", environment=environment)


def _variables(name: str) -> tuple[tuple[str, str], ...]:
    pairs = (word.partition("=") for word in name.split())
    return tuple(sorted((variable, value) for variable, _, value in pairs))
