import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What is compiled and proven here is kept for these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def no_compiler(monkeypatch):
    """A machine without a C compiler."""
    monkeypatch.setattr("bench.selftest.building.shutil.which", lambda _: None)
