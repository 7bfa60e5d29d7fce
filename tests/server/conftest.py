import uvloop


def pytest_asyncio_loop_factories(config, item):
    """The loop that `bench run` uses: its subprocesses differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}
