"""A page is one file that is whole, inert and says what it must, whatever the run."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from report_examples import stored_run

from bench.errors import DiskError, StoreError
from bench.model import Finding, FindingKind, Severity
from bench.store import load_run
from reports import page_html, page_markdown, run_page, write_data, write_figures, write_page
from reports.blocks import Table
from reports.findings import finding_remarks
from reports.plots.style import DARK, VARIABLES
from reports.render import table_csv

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"
HOSTILE = '</title><script>alert(1)</script> "quoted" $x^2$ \\frac & <img src=x onerror=alert(1)>'
VOID = {"meta", "link", "path", "use", "rect", "br", "img", "input", "hr", "circle"}


class Reader(HTMLParser):
    """Tags, attributes and visible text of a page; notes tags that are not closed."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.text, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open, tag
            assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip() and not {"style", "script", "svg"} & set(self.open):
            self.text.append(" ".join(data.split()))


def read(html) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def html(run):
    return page_html(run_page(run))


def test_the_text_of_a_page(html):
    text = "\n".join(read(html).text) + "\n"
    assert text == (GOLDEN / "run.txt").read_text()


def test_the_markdown_of_a_page(run):
    assert page_markdown(run_page(run)) == (GOLDEN / "run.md").read_text()


def test_nothing_is_loaded_from_anywhere(html):
    names = {"src", "href", "xlink:href", "action", "srcset", "poster"}
    for name, value in read(html).attributes:
        if name in names:
            assert not re.match(r"(?i)\s*(https?:|//|javascript:|file:)", value or "")
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_ids_are_unique_and_every_reference_has_its_target(html):
    attributes = read(html).attributes
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for name, value in attributes if name == "href" and value[:1] == "#"}
    targets |= set(re.findall(r"url\(#([^)]+)\)", html))
    assert targets <= set(ids)


def test_a_simulated_run_says_so_on_the_page_and_in_every_figure(tmp_path):
    page = run_page(stored_run(tmp_path, simulated=True))
    made = page_html(page)
    assert 'class="band"' in made
    figures = made.count('<svg class="figure"')
    assert figures >= 6
    assert "**SIMULATED" in page_markdown(page)
    assert made.count("SIMULATED – not measured on hardware") == figures


def test_a_measured_run_is_not_called_simulated(html):
    assert "SIMULATED" not in html


def test_hostile_names_are_inert(tmp_path):
    stored = stored_run(tmp_path, question=HOSTILE, failed_share=0.1, error=HOSTILE)
    page = run_page(stored)
    reader = read(page_html(page))
    assert reader.tags.count("script") == 1
    assert "img" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    markdown = page_markdown(page)
    assert "<script>" not in markdown
    assert "<img" not in markdown


def test_missing_cells_and_failed_launches_are_told(tmp_path):
    stored = stored_run(tmp_path, measured=lambda ordinal, _: ordinal != 1)
    page = run_page(stored)
    assert "Only 6 of 8 cells were measured" in page.warnings[0]
    text = " ".join(read(page_html(page)).text)
    assert "failed CUDA out of memory <b>&</b>" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"loads": (1,), "pairs": 1},
        {"measured": lambda *_: False},
        {"measured": lambda ordinal, cell: ordinal == 0 and cell.load.label == "1"},
        {"failed_share": 1.0},
        {"gpu": False},
        {"published": False},
    ],
    ids=["one load", "nothing", "one cell", "all failed", "no gpu", "part-run"],
)
def test_any_run_has_a_page(tmp_path, changes):
    page = run_page(stored_run(tmp_path, **changes))
    read(page_html(page))
    assert page.answer
    assert page_markdown(page)


def test_two_hundred_cells_make_a_page_under_three_megabytes(run, tmp_path):
    stored = with_loads(run, [str(load) for load in range(1, 51)])
    assert len(stored.measurements) == 200
    assert "The first 24 of 50; the tables have all." in page_html(run_page(stored))
    file = write_page(run_page(stored), tmp_path / "report.html")
    assert file.stat().st_size < 3_000_000


def with_loads(run, loads):
    """The run with each of its cells at load 1 repeated at so many loads."""
    plan = tuple(
        replace(
            launch,
            cells=tuple(
                replace(cell, cell_id=f"{cell.cell_id}-{load}", load=load)
                for cell in launch.cells
                if cell.load == "1"
                for load in loads
            ),
        )
        for launch in run.manifest.plan
    )
    return replace(
        run,
        manifest=replace(run.manifest, plan=plan),
        measurements=tuple(
            replace(m, cell_id=f"{m.cell_id}-{load}", load=load)
            for m in run.measurements
            if m.load == "1"
            for load in loads
        ),
        comparisons=tuple(
            replace(c, load=load) for c in run.comparisons if c.load == "1" for load in loads
        ),
    )


def test_the_same_run_gives_the_same_bytes(run, html):
    assert page_html(run_page(run)) == html


