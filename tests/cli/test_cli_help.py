"""Every --help as it is printed.

To renew one: `COLUMNS=80 bench run --help > tests/golden/help/run.txt`.
"""

import pytest
from bench_command import GOLDEN

HELP = GOLDEN / "help"
COMMANDS = (
    *("run", "resume", "list", "show", "report", "compare", "schema", "simulate"),
    *("selftest", "card", "doctor", "nightly"),
)


@pytest.mark.parametrize("name", ["bench", *COMMANDS])
def test_help_is_as_it_was(name, bench):
    arguments = [] if name == "bench" else [name]
    assert bench(*arguments, "--help") == (0, (HELP / f"{name}.txt").read_text(), "")


def test_every_command_has_its_golden_help(bench):
    _, out, _ = bench("--help")
    commands = out.partition("Commands:\n")[2]
    named = [line.split()[0] for line in commands.splitlines()]
    assert sorted(named) == sorted(COMMANDS)
    assert {path.stem for path in HELP.iterdir()} == {"bench", *COMMANDS}
    assert "..." not in commands  # nothing is cut


def test_without_a_command_the_help_is_shown(bench):
    code, out, err = bench()
    assert code == 2
    assert out + err == (HELP / "bench.txt").read_text()


def test_the_version(bench):
    code, out, _ = bench("--version")
    assert code == 0
    assert out.startswith("specdyno ")
