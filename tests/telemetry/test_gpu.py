import sys
from types import SimpleNamespace

import pytest

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
    "nvmlDeviceGetClockInfo": lambda _, clock: 1900 if clock == "sm" else 0,
    "nvmlDeviceGetTemperature": lambda _, sensor: 40 if sensor == "gpu" else 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 4,
}


def fake_nvml(*broken):
    """A library with two GPUs that does not support what `broken` names."""

    def refuse(*_arguments):
        raise RuntimeError("not supported")

    functions = {name: refuse if name in broken else call for name, call in FUNCTIONS.items()}
    return SimpleNamespace(NVML_CLOCK_SM="sm", NVML_TEMPERATURE_GPU="gpu", **functions)


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
        ("total_energy_j", 5.0),
        ("utilisation_pct", 99.0),
        ("memory_used_bytes", 7.0),
        ("sm_clock_mhz", 1900.0),
        ("temperature_c", 40.0),
        ("throttle_reasons", 4.0),
    ]


def test_what_is_not_supported_is_none_and_never_zero(install):
    install(fake_nvml("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"))
    read = dict(gpu.read_gpu(0))
    assert read["memory_used_bytes"] is None
    assert read["utilisation_pct"] is None
    assert read["power_w"] == 11.17
    assert gpu.list_gpus()[0].memory_bytes is None


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
