import math
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import gpu

FUNCTIONS = {
    "nvmlInit": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": lambda _: b"H200",
    "nvmlDeviceGetUUID": lambda device: f"GPU-{device}",
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=141 << 30, used=7),
    "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
    "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId=b"0000:1:00.0"),
    "nvmlSystemGetDriverVersion": lambda: "580.1",
    "nvmlDeviceGetMaxClockInfo": lambda _, clock: 1980 if clock == "sm" else 0,
    "nvmlDeviceGetPowerUsage": lambda _: 11_170,
    "nvmlDeviceGetTotalEnergyConsumption": lambda _: 5_000,
    "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=99, memory=1),
    "nvmlDeviceGetClockInfo": lambda _, clock: 1900 if clock == "sm" else 3200,
    "nvmlDeviceGetTemperature": lambda _, sensor: 40 if sensor == "gpu" else 0,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 8,
    "nvmlDeviceGetFieldValues": lambda _, wanted: answer_fields(wanted),
}
FIELDS = {
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES": 197,
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES": 198,
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": 138,
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": 139,
}
ALL_LINKS = 0xFFFFFFFF


def answer_fields(wanted, failed=()):
    pairs = [field if isinstance(field, tuple) else (field,) for field in wanted]
    return [field_value(*pair, failed=failed) for pair in pairs]


def field_value(field, scope=None, *, failed=()):
    """As NVML answers for one field; NVLink's is asked for over all links."""
    assert (scope == ALL_LINKS) is (field < 197)
    return SimpleNamespace(
        fieldId=field, nvmlReturn=3 if field in failed else 0, value=SimpleNamespace(ullVal=field)
    )


def fake_nvml(*broken):
    """A library with two GPUs that does not support what `broken` names."""

    def refuse(*_arguments):
        raise RuntimeError("not supported")

    functions = {name: refuse if name in broken else call for name, call in FUNCTIONS.items()}
    return SimpleNamespace(
        NVML_CLOCK_SM="sm", NVML_CLOCK_MEM="mem", NVML_TEMPERATURE_GPU="gpu", **FIELDS, **functions
    )


@pytest.fixture
def install(monkeypatch):
    def _install(nvml):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        gpu._session.cache_clear()

    yield _install
    gpu._session.cache_clear()


def test_gpus_are_listed(install):
    install(fake_nvml())
    first, second = gpu.list_gpus()
    assert (first.index, first.name, first.uuid) == (0, "H200", "GPU-0")
    assert (first.memory_bytes, first.driver, first.power_limit_w) == (141 << 30, "580.1", 700.0)
    assert second.pci_bus_id == "0000:1:00.0"


def test_a_gpu_is_read_in_our_units(install):
    install(fake_nvml())
    assert gpu.read_gpu(1) == [
        ("power_w", 11.17),
        ("power_limit_w", 700.0),
        ("total_energy_j", 5.0),
        ("utilisation_pct", 99.0),
        ("memory_used_bytes", 7.0),
        ("sm_clock_mhz", 1900.0),
        ("memory_clock_mhz", 3200.0),
        ("temperature_c", 40.0),
        ("throttle_reasons", 4.0),
        ("pcie_tx_bytes", 197.0),
        ("pcie_rx_bytes", 198.0),
        ("nvlink_tx_bytes", 138.0 * 1024),
        ("nvlink_rx_bytes", 139.0 * 1024),
    ]


def test_what_is_not_supported_is_none_and_never_zero(install):
    install(fake_nvml("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"))
    read = dict(gpu.read_gpu(0))
    assert read["memory_used_bytes"] is None
    assert read["utilisation_pct"] is None
    assert read["power_w"] == 11.17
    assert gpu.list_gpus()[0].memory_bytes is None


