"""Every --help as it is printed; to renew one: COLUMNS=80 bench run --help > tests/golden/help/run.txt"""

import pytest
from bench_command import GOLDEN, run_bench

HELP = GOLDEN / "help"
COMMANDS = ("run", "resume", "list", "show", "schema", "simulate")


@pytest.mark.parametrize("name", ["bench", *COMMANDS])
def test_help_is_as_it_was(name, tmp_path):
    arguments = [] if name == "bench" else [name]
    code, out, err = run_bench(*arguments, "--help", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out == (HELP / f"{name}.txt").read_text()


def test_every_command_has_its_golden_help(tmp_path):
    _, out, _ = run_bench("--help", cwd=tmp_path)
    commands = out.partition("Commands:\n")[2]
    named = [line.split()[0] for line in commands.splitlines()]
    assert sorted(named) == sorted(COMMANDS)
    assert {path.stem for path in HELP.iterdir()} == {"bench", *COMMANDS}
    assert "..." not in commands  # nothing is cut


def test_without_a_command_the_help_is_shown(tmp_path):
    code, out, err = run_bench(cwd=tmp_path)
    assert code == 2
    assert (out + err) == (HELP / "bench.txt").read_text()


def test_the_version(tmp_path):
    code, out, _ = run_bench("--version", cwd=tmp_path)
    assert code == 0
    assert out.startswith("specdyno ")
