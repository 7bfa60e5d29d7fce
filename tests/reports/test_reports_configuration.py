"""What was asked and what a server made of it: only what differs, and no default that idles."""

from dataclasses import replace

import pytest
from report_examples import stored_run

from reports.blocks import Table
from reports.configuration import configuration_blocks


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("configuration"), loads=(1,), pairs=1)


def with_settings(run, *, argv=(), other=(), speculative=()):
    """The run whose servers were started with more options and told more settings.

    `other` and `speculative`: (name, the baseline's, the arm's).
    """
    launches = []
    for launch in run.manifest.launches:
        at = 1 if launch.arm == "baseline" else 2
        effective = replace(
            launch.effective,
            other=(*launch.effective.other, *((row[0], row[at]) for row in other)),
            speculative=(
                *launch.effective.speculative,
                *((row[0], row[at]) for row in speculative),
            ),
        )
        launches.append(replace(launch, argv=(*launch.argv, *argv), effective=effective))
    return replace(run, manifest=replace(run.manifest, launches=tuple(launches)))


def rows(run, name):
    found = [b for b in configuration_blocks(run) if isinstance(b, Table) and b.name == name]
    return [tuple(value.text for value in row) for table in found for row in table.rows]


def test_an_option_that_was_resolved_otherwise_is_told(run):
    changed = with_settings(
        run,
        argv=("--page-size", "1", "--mem-fraction-static", "0.80"),
        other=(("page_size", "1", "64"), ("mem_fraction_static", "0.8", "0.8")),
    )
    assert rows(changed, "changed_settings") == [("eagle3", "--page-size", "1", "64")]
    assert "Every option that the servers told of is as their commands ask." not in (
        configuration_blocks(changed)
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [("auto", "flashinfer"), ("1e-2", "0.01"), ("True", "true"), ("1 2", "[1, 2]")],
)
def test_the_same_in_another_form_is_no_change(run, asked, told):
    made = with_settings(run, argv=("--thing", asked), other=(("thing", told, told),))
    assert not rows(made, "changed_settings")
    assert "Every option that the servers told of is as their commands ask." in (
        configuration_blocks(made)
    )


def test_of_an_object_only_the_keys_that_differ_are_shown(run):
    made = with_settings(
        run, other=(("graphs", '{"a": {"x": 1, "y": 2}}', '{"a": {"x": 1, "y": 3}}'),)
    )
    told = {row[0]: row[1:] for row in rows(made, "other_settings")}
    assert told["graphs.a.y"] == ("2", "3")
    assert "graphs" not in told
    assert "graphs.a.x" not in told


def test_a_default_that_the_baseline_has_too_is_not_shown(run):
    made = with_settings(run, speculative=(("match", "BFS", "BFS"), ("window", None, 4)))
    names = [row[0] for row in rows(made, "speculative_settings")]
    assert "match" not in names
    assert {"window", "num_steps"} <= set(names)


def test_many_arms_stand_below_each_other(tmp_path):
    many = stored_run(tmp_path, more_arms=8, loads=(1,), pairs=1)
    found = rows(many, "speculative_settings")
    assert [row[0] for row in found] == ["baseline", "eagle3", *(f"c0{n}" for n in range(1, 9))]
