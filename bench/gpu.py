"""The one NVML session: which GPUs there are, and what one reads now.

Without the library or the driver there are no GPUs; nothing here raises. A value that a GPU, its
driver or a MIG slice does not offer is None. Where a server runs on another machine, what
`nvidia-smi` prints there becomes the same records.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

Values = list[tuple[str, float | None]]
"""What a GPU reads at one moment: (name with unit, value), always the same names, same order."""

MEMORY_SLACK_BYTES = 1 << 30
"""What the driver and others may come to hold while a server runs."""

MEMORY_POLL_NS = 100_000_000
_MOST_GPUS = 1024


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
    count = _call(nvml, "nvmlDeviceGetCount") or 0
    return tuple(_facts(nvml, index) for index in range(int(min(count, _MOST_GPUS))))


def read_gpu(index: int) -> Values:
    """What one GPU reads now.

    `total_energy_j` counts up since the driver was loaded, as do the bytes over PCIe and NVLink
    (all links added up); `throttle_reasons` is NVML's bit mask of reasons why clocks are lowered
    (`nvmlClocksEventReason…`).
    """
    nvml = _session()
    device = None if nvml is None else _call(nvml, "nvmlDeviceGetHandleByIndex", index)
    if nvml is None or device is None:
        return [(name, None) for name in READING_NAMES]
    read = [(name, _value(reader, nvml, device)) for name, reader in _READERS]
    return read + _counted_bytes(nvml, device)


def _throttle_reasons(nvml: Any, gpu: Any) -> float:  # noqa: ANN401  # NVML is untyped
    """By its present name, else by that of drivers before 535."""
    reasons = _call(nvml, "nvmlDeviceGetCurrentClocksEventReasons", gpu)
    if reasons is None:
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    return float(reasons)


_READERS: tuple[tuple[str, Callable[[Any, Any], float]], ...] = (
    ("power_w", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    ("power_limit_w", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3),
    ("total_energy_j", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
    ("utilisation_pct", lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)),
    ("memory_used_bytes", lambda nvml, gpu: float(nvml.nvmlDeviceGetMemoryInfo(gpu).used)),
    (
        "sm_clock_mhz",
        lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    ),
    (
        "memory_clock_mhz",
        lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
    ),
    (
        "temperature_c",
        lambda nvml, gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    ),
    ("throttle_reasons", _throttle_reasons),
)

# Counters by field: name, NVML's name of the field, its unit in bytes. The older calls for PCIe
# measure for 20 ms each, which is too long for ten readings a second.
_ALL_LINKS = 0xFFFFFFFF
_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("pcie_tx_bytes", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 1),
    ("pcie_rx_bytes", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 1),
    ("nvlink_tx_bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 1024),
    ("nvlink_rx_bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 1024),
)

READING_NAMES = (*(name for name, _ in _READERS), *(name for name, _, _ in _FIELDS))
"""The names of a GPU's readings, in order."""


def _counted_bytes(nvml: Any, device: Any) -> Values:  # noqa: ANN401  # NVML is untyped
    """The bytes over PCIe and NVLink; each None where a GPU, a driver or a library has none."""
    known = [(name, getattr(nvml, field, None), unit) for name, field, unit in _FIELDS]
    wanted = [
        (field, _ALL_LINKS) if name.startswith("nvlink") else field
        for name, field, _ in known
        if field is not None
    ]
    answers = _call(nvml, "nvmlDeviceGetFieldValues", device, wanted) or ()
    counted = {
        answer.fieldId: float(answer.value.ullVal) for answer in answers if not answer.nvmlReturn
    }
    return [
        (name, None if field not in counted else counted[field] * unit)
        for name, field, unit in known
    ]


def total(values: Sequence[float | None]) -> float | None:
    """A sum over GPUs; None where one of its parts is, or where there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


# ------------------------------------------------------------------------------- a server's memory


def memory_used(indices: Sequence[int]) -> dict[int, float | None]:
    """Bytes held on each GPU, by whomever."""
    return {index: dict(read_gpu(index))["memory_used_bytes"] for index in indices}


async def memory_back(before: Mapping[int, float | None], *, timeout_s: float) -> dict[int, float]:
    """Wait until a stopped server's GPU memory is free again, which takes the driver a while.

    Args:
        before: What was held on each of its GPUs before it started (`memory_used`); a GPU that
            does not tell is not waited for.
        timeout_s: How long, in seconds of the world.

    Returns:
        Bytes held beyond `before` on each GPU where memory did not come back; empty: all did.
    """
    give_up_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    while True:
        held = {
            index: now - then
            for index, now in memory_used(tuple(before)).items()
            if now is not None
            and (then := before[index]) is not None
            and now > then + MEMORY_SLACK_BYTES
        }
        if not held or clock.monotonic_ns() >= give_up_ns:
            return held
        await clock.sleep_ns(MEMORY_POLL_NS)


# ------------------------------------------------------------------------------------ nvidia-smi


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One GPU of what `nvidia-smi --query-gpu=… --format=csv` prints.

    Attributes:
        facts: What does not change; None where it was not asked for or is not known.
        values: The same readings as NVML's; None where it was not asked for or is not supported.
    """

    facts: GpuFacts
    values: Values


_SMI_COLUMNS = (
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "power.draw",
    "enforced.power.limit",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
)

NVIDIA_SMI = ("nvidia-smi", f"--query-gpu={','.join(_SMI_COLUMNS)}", "--format=csv")
"""The command whose output is read here; `-lms 100` behind it repeats it ten times a second."""