def test_links_that_are_not_there_are_none(install):
    nvml = fake_nvml()
    nvml.nvmlDeviceGetFieldValues = lambda _, wanted: answer_fields(wanted, failed={138, 139})
    install(nvml)
    read = dict(gpu.read_gpu(0))
    assert (read["pcie_tx_bytes"], read["nvlink_tx_bytes"]) == (197.0, None)
    install(fake_nvml("nvmlDeviceGetFieldValues"))
    read = dict(gpu.read_gpu(0))
    assert (read["pcie_tx_bytes"], read["nvlink_tx_bytes"], read["power_w"]) == (None, None, 11.17)


def test_an_old_driver_and_an_old_library(install):
    nvml = fake_nvml("nvmlDeviceGetCurrentClocksEventReasons")
    del nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.nvmlDeviceGetPciInfo
    install(nvml)
    read = dict(gpu.read_gpu(0))
    assert (read["throttle_reasons"], read["pcie_tx_bytes"]) == (8.0, None)
    assert read["pcie_rx_bytes"] == 198.0
    assert gpu.list_gpus()[0].pci_bus_id is None


def test_the_real_library_has_every_function_and_field_that_is_asked_for():
    import pynvml

    names = {*FUNCTIONS, *FIELDS, "NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU"}
    assert {name for name in names if not hasattr(pynvml, name)} == set()
    assert {name: getattr(pynvml, name) for name in FIELDS} == FIELDS


def test_a_sum_with_a_missing_part_is_missing():
    assert gpu.total([1.5, 2.0]) == 3.5
    assert gpu.total([1.5, None]) is None
    assert gpu.total([]) is None


# -- memory after a stop


async def test_memory_is_waited_for_and_what_stays_is_told(monkeypatch):
    used = {0: [50 << 30, 30 << 30, 1 << 30], 1: [7 << 30], 2: [None]}
    monkeypatch.setattr(gpu, "MEMORY_POLL_NS", 1)

    def read(index):
        left = used[index]
        return [("memory_used_bytes", left.pop(0) if len(left) > 1 else left[0])]

    monkeypatch.setattr(gpu, "read_gpu", read)
    assert await gpu.memory_back({0: 1 << 30, 2: 5.0}, timeout_s=20) == {}
    assert used[0] == [1 << 30]
    assert await gpu.memory_back({1: 2 << 30, 2: None}, timeout_s=0.01) == {1: 5 << 30}
    assert await gpu.memory_back({}, timeout_s=20) == {}


async def test_a_gpu_that_tells_no_memory_is_not_waited_for(install):
    install(fake_nvml("nvmlDeviceGetMemoryInfo"))
    before = gpu.memory_used((0, 1))
    assert before == {0: None, 1: None}
    assert await gpu.memory_back(before, timeout_s=0.01) == {}


# -- nvidia-smi

SMI = """\
index, name, uuid, driver_version, memory.total [MiB], memory.used [MiB], utilization.gpu [%], \
power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], clocks.current.memory [MHz], \
temperature.gpu, clocks_event_reasons.active
0, NVIDIA H200, GPU-0, 580.1, 143771 MiB, 1 MiB, 99 %, 11.17 W, 700.00 W, 1900 MHz, 3200 MHz, 40, \
0x0000000000000004
1, NVIDIA GB10, [N/A], 580.1, [N/A], [N/A], 0 %, [Not Supported], [N/A], [Unknown Error], N/A, \
35, Not Active
"""


def test_what_nvidia_smi_prints_becomes_the_same_records():
    first, second = gpu.parse_nvidia_smi("a warning, first\n" + SMI)
    assert (first.facts.index, first.facts.name, first.facts.uuid) == (0, "NVIDIA H200", "GPU-0")
    assert (first.facts.memory_bytes, first.facts.power_limit_w) == (143771 << 20, 700.0)
    assert [name for name, _ in first.values] == list(gpu.READING_NAMES)
    assert {name: value for name, value in first.values if value is not None} == {
        "power_w": 11.17,
        "power_limit_w": 700.0,
        "utilisation_pct": 99.0,
        "memory_used_bytes": float(1 << 20),
        "sm_clock_mhz": 1900.0,
        "memory_clock_mhz": 3200.0,
        "temperature_c": 40.0,
        "throttle_reasons": 4.0,
    }
    assert {name: value for name, value in second.values if value is not None} == {
        "utilisation_pct": 0.0,
        "temperature_c": 35.0,
    }
    assert (second.facts.uuid, second.facts.memory_bytes) == (None, None)