def test_figures_and_data_are_written_as_files(run, tmp_path):
    page = run_page(run)
    figures = {file.name for file in write_figures(page, tmp_path / "figures")}
    assert {"speedup.svg", "speedup.png", "timeline.svg"} <= figures
    assert (tmp_path / "figures" / "speedup.png").read_bytes().startswith(b"\x89PNG")
    data = {file.name: file for file in write_data(page, tmp_path / "data")}
    with data["comparisons.csv"].open() as file:
        rows = list(csv.DictReader(file))
    speedups = {c.load: c.speedup for c in run.comparisons}
    assert {row["load"]: float(row["speedup"]) for row in rows} == speedups


def test_faults_on_request_stand_above_every_figure(run):
    first, *rest = run.manifest.launches
    argv = (*first.argv, "--sim-faults", "crash:cell=2,stall:p=0.1")
    launches = (replace(first, argv=argv), *rest)
    faulted = replace(run, manifest=replace(run.manifest, launches=launches))
    told = f"Faults on request: {first.arm} crash:cell=2, stall:p=0.1."
    assert told in run_page(faulted).warnings
    assert not run_page(run).warnings


def test_a_csv_holds_no_formula():
    from reports.blocks import Column, text

    table = Table(
        name="t",
        caption="",
        columns=(Column(name="a", label="a", numeric=False),),
        rows=((text("=1+1"),), (text("@x"),), (text(None),)),
    )
    assert list(csv.reader(io.StringIO(table_csv(table)))) == [["a"], ["'=1+1"], ["'@x"], [""]]


@pytest.mark.parametrize("table", ["samples.parquet", "telemetry.parquet"])
@pytest.mark.parametrize("content", [b"", b"junk" * 100], ids=["empty", "junk"])
def test_a_damaged_table_is_named(tmp_path, table, content):
    stored = stored_run(tmp_path, loads=(1,), pairs=1)
    (stored.folder / table).write_bytes(content)
    with pytest.raises(StoreError, match=f"{table} is damaged"):
        run_page(stored)
    (stored.folder / table).unlink()
    assert page_html(run_page(stored))


@pytest.mark.parametrize(
    ("table", "column"), [("samples.parquet", "event_tok_delta"), ("telemetry.parquet", "rank")]
)
def test_a_table_without_a_column_is_damaged(tmp_path, table, column):
    stored = stored_run(tmp_path, loads=(1,), pairs=1)
    file = stored.folder / table
    pq.write_table(pq.read_table(file).drop_columns([column]), file)
    with pytest.raises(StoreError, match=f"{table} is damaged: it has no {column}"):
        run_page(stored)


def test_a_run_of_the_first_schema_has_a_page():
    (folder,) = (GOLDEN.parent / "store" / "v1" / "demo").iterdir()
    assert page_html(run_page(load_run(folder)))


def test_a_question_without_end_leaves_room_for_the_answer(tmp_path):
    html = page_html(run_page(stored_run(tmp_path, question="why " * 5000, loads=(1,), pairs=1)))
    title = html[html.index("<h1>") : html.index("</h1>")]
    assert len(title) < 500
    assert title.endswith("…")


def test_loads_that_stand_close_leave_out_labels_not_marks(run):
    html = page_html(run_page(with_loads(run, [str(load) for load in range(1, 51)])))
    axis = html[html.index('id="speedup-') : html.index('id="break-even-')]
    labels = re.findall(r">\s*(\d+)\s*</text>", axis)
    assert labels[0] == "1"
    assert len(labels) <= 15


def test_a_finding_of_several_arms_names_them_and_reads_as_sentences(tmp_path):
    stored = stored_run(tmp_path, more_arms=1, loads=(1,), pairs=1)
    findings = tuple(
        Finding(
            kind=FindingKind.ARMS_ALIKE,
            severity=Severity.NOTE,
            message=f"the settings of {arm} are another's",
            advice="",
            cell_id=None,
            arm=arm,
        )
        for arm in ("eagle3", "c01")
    )
    (remark,) = finding_remarks(replace(stored, findings=findings))
    assert remark.where == "eagle3; c01"
    assert remark.text == (
        "The settings of eagle3 are another's. The settings of c01 are another's."
    )


def test_a_page_that_cannot_be_written_is_told(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="cannot be written"):
        write_page(run_page(run), tmp_path / "file" / "report.html")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_legible_by_wcag(theme):
    colours = DARK if theme == "dark" else {v: k for k, v in VARIABLES.items()}
    assert colours.keys() == DARK.keys()
    surfaces = [colours["surface"], "#171d24" if theme == "dark" else "#f6f8fa"]
    for surface in surfaces:
        for name in ("ink", "muted", "good", "bad", "warn"):
            assert contrast(colours[name], surface) >= 4.5, name
        for name in colours:
            if name.startswith(("series", "baseline")):
                assert contrast(colours[name], surface) >= 3, name
