import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bench import gpu, telemetry
from bench.model import Timeouts

RECORDED = Path(__file__).parents[1] / "lab" / "recordings" / "eagle3-3-1-4" / "metrics.prom"


@asynccontextmanager
async def serving(answer):
    """The base URL of a server whose /metrics answers `answer(how many times it was asked)`."""
    asked, over = [], asyncio.Event()

    async def metrics(_request):
        asked.append(1)
        status, text = answer(len(asked))
        if status is None:
            await over.wait()
        return web.Response(status=status or 200, text=text)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        await runner.cleanup()


def counting(times):
    return 200, f"sglang:generation_tokens_total {times * 10}\n"


def values(points, name):
    return [point.value for point in points if point.name == name]


@pytest.fixture(autouse=True)
def quick_periods(monkeypatch):
    monkeypatch.setattr(telemetry, "SCRAPE_PERIOD_NS", 5_000_000)
    monkeypatch.setattr(telemetry, "GPU_PERIOD_NS", 5_000_000)


async def test_the_first_and_the_last_scrape_enclose_what_is_measured(monkeypatch):
    monkeypatch.setattr(telemetry, "SCRAPE_PERIOD_NS", 10**12)
    served = []

    def answer(times):
        served.append(times)
        return counting(times)

    async with serving(answer) as url:
        async with telemetry.watch(url) as points:
            assert values(points, "sglang:generation_tokens_total") == [10]
            assert served == [1]
        assert served == [1, 2]
    assert values(points, "sglang:generation_tokens_total") == [10, 20]
    assert points.missing_reason is None
    assert all(point.source == "server" for point in points)
    assert points[0].t_ns < points[1].t_ns


async def test_scrapes_go_on_in_between():
    async with serving(counting) as url, telemetry.watch(url) as points:
        async with asyncio.timeout(20):
            while len(points) < 4:  # noqa: ASYNC110  # what is waited for is the list's growth
                await asyncio.sleep(0.005)
    counts = values(points, "sglang:generation_tokens_total")
    assert counts == sorted(counts)


async def test_a_recorded_scrape_becomes_points():
    text = RECORDED.read_text()
    async with serving(lambda _: (200, text)) as url, telemetry.watch(url) as points:
        pass
    assert values(points, "sglang:spec_num_steps")[:1] == [3]
    assert "sglang:cuda_graph_passes_total{mode=decode_none}" in {point.name for point in points}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: (404, "Not Found"), "--enable-metrics"),
        (lambda _: (500, "boom"), "status 500: boom"),
        (lambda _: (200, "python_info 1\n"), "none of SGLang's series"),
        (lambda _: (None, ""), "no answer within"),
    ],
)
async def test_metrics_that_cannot_be_read_are_missing_with_the_reason(answer, reason):
    brief = Timeouts(scrape_s=0.05)
    async with serving(answer) as url, telemetry.watch(url, timeouts=brief) as points:
        pass
    assert points == []
    assert reason in points.missing_reason


async def test_a_server_that_is_gone_does_not_raise():
    async with telemetry.watch("http://127.0.0.1:9") as points:
        pass
    assert points == []
    assert points.missing_reason


async def test_a_missed_first_scrape_is_tried_again(monkeypatch):
    monkeypatch.setattr(telemetry, "SCRAPE_PERIOD_NS", 10**12)

    def answer(times):
        return (None, "") if times == 1 else counting(times)

    brief = Timeouts(scrape_s=0.2)
    async with serving(answer) as url, telemetry.watch(url, timeouts=brief) as points:
        assert values(points, "sglang:generation_tokens_total") == [20]
    assert points.missing_reason is None


async def test_the_measured_code_may_fail_and_the_last_scrape_is_still_made():
    seen = []

    async def measure(url):
        async with telemetry.watch(url) as points:
            seen.append(points)
            seen.append(len(points))
            raise ValueError("theirs")

    async with serving(counting) as url:
        with pytest.raises(ValueError, match="theirs"):
            await measure(url)
    points, before = seen
    assert len(points) > before


async def test_gpus_are_sampled_by_index(monkeypatch):
    monkeypatch.setattr(gpu, "read_gpu", lambda index: [("power_w", 100.0 + index), ("x", None)])
    async with serving(counting) as url, telemetry.watch(url, gpus=(1, 3)) as points:
        async with asyncio.timeout(20):
            while not values(points, "power_w"):  # noqa: ASYNC110  # the list's growth
                await asyncio.sleep(0.005)
    readings = {(p.rank, p.name): p.value for p in points if p.source == "gpu"}
    assert readings == {
        (1, "power_w"): 101.0,
        (1, "x"): None,
        (3, "power_w"): 103.0,
        (3, "x"): None,
    }


async def test_a_reading_that_breaks_ends_only_itself(monkeypatch):
    def breaks(_index):
        raise RuntimeError("driver gone")

    monkeypatch.setattr(gpu, "read_gpu", breaks)
    async with serving(counting) as url, telemetry.watch(url, gpus=(0,)) as points:
        await asyncio.sleep(0.05)
    assert "driver gone" in points.gpu_missing_reason
    assert points.missing_reason is None
    assert values(points, "sglang:generation_tokens_total")


