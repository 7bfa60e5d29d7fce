from hypothesis import given, settings
from hypothesis import strategies as st

from bench.server.environment import SEPARATOR, Arrival, arrival, read_environments

names = st.text("ABC_", min_size=1, max_size=4)
values = st.text("xyz= ", max_size=4)
environments = st.lists(st.dictionaries(names, values, min_size=2), min_size=1, max_size=3)


@settings(deadline=None, max_examples=50)
@given(environments)
def test_environments_are_read_as_the_kernel_has_them(several):
    raw = [
        b"".join(f"{name}={value}".encode() + b"\0" for name, value in one.items())
        for one in several
    ]
    assert read_environments(b"".join(part + SEPARATOR for part in raw)) == several
    assert read_environments(raw[0]) == several[:1]


def test_an_empty_environment_is_one_and_an_overwritten_one_is_none():
    renamed = b"sglang::scheduler\0\0\0\0"
    assert read_environments(SEPARATOR + renamed + SEPARATOR) == [{}]


def test_what_most_processes_have_has_arrived():
    having, without = {"A": "1"}, {"A": "2", "B": "1"}
    assert arrival({"A": "1"}, [having, having, without], []) == Arrival()
    assert arrival({"A": "1"}, [having, without], []).lost == (("A", "is '2' there"),)
    assert arrival({"A": "1"}, [{}], []).lost == (("A", "is not set there"),)


def test_nccls_own_lines_prove_what_nothing_else_can():
    log = ["box:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring."]
    asked = {"NCCL_ALGO": "Ring", "OTHER": "1"}
    assert arrival(asked, [], log) == Arrival(unproved=("OTHER",))
    assert arrival({"NCCL_ALGO": "Tree"}, [], log).lost == (("NCCL_ALGO", "is 'Ring' there"),)
