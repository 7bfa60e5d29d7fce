"""The one NVML session: which GPUs there are, and what one reads now.

Without the library or the driver there are no GPUs; nothing here raises. A value that a GPU, its
driver or a MIG slice does not offer is None.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What does not change while a machine runs.

    Attributes:
        index: NVML's index, in PCI order.
        name: As the driver names it.
        uuid: `GPU-…`.
        memory_bytes: All of its memory.
        driver: The driver's version.
        power_limit_w: The limit in force.
        sm_clock_max_mhz: The highest SM clock it can be given.
        pci_bus_id: Its place on the bus.
    """

    index: int
    name: str | None
    uuid: str | None
    memory_bytes: int | None
    driver: str | None
    power_limit_w: float | None
    sm_clock_max_mhz: int | None
    pci_bus_id: str | None


def list_gpus() -> tuple[GpuFacts, ...]:
    """The machine's GPUs; empty without NVML."""
    nvml = _session()
    if nvml is None:
        return ()
    count = _value(nvml.nvmlDeviceGetCount) or 0
    return tuple(_facts(nvml, index) for index in range(int(count)))


def read_gpu(index: int) -> list[tuple[str, float | None]]:
    """What one GPU reads now: (name with unit, value), always the same names in the same order.

    `total_energy_j` counts up since the driver was loaded; `throttle_reasons` is NVML's bit mask
    of reasons why clocks are lowered (`nvmlClocksEventReason…`).
    """
    nvml = _session()
    device = None if nvml is None else _value(nvml.nvmlDeviceGetHandleByIndex, index)
    if nvml is None or device is None:
        return [(name, None) for name, _ in _READERS]
    return [(name, _value(read, nvml, device)) for name, read in _READERS]


_READERS: tuple[tuple[str, Callable[[Any, Any], float]], ...] = (
    ("power_w", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    ("total_energy_j", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
    ("utilisation_pct", lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)),
    ("memory_used_bytes", lambda nvml, gpu: float(nvml.nvmlDeviceGetMemoryInfo(gpu).used)),
    (
        "sm_clock_mhz",
        lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    ),
    (
        "temperature_c",
        lambda nvml, gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    ),
    (
        "throttle_reasons",
        lambda nvml, gpu: float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    ),
)


def visible_gpus(
    count: int, environment: Mapping[str, str], *, first: int = 0, step: int = 1
) -> tuple[int, ...]:
    """NVML indices of the GPUs that a server with this environment uses.

    Args:
        count: How many it uses.
        environment: Of the server; CUDA_VISIBLE_DEVICES is heeded, indices and UUIDs alike (with
            CUDA_DEVICE_ORDER=PCI_BUS_ID or equal GPUs its indices are NVML's).
        first: SGLang's `--base-gpu-id`.
        step: SGLang's `--gpu-id-step`.

    Returns:
        Fewer than `count`, or none, where they cannot be told or are not there.
    """
    if count <= 0:
        return ()
    gpus = list_gpus()
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        indices = [gpu.index for gpu in gpus]
    else:
        by_name = {str(gpu.index): gpu.index for gpu in gpus} | {
            gpu.uuid: gpu.index for gpu in gpus if gpu.uuid
        }
        names = [name.strip() for name in visible.split(",")]
        indices = [by_name[name] for name in names if name in by_name]
    return tuple(indices[first : first + count * step : step])


@functools.cache
def _session() -> ModuleType | None:
    try:
        import pynvml  # noqa: PLC0415  # nvidia-ml-py; only where GPUs are asked for

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001  # no library, no driver, no rights: there is nothing to read
        return None
    return pynvml  # type: ignore[no-any-return]


def _value(read: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  # NVML is untyped
    """What an NVML call returns, or None where it fails: not supported, no rights, GPU lost."""
    try:
        return read(*arguments)
    except Exception:  # noqa: BLE001  # NVMLError and its many kinds; a missing function of an old driver
        return None


def _facts(nvml: Any, index: int) -> GpuFacts:  # noqa: ANN401  # NVML is untyped
    device = _value(nvml.nvmlDeviceGetHandleByIndex, index)
    memory = _value(nvml.nvmlDeviceGetMemoryInfo, device)
    limit_mw = _value(nvml.nvmlDeviceGetEnforcedPowerLimit, device)
    pci = _value(nvml.nvmlDeviceGetPciInfo, device)
    return GpuFacts(
        index=index,
        name=_text(_value(nvml.nvmlDeviceGetName, device)),
        uuid=_text(_value(nvml.nvmlDeviceGetUUID, device)),
        memory_bytes=None if memory is None else int(memory.total),
        driver=_text(_value(nvml.nvmlSystemGetDriverVersion)),
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        sm_clock_max_mhz=_value(nvml.nvmlDeviceGetMaxClockInfo, device, nvml.NVML_CLOCK_SM),
        pci_bus_id=None if pci is None else _text(pci.busId),
    )


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
