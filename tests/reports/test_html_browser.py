"""The HTML report in a real browser: every control does what it says, and nothing goes wrong or out.

Needs Playwright and a Chromium of the system; skipped, with the reason, where either is missing.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reports import report_builders as build

from kerneleval.reports import html

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (pip install playwright)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")

DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    run = dataclasses.replace(build.Made(tasks=("gelu",), samples=1).run, generators=(), planned=0, finished=0)
    documents = {
        "full": build.full(),
        "hostile": build.hostile(),
        "many": build.many(3000).document(),
        "empty": html.build(run, {}, iter(()), iter(()), {}),
    }
    for name, document in documents.items():
        html.write(document, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in documents}


class Reader:
    """A page that takes note of what goes wrong in it and of what leaves it."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda request: self._asked(request.url, file))
        page.on("requestfailed", lambda request: self.wrong.append(f"failed: {request.url[:200]}"))
        page.goto(file.as_uri())
        page.wait_for_function("document.querySelector('#theme').textContent.length > 0")

    def _asked(self, url: str, file: Path) -> None:
        if url.partition("#")[0] != file.as_uri():
            self.wrong.append(f"asked for {url[:200]}")

    def scroll_through(self) -> None:
        """As a reader does, so that every plot is drawn."""
        height = self.page.evaluate("document.documentElement.scrollHeight")
        for y in range(0, height, 700):
            self.page.evaluate("y => window.scrollTo({top: y, behavior: 'instant'})", y)
            self.page.wait_for_timeout(30)
        self.page.wait_for_timeout(150)

    def overflow(self) -> float:
        return float(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def texts(self, query: str) -> list[str]:
        found: list[str] = self.page.eval_on_selector_all(query, "all => all.map(one => one.textContent.trim())")
        return found


@pytest.fixture
def reader(browser: Any, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Reader]:
    file, viewport, scheme = getattr(request, "param", ("full", DESK, "light"))
    mobile = viewport["width"] < 600
    context = browser.new_context(
        viewport=viewport, color_scheme=scheme, is_mobile=mobile, has_touch=mobile, reduced_motion="reduce"
    )
    found = Reader(context.new_page(), files[file])
    yield found
    context.close()
    assert found.wrong == []


def on(*cases: tuple[str, dict[str, int], str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "reader", cases, indirect=True, ids=[f"{f}-{v['width']}-{s}" for f, v, s in cases]
    )  # fmt: skip


NARROW = {"width": 360, "height": 740}


@on(
    ("full", DESK, "light"),
    ("full", PHONE, "dark"),
    ("full", NARROW, "light"),
    ("hostile", DESK, "dark"),
    ("hostile", NARROW, "light"),
    ("many", PHONE, "light"),
    ("empty", PHONE, "dark"),
    ("empty", DESK, "light"),
)
def test_it_fits_and_every_plot_is_drawn(reader: Reader) -> None:
    reader.scroll_through()
    assert reader.overflow() <= 0
    plots = reader.page.eval_on_selector_all(
        ".plot",
        "all => all.map(one =>"
        " [one.id, one.querySelectorAll('svg.main-svg').length, one.scrollWidth <= one.clientWidth + 1])",
    )
    assert all(drawn and fits for _, drawn, fits in plots), plots
    assert reader.page.title().endswith("KernelEval")
    assert reader.page.evaluate("document.title") != "owned"


def test_the_theme_follows_the_system_and_the_button(reader: Reader) -> None:
    reader.scroll_through()
    background = "getComputedStyle(document.body).backgroundColor"
    tick = "getComputedStyle(document.querySelector('#plot-fast-p .xtick text')).fill"
    light, light_tick = reader.page.evaluate(background), reader.page.evaluate(tick)
    reader.page.click("#theme")
    dark, dark_tick = reader.page.evaluate(background), reader.page.evaluate(tick)
    assert light != dark and light_tick != dark_tick, "the plots follow"
    assert reader.page.get_attribute("#theme", "aria-pressed") == "true"
    reader.page.click("#theme")
    assert reader.page.evaluate(background) == light
    reader.page.emulate_media(color_scheme="dark")
    assert reader.page.evaluate(background) == light, "the choice stands"


@on(("full", DESK, "dark"))
def test_it_is_dark_where_the_system_is(reader: Reader) -> None:
    assert reader.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 21, 26)"
    assert reader.page.text_content("#theme") == "Light theme"


def test_every_column_sorts_both_ways(reader: Reader) -> None:
    tables = reader.page.query_selector_all("table.sortable")
    assert len(tables) >= 5
    for table in tables:
        heads = table.query_selector_all("thead th")
        for column, head in enumerate(heads):
            seen = {}
            for _ in range(2):
                head.query_selector(".sort").click()
                direction = head.get_attribute("aria-sort")
                seen[direction] = table.eval_on_selector_all(
                    "tbody tr",
                    "(rows, i) => rows.map(r => r.children[i].dataset.v ?? r.children[i].textContent.trim())",
                    column,
                )
            assert set(seen) == {"ascending", "descending"}
            assert len(table.query_selector_all("th[aria-sort]")) == 1
            for direction, values in seen.items():
                _ordered(values, direction)


def _ordered(values: list[str], direction: str) -> None:
    """Numbers are in order, and what has no value is last."""
    there = [v for v in values if v != ""]
    assert values == there + [""] * (len(values) - len(there)), "missing values are last"
    try:
        numbers = [float(v) for v in there]
    except ValueError:
        return
    assert numbers == sorted(numbers, reverse=direction == "descending")


def test_sorting_works_from_the_keyboard(reader: Reader) -> None:
    reader.page.focus("#t-leader thead th:nth-child(3) .sort")
    reader.page.keyboard.press("Enter")
    assert reader.page.get_attribute("#t-leader thead th:nth-child(3)", "aria-sort") == "descending"
    assert reader.texts("#t-leader tbody th")[0] == "careful"


def test_tables_are_searched(reader: Reader) -> None:
    for table in ("t-failures", "t-findings"):
        reader.page.fill(f"[data-search='{table}']", "zzz")
        assert reader.page.text_content(f"[data-count='{table}']").startswith("0 of ")
        reader.page.fill(f"[data-search='{table}']", "amax hasty" if table == "t-findings" else "build")
        shown = [row for row in reader.page.query_selector_all(f"#{table} tbody tr") if row.is_visible()]
        assert 0 < len(shown) < len(reader.page.query_selector_all(f"#{table} tbody tr"))
        reader.page.fill(f"[data-search='{table}']", "")
        assert reader.page.text_content(f"[data-count='{table}']") == ""


def test_every_definition_opens(reader: Reader) -> None:
    buttons = reader.page.query_selector_all(".def")
    assert len(buttons) > 12
    for button in buttons:
        button.scroll_into_view_if_needed()
        button.click()
        told = reader.page.query_selector(f"#{button.get_attribute('popovertarget')}")
        assert told.is_visible() and len(told.inner_text()) > 40
        reader.page.keyboard.press("Escape")
        assert not told.is_visible()


def test_everything_unfolds(reader: Reader) -> None:
    for fold in reader.page.query_selector_all("details.why:not([open]) > summary"):
        fold.click()
    for fold in reader.page.query_selector_all("details:not([open]) > summary"):
        if fold.is_visible():
            fold.click()
    assert reader.page.query_selector_all("details.source[open] pre.code span")
    left = [one.inner_text() for one in reader.page.query_selector_all("details:not([open])") if one.is_visible()]
    assert left == []
    assert reader.overflow() <= 0


def test_replay_lines_are_copied(reader: Reader) -> None:
    reader.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for fold in reader.page.query_selector_all("details.why:not([open]) > summary"):
        fold.click()
    buttons = reader.page.query_selector_all(".copy")
    assert len(buttons) > 5
    for button in buttons:
        line = button.evaluate("one => one.parentElement.querySelector('code').textContent")
        button.click()
        assert reader.page.evaluate("navigator.clipboard.readText()") == line
    assert buttons[-1].inner_text() == "Copied"


def test_generators_are_switched_off_and_on(reader: Reader) -> None:
    reader.scroll_through()
    for button in reader.page.query_selector_all("[data-toggle]"):
        plot = button.get_attribute("data-toggle")
        count = f"document.querySelectorAll('#{plot} .scatterlayer .trace').length"
        before = reader.page.evaluate(count)
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        assert reader.page.evaluate(count) < before
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert reader.page.evaluate(count) == before


def test_p_is_drawn_on_a_logarithmic_axis(reader: Reader) -> None:
    reader.scroll_through()
    before = reader.texts("#plot-fast-p .xtick")
    reader.page.click("#fast-log")
    assert reader.page.get_attribute("#fast-log", "aria-pressed") == "true"
    assert reader.texts("#plot-fast-p .xtick") != before
    reader.page.click("#fast-log")
    assert reader.texts("#plot-fast-p .xtick") == before


def test_operators_are_chosen_by_menu_search_and_panel(reader: Reader) -> None:
    reader.scroll_through()
    note = "#operator-note"
    options = reader.texts("#operator option")
    assert set(options) == set(build.TASKS)
    for name in options:
        reader.page.select_option("#operator", label=name)
        assert reader.page.text_content(note).startswith(f"{name}: all ")
    reader.page.fill("#operator-search", "soft")
    assert reader.texts("#operator option") == ["softmax"]
    assert reader.page.text_content(note).startswith("softmax: ")
    reader.page.fill("#operator-search", "no such operator")
    assert reader.page.text_content("#operator-found") == "0 of 8 operators"
    for panel in reader.page.query_selector_all(".panel"):
        name = panel.query_selector(".name").inner_text()
        panel.click()
        assert reader.page.text_content(note).startswith(f"{name}: ")
    assert reader.texts("#operator option") == options


def test_cells_are_paged_sorted_searched_and_chosen(reader: Reader) -> None:
    page = reader.page
    assert page.text_content("#cells-count") == "1–50 of 1,536"
    assert page.is_disabled("#cells-back")
    page.click("#cells-on")
    assert page.text_content("#cells-count") == "51–100 of 1,536"
    page.click("#cells-back")
    for head in page.query_selector_all("#t-cells thead th"):
        for _ in range(2):
            head.query_selector(".sort").click()
        assert head.get_attribute("aria-sort") in ("ascending", "descending")
    page.query_selector("#t-cells thead th:has-text('Speedup') .sort").click()
    values = [float(text.split("×")[0]) for text in reader.texts("#t-cells tbody td:nth-child(5)")]
    assert values in (sorted(values), sorted(values, reverse=True)) and len(values) == 50
    for which, wanted in (("failed", "/"), ("slower", "slower"), ("faster", "faster"), ("untimed", "right")):
        page.select_option("#cells-which", which)
        rows = reader.texts("#t-cells tbody tr")
        assert rows and all(wanted in row for row in rows), which
    page.select_option("#cells-which", "all")
    page.fill("#cells-search", "fragile linear_gelu backward")
    rows = reader.texts("#t-cells tbody tr")
    assert rows and all("fragile" in row and "linear_gelu" in row and "backward" in row for row in rows)
    page.fill("#cells-search", "no such cell")
    assert page.text_content("#cells-count") == "no such cell"


def test_the_navigation_leads_to_each_section(reader: Reader) -> None:
    for link in reader.page.query_selector_all("#nav li a"):
        link.click()
        target = link.get_attribute("href")
        reader.page.wait_for_timeout(60)
        top = reader.page.eval_on_selector(target, "one => one.getBoundingClientRect().top")
        at_end = reader.page.evaluate("window.innerHeight + window.scrollY >= document.body.scrollHeight - 4")
        assert -5 <= top <= 100 or at_end, target
        assert reader.texts("#nav [aria-current]") == [link.inner_text()] or at_end


def test_a_link_to_a_folded_reason_unfolds_it(reader: Reader) -> None:
    for link in reader.page.query_selector_all("#t-failures a"):
        link.click()
        target = link.get_attribute("href")
        reader.page.wait_for_timeout(30)
        assert reader.page.eval_on_selector(target, "one => one.open")


@on(("full", PHONE, "light"))
def test_the_navigation_folds_on_a_phone(reader: Reader) -> None:
    page = reader.page
    assert not page.is_visible("#nav")
    page.click("#menu")
    assert page.is_visible("#nav") and page.get_attribute("#menu", "aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert not page.is_visible("#nav")
    page.click("#menu")
    page.click("#nav a[href='#failures']")
    page.wait_for_timeout(60)
    assert not page.is_visible("#nav")
    assert page.text_content("#here") == "Failures"
    page.click("#menu")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@on(("full", DESK, "dark"))
def test_it_prints_in_ink_on_white_with_every_plot(reader: Reader) -> None:
    printed = reader.page.pdf()  # of a page of which only the top was seen
    assert printed.startswith(b"%PDF") and len(printed) > 100_000
    reader.page.emulate_media(media="print")
    assert reader.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not reader.page.is_visible("#nav")
    plots = reader.page.eval_on_selector_all(".plot", "all => all.map(one => one.querySelectorAll('svg').length)")
    assert all(plots)


def test_without_a_script_everything_but_plots_and_cells_is_there(browser: Any, files: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["full"].as_uri())
    text = page.inner_text("main")
    for words in ("Composite score S", "wrong_output", "✓ pass", "needs JavaScript"):
        assert words in text
    assert page.locator(".panel svg").count() == len(build.TASKS)
    context.close()