_MIB, _GIB = 1 << 20, 1 << 30
_SMI_UNITS = {"MiB": _MIB, "GiB": _GIB, "KiB": 1024, "mW": 1e-3, "kW": 1e3, "GHz": 1e3}
_SMI_NUMBER = re.compile(r"(?P<number>0x[0-9a-fA-F]+|-?\d+(?:\.\d+)?) ?(?P<unit>[A-Za-z%]*)")
_SMI_INDEX = re.compile(r"[0-9]{1,6}")
_SMI_MOST_CHARS = 16 * 1024
_SMI_MOST_DIGITS = 40
_SMI_HEAD = re.compile(r"(?P<name>[\w.]+)(?: \[(?P<unit>[^\]]+)\])?")
_SMI_READINGS = {  # by the names that its columns have had
    "power_w": ("power.draw", "power.draw.instant", "power.draw.average"),
    "power_limit_w": ("enforced.power.limit", "power.limit"),
    "utilisation_pct": ("utilization.gpu",),
    "memory_used_bytes": ("memory.used",),
    "sm_clock_mhz": ("clocks.current.sm", "clocks.sm"),
    "memory_clock_mhz": ("clocks.current.memory", "clocks.mem"),
    "temperature_c": ("temperature.gpu",),
    "throttle_reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}


def parse_nvidia_smi(text: str) -> list[GpuRow]:
    """The GPUs in a CSV output of nvidia-smi with its header, with or without units.

    Lines that are no GPU's (warnings, a row that was cut) are left out.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        header = smi_header(line)
        if header is not None:
            rows = (smi_row(header, row) for row in lines[number + 1 :])
            return [row for row in rows if row is not None]
    return []


def smi_header(line: str) -> tuple[tuple[str, str], ...] | None:
    """Column names and their units (else "") of nvidia-smi's header; None for another line."""
    heads = [_SMI_HEAD.fullmatch(cell) for cell in _cells(line)]
    columns = tuple((head["name"], head["unit"] or "") for head in heads if head)
    names = {name for name, _ in columns}
    return columns if len(columns) == len(heads) and "index" in names else None


def smi_row(header: Sequence[tuple[str, str]], line: str) -> GpuRow | None:
    """One GPU's row under a header; None for a line that is no such row."""
    cells = _cells(line)
    if len(cells) != len(header):
        return None
    texts = {name: cell for (name, _), cell in zip(header, cells, strict=True)}
    if not _SMI_INDEX.fullmatch(texts["index"]):
        return None
    numbers = {
        name: _smi_number(cell, unit) for (name, unit), cell in zip(header, cells, strict=True)
    }
    read = {
        name: next((numbers[column] for column in columns if column in numbers), None)
        for name, columns in _SMI_READINGS.items()
    }
    memory = numbers.get("memory.total")
    return GpuRow(
        facts=GpuFacts(
            index=int(texts["index"]),
            name=_smi_text(texts.get("name") or texts.get("gpu_name")),
            uuid=_smi_text(texts.get("uuid") or texts.get("gpu_uuid")),
            memory_bytes=None if memory is None else int(memory),
            driver=_smi_text(texts.get("driver_version")),
            power_limit_w=read["power_limit_w"],
            sm_clock_max_mhz=None,
            pci_bus_id=_smi_text(texts.get("pci.bus_id")),
        ),
        values=[(name, read.get(name)) for name in READING_NAMES],
    )


def _cells(line: str) -> list[str]:
    if len(line) > _SMI_MOST_CHARS:
        return []  # of no GPU
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _smi_number(cell: str, unit: str) -> float | None:
    """A cell in our unit; None for `[N/A]`, `[Not Supported]` and the like."""
    match = _SMI_NUMBER.fullmatch(cell)
    if match is None:
        return None
    number = match["number"]
    if len(number) > _SMI_MOST_DIGITS:
        return None
    value = float(int(number, 16)) if number.startswith("0x") else float(number)
    return value * _SMI_UNITS.get(match["unit"] or unit, 1)


def _smi_text(cell: str | None) -> str | None:
    return None if cell is None or not cell or cell.startswith("[") else cell


# ------------------------------------------------------------------------------- a server's GPUs


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


# ------------------------------------------------------------------------------------------- NVML


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


def _call(nvml: Any, name: str, *arguments: object) -> Any:  # noqa: ANN401  # NVML is untyped
    """The same by the function's name, which an old library may lack."""
    return _value(lambda: getattr(nvml, name)(*arguments))


def _facts(nvml: Any, index: int) -> GpuFacts:  # noqa: ANN401  # NVML is untyped
    device = _call(nvml, "nvmlDeviceGetHandleByIndex", index)
    memory = _call(nvml, "nvmlDeviceGetMemoryInfo", device)
    limit_mw = _call(nvml, "nvmlDeviceGetEnforcedPowerLimit", device)
    pci = _call(nvml, "nvmlDeviceGetPciInfo", device)
    return GpuFacts(
        index=index,
        name=_text(_call(nvml, "nvmlDeviceGetName", device)),
        uuid=_text(_call(nvml, "nvmlDeviceGetUUID", device)),
        memory_bytes=None if memory is None else int(memory.total),
        driver=_text(_call(nvml, "nvmlSystemGetDriverVersion")),
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        sm_clock_max_mhz=_call(nvml, "nvmlDeviceGetMaxClockInfo", device, nvml.NVML_CLOCK_SM),
        pci_bus_id=None if pci is None else _text(pci.busId),
    )


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