# -- several workers


def running(count, rank=""):
    return f"sglang:num_running_reqs{rank} {count}\nsglang:generation_tokens_total 100\n"


async def test_every_worker_is_scraped_and_its_ranks_are_told_apart():
    ranked = running(1, '{dp_rank="0"}') + 'sglang:num_running_reqs{dp_rank="1"} 2\n'
    async with (
        serving(lambda _: (200, ranked)) as first,
        serving(lambda _: (200, running(5))) as second,
        telemetry.watch("http://127.0.0.1:9", worker_urls=(first, second)) as points,
    ):
        seen = {(p.name, p.rank): p.value for p in points}
    assert seen == {
        ("sglang:num_running_reqs", 0): 1,
        ("sglang:num_running_reqs", 1): 2,
        ("sglang:num_running_reqs", 1000): 5,
        ("sglang:generation_tokens_total", None): 100,
        ("sglang:generation_tokens_total", 1000): 100,
    }
    assert points.missing_reason is None


async def test_a_scrape_counts_only_when_every_worker_answers(monkeypatch):
    monkeypatch.setattr(telemetry, "SCRAPE_PERIOD_NS", 10**12)

    def answer(times):
        return (None, "") if times == 1 else (200, running(7))

    brief = Timeouts(scrape_s=0.2)
    async with (
        serving(lambda _: (200, running(5))) as first,
        serving(answer) as second,
        telemetry.watch(first, worker_urls=(first, second), timeouts=brief) as points,
    ):
        assert {(p.rank, p.value) for p in points if "running" in p.name} == {(None, 5), (1000, 7)}
        assert len({p.t_ns for p in points}) == 1


async def test_a_worker_that_does_not_answer_is_named_in_the_reason():
    brief = Timeouts(scrape_s=0.05)
    async with (
        serving(counting) as first,
        serving(lambda _: (404, "")) as second,
        telemetry.watch(
            "http://127.0.0.1:9", worker_urls=(first, second), timeouts=brief
        ) as points,
    ):
        pass
    assert points == []
    assert points.missing_reason.startswith("worker 2 of 2: the server has no /metrics")


async def test_a_last_scrape_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(telemetry, "SCRAPE_PERIOD_NS", 10**12)

    def answer(times):
        return counting(times) if times == 1 else (None, "")

    brief = Timeouts(scrape_s=0.05)
    async with serving(answer) as url, telemetry.watch(url, timeouts=brief) as points:
        pass
    assert values(points, "sglang:generation_tokens_total") == [10]
    assert points.missing_reason.startswith("the last reading failed: GET metrics: no answer")


# -- GPUs elsewhere

SMI = "index, power.draw [W], utilization.gpu [%]"


def printing(script):
    return (sys.executable, "-c", script)


async def watched(command, gpus=(), enough=None):
    async with (
        asyncio.timeout(20),
        serving(counting) as url,
        telemetry.watch(url, gpus=gpus, gpu_command=command) as points,
    ):
        while not enough(points):  # noqa: ASYNC110  # the list's growth
            await asyncio.sleep(0.005)
    return points


async def test_what_a_remote_nvidia_smi_prints_is_followed():
    script = f"""
import time
print("a banner", flush=True)
print("{SMI}", flush=True)
while True:
    print("0, 100.5 W, 99 %", flush=True)
    print("3, [N/A], 50 %", flush=True)
    time.sleep(0.01)
"""
    points = await watched(
        printing(script), gpus=(3,), enough=lambda p: len(values(p, "utilisation_pct")) > 2
    )
    of_gpus = [p for p in points if p.source == "gpu"]
    assert {p.rank for p in of_gpus} == {3}
    assert set(values(of_gpus, "utilisation_pct")) == {50.0}
    assert set(values(of_gpus, "power_w")) == {None}
    assert points.gpu_missing_reason is None
    assert points.missing_reason is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (printing("import sys; sys.exit('no such host')"), "ended with status 1: no such host"),
        (("/nowhere/nvidia-smi",), "cannot be run: No such file"),
        (printing(f"print('{SMI}')"), "ended with status 0"),
    ],
)
async def test_gpus_elsewhere_that_cannot_be_read_are_missing_with_the_reason(command, reason):
    points = await watched(command, enough=lambda p: reason in (p.gpu_missing_reason or ""))
    assert [p for p in points if p.source == "gpu"] == []


async def test_gpus_that_tell_nothing_are_missing_with_the_reason(monkeypatch):
    monkeypatch.setattr(gpu, "read_gpu", lambda _: [("power_w", None)])
    async with serving(counting) as url, telemetry.watch(url, gpus=(0,)) as points:
        async with asyncio.timeout(20):
            while points.gpu_missing_reason is None:  # noqa: ASYNC110  # another task sets it
                await asyncio.sleep(0.005)
    assert "NVML" in points.gpu_missing_reason
