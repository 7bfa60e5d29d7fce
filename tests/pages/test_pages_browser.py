"""Pages as a reader meets them: in a browser, on a phone, in the dark, on paper."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
sys.path.insert(0, str(Path(__file__).parents[1] / "nightly"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tuner"))
from nightly_examples import judged_half_year
from report_examples import stored_run
from studies import make_study, with_configuration

from reports import compare_page, nightly_page, run_page, study_page, write_page

pytestmark = pytest.mark.pages

HOSTILE = '"><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">' * 3
LONG = "a-workload-whose-name-is-as-long-as-a-name-may-be-at-most-64-ch"

KINDS = {
    "run": lambda folder: run_page(stored_run(folder)),
    "simulated": lambda folder: run_page(stored_run(folder, simulated=True, loads=(1, 8, 64))),
    "half failed": lambda folder: run_page(
        stored_run(folder, measured=lambda ordinal, _: ordinal % 2 == 0, failed_share=0.1)
    ),
    "by category": lambda folder: run_page(
        stored_run(folder, categories=("chat", "code", "maths"), simulated=True, more_arms=2)
    ),
    "one cell": lambda folder: run_page(
        stored_run(folder, measured=lambda ordinal, cell: ordinal == 0 and cell.load.label == "1")
    ),
    "nothing": lambda folder: run_page(stored_run(folder, measured=lambda *_: False)),
    "hostile": lambda folder: run_page(
        stored_run(
            folder,
            question=HOSTILE,
            workload=LONG,
            error=HOSTILE,
            failed_share=0.2,
        )
    ),
    "200 cells": lambda folder: run_page(
        stored_run(folder, loads=range(1, 26), per_slot=1, pairs=4)
    ),
    "comparison": lambda folder: compare_page(
        stored_run(folder / "a"), stored_run(folder / "b", gain=lambda _: 1.0)
    ),
    "nightly": lambda _: nightly_page(judged_half_year()),
    "nightly hostile": lambda _: nightly_page(judged_half_year(name=HOSTILE, nights=40)),
    "no night": lambda _: nightly_page(judged_half_year(nights=0)),
    "on a CPU": lambda folder: run_page(stored_run(folder, gpus=0, gpu=False)),
    "of a study": lambda folder: run_page(
        stored_run(folder, more_arms=20, pairs=1, loads=(1,), per_slot=2)
    ),
    "study": lambda folder: study_page(
        make_study(simulated=True, present=4), stored_run(folder, simulated=True)
    ),
    "part-study": lambda _: study_page(make_study(concluded=False), "its tables are gone"),
    "study hostile": lambda _: study_page(
        replace(
            with_configuration(
                make_study(deploy=18), 3, label=HOSTILE, environment=((LONG, HOSTILE),)
            ),
            question=HOSTILE,
            notes=(HOSTILE,),
            illegal=((HOSTILE, 1, LONG),),
        ),
        HOSTILE,
    ),
}


# A table with a row an arm or a configuration, and figures of each.
_HAS_NUMBERS = "th[data-name=arm], th[data-name=configuration]"


@pytest.fixture(scope="module", params=KINDS)
def page_file(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return write_page(KINDS[request.param](folder), folder / "report.html")


@pytest.fixture
def opened(browser, page_file):
    """Opens the page in a new window; at the end nothing was complained of or asked for."""
    contexts, complaints, requests = [], [], []

    def open_page(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
    assert {url for url in requests if not url.startswith("data:")} == {page_file.as_uri()}


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_wider_than_the_window(opened, width):
    page = opened(viewport={"width": width, "height": 900})
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert overflow <= 0


def test_names_that_are_markup_do_nothing(opened):
    page = opened()
    assert page.evaluate("window.hacked") is None


def test_a_page_is_whole_without_script(opened):
    page = opened(java_script_enabled=False)
    assert page.locator("h1").is_visible()
    assert page.locator("#answer p").first.is_visible()
    assert page.locator("section").count() >= 2


def test_tables_sort_by_value(opened):
    page = opened()
    table = page.locator(".table", has=page.locator(_HAS_NUMBERS)).first
    if not table.count():
        return
    heading = table.locator("th.number").last
    place = heading.evaluate("cell => cell.cellIndex")
    values = f"rows => rows.map(row => row.cells[{place}].dataset.raw)"
    before = table.locator("tbody tr").evaluate_all(values)
    heading.locator("button").click()
    after = table.locator("tbody tr").evaluate_all(values)
    present = sorted((float(value) for value in before if value), key=float)
    assert [float(value) for value in after if value] == present
    assert [value for value in after if not value] == after[len(present) :]
    assert heading.get_attribute("aria-sort") == "ascending"


def test_a_series_can_be_hidden(opened):
    page = opened()
    key = page.locator(".key").last
    if not key.count():
        return
    series = page.locator(f"svg .{key.get_attribute('data-series')}")
    shown = series.count()
    key.click()
    assert page.locator(f"svg .{key.get_attribute('data-series')}.hidden").count() == shown
    key.click()
    assert page.locator("svg .hidden").count() == 0


def test_a_command_is_copied_as_it_is(opened):
    page = opened()
    command = page.locator(".command").first
    if not command.count():
        return
    button = command.locator("button")
    button.evaluate(
        """button => { window.told = new Promise(told => {
            const watch = new MutationObserver(() => told(button.textContent));
            watch.observe(button, {childList: true});
        }); }"""
    )
    button.click()
    assert page.evaluate("window.told") == "copied"
    page.evaluate("document.body.append(document.createElement('textarea'))")
    page.locator("textarea").focus()
    page.keyboard.press("Control+V")
    assert page.locator("textarea").input_value() == command.locator("code").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast_by_wcag_aa(opened, scheme):
    page = opened(color_scheme=scheme)
    assert page.evaluate(_LOW_CONTRAST) == []


def test_it_prints_whole(opened, page_file):
    page = opened(viewport={"width": _A4_PX, "height": 1000})
    page.emulate_media(media="print")
    assert page.locator("#answer").is_visible()
    beyond = page.evaluate(
        """width => [...document.querySelectorAll("h1, p, pre, table, svg")]
        .filter(part => part.getBoundingClientRect().right > width + 1)
        .map(part => part.closest("[data-name]")?.dataset.name ?? part.tagName)""",
        _A4_PX,
    )
    assert beyond == []
    clipped = page.evaluate(
        """[...document.querySelectorAll(".scroll, .drawing, pre")]
        .filter(box => getComputedStyle(box).overflowX !== "visible").length"""
    )
    assert clipped == 0
    assert page.pdf(format="A4").startswith(b"%PDF")


_A4_PX = 718  # between the margins

_LOW_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (v) => v <= 10.3 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (getComputedStyle(at).backgroundImage !== "none") return [255, 216, 102];
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || ["SCRIPT", "STYLE", "defs"].includes(element.tagName)) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const svg = element.namespaceURI.endsWith("svg");
    const a = luminance(parse(svg ? style.fill : style.color)), b = luminance(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const shown = element.textContent.trim().slice(0, 40);
    if (ratio < 4.5) low.push(`${element.tagName} ${shown} ${ratio.toFixed(2)}`);
  }
  return [...new Set(low)];
}"""