def test_units_may_be_in_the_header_alone():
    [row] = gpu.parse_nvidia_smi(
        "index, memory.used [MiB], power.draw [W], utilization.gpu [%]\n3, 512, 120.50, 7\n"
    )
    read = dict(row.values)
    assert (row.facts.index, read["memory_used_bytes"], read["power_w"]) == (3, 512 << 20, 120.5)


@pytest.mark.parametrize(
    "text",
    ["", "no, header\n0, 1\n", "NVIDIA-SMI has failed because it couldn't communicate\n"],
)
def test_a_text_without_gpus_has_none(text):
    assert gpu.parse_nvidia_smi(text) == []


def test_a_row_that_was_cut_is_left_out():
    assert len(gpu.parse_nvidia_smi(SMI[: SMI.index("Not Supported")])) == 1


HEAD = SMI[: SMI.index("0, NVIDIA H200")]


@pytest.mark.parametrize(
    "text",
    [
        "index, name\n0, " + "x" * 200_000 + "\n",
        "x" * 200_000 + "\n" + '"' * 200_000,
        "index, memory.total [MiB]\n0, " + "9" * 5000 + "\n",
        "index, clocks_event_reasons.active\n0, 0x" + "f" * 400 + "\n",
        "index, name\n" + "9" * 5000 + ", GPU\n",
        "index, name\n²٣, GPU\n",
        "index, name\n0, a\rb\n",
    ],
)
def test_output_that_is_beyond_measure_breaks_nothing(text):
    for row in gpu.parse_nvidia_smi(text):
        assert row.facts.index == 0
        assert row.facts.memory_bytes is None


cells = st.sampled_from(
    [
        "0",
        "1",
        "-3",
        "[N/A]",
        "1e999",
        "0x",
        "0xfff",
        "99 %",
        "11 W",
        "7 kW",
        "inf",
        '"',
        "",
        "9" * 60,
    ]
)
rows = st.lists(cells | st.text(max_size=6), max_size=14).map(", ".join)


@given(st.lists(rows, max_size=3), st.sampled_from([HEAD, "index, name\n", "index\n"]))
@settings(deadline=None, max_examples=100)
def test_any_rows_can_be_read(lines, head):
    for row in gpu.parse_nvidia_smi(head + "\n".join(lines)):
        assert row.facts.index >= 0
        assert all(value is None or math.isfinite(value) for _, value in row.values)


@pytest.mark.parametrize("nvml", [None, fake_nvml("nvmlInit")])
def test_without_nvml_there_are_no_gpus(install, nvml):
    install(nvml)
    assert gpu.list_gpus() == ()
    assert gpu.visible_gpus(8, {}) == ()
    assert all(value is None for _, value in gpu.read_gpu(0))


@pytest.mark.parametrize(
    ("count", "environment", "options", "expected"),
    [
        (2, {}, {}, (0, 1)),
        (1, {}, {}, (0,)),
        (0, {}, {}, ()),
        (1, {}, {"first": 1}, (1,)),
        (1, {"CUDA_VISIBLE_DEVICES": "1"}, {}, (1,)),
        (2, {"CUDA_VISIBLE_DEVICES": "1, 0"}, {}, (1, 0)),
        (1, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, {}, (1,)),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, {}, ()),
        (2, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"step": 2}, (0,)),
    ],
)
def test_the_gpus_a_server_uses(install, count, environment, options, expected):
    install(fake_nvml())
    assert gpu.visible_gpus(count, environment, **options) == expected
