from pathlib import Path

import pytest

RECORDINGS = Path(__file__).parents[1] / "lab" / "recordings"


@pytest.fixture(params=sorted(folder.name for folder in RECORDINGS.iterdir()))
def recording(request):
    """A folder of what a real SGLang answered."""
    return RECORDINGS / request.param


@pytest.fixture
def eagle3():
    return RECORDINGS / "eagle3-3-1-4"


@pytest.fixture
def baseline():
    return RECORDINGS / "baseline"
