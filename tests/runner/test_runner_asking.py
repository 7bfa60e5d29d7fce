"""SGLang asked before a launch, with stand-ins for the `sglang` package."""

import sys

import pytest

from bench.errors import ServerError
from bench.model import FindingKind, ServerConfig, Severity
from bench.runner.asking import Asking
from bench.runner.events import LaunchProgress, Noted

PACKAGE = """
import pathlib, types
def prepare_server_args(argv):
    asked = pathlib.Path(__file__).with_name("asked")
    asked.write_text(asked.read_text() + "x" if asked.exists() else "x")
    if "--bad" in argv:
        raise ValueError("not with " + argv[-1])
    resolved = {"speculative_num_draft_tokens": 7}
    return types.SimpleNamespace(resolved_dict=lambda: resolved)
"""
CHAIN = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
CHAIN += ("--speculative-eagle-topk", "1")


@pytest.fixture
def server(tmp_path):
    """Makes the configuration of a server whose Python finds the stand-in."""
    srt = tmp_path / "sglang" / "srt"
    srt.mkdir(parents=True)
    (tmp_path / "sglang" / "version.py").write_text("__version__ = '0.5.23'")
    (srt / "server_args.py").write_text(PACKAGE)

    def make(*arguments, **changes):
        facts = {
            "arguments": arguments,
            "environment": (("PYTHONPATH", str(tmp_path)), ("HF_TOKEN", "hf_secret_of_mine")),
            "command": ("serve",),
            "resolve": (sys.executable,),
        }
        return ServerConfig(**(facts | changes))

    return make


@pytest.fixture
def times_asked(tmp_path):
    asked = tmp_path / "sglang" / "srt" / "asked"
    return lambda: len(asked.read_text()) if asked.exists() else 0


@pytest.fixture
def events():
    return []


@pytest.fixture
def asking(events):
    return Asking(events.append)


async def test_what_it_refuses_is_not_launched(asking, server):
    with pytest.raises(ServerError) as caught:
        await asking.require_accepted(server("--bad", "hf_secret_of_mine"), "key")
    assert "SGLang 0.5.23 refuses its arguments: ValueError: not with" in str(caught.value)
    assert "hf_secret_of_mine" not in str(caught.value)
    assert caught.value.hint


async def test_each_configuration_is_asked_for_once(asking, server, times_asked):
    for _ in range(2):
        with pytest.raises(ServerError):
            await asking.require_accepted(server("--bad"), "one")
    assert times_asked() == 1
    await asking.require_accepted(server(*CHAIN), "other")
    assert times_asked() == 2


async def test_what_it_resolves_otherwise_is_a_note(asking, server):
    await asking.require_accepted(server(*CHAIN), "key")
    [finding] = asking.findings("key", "cell")
    assert finding.kind is FindingKind.ARGUMENTS_DISAGREE
    assert (finding.severity, finding.cell_id) == (Severity.NOTE, "cell")
    assert (
        "speculative_num_draft_tokens is 7 in SGLang 0.5.23 and 4 by the rules" in finding.message
    )
    assert asking.findings("another", "cell") == ()


@pytest.mark.parametrize(
    "changes",
    [{"launcher": "simulated"}, {"launcher": "attached", "url": "http://x"}, {"resolve": ()}],
)
async def test_nobody_is_asked_about_other_servers(asking, server, times_asked, events, changes):
    await asking.require_accepted(server("--bad", **changes), "key")
    assert (times_asked(), events) == (0, [])


async def test_that_nobody_could_be_asked_is_said(asking, server, events):
    await asking.require_accepted(server(resolve=("no-such-python",)), "key")
    assert [type(event) for event in events] == [LaunchProgress, Noted]
    assert "could not be asked" in events[1].text
