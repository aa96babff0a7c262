"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sscf.report import write_report

ARGS = ["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-background-networking", "--disable-extensions"]
NASTY = ["<script>boom()</script>", "a & b_c%", "A_very_long_name_of_a_data_set_without_any_blank_in_it_at_all"]


@pytest.fixture(scope="module")
def report(fab: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HAR with everything that can be switched, and a task whose names are hostile."""
    records = fab.har_records(["erm", "coral", "global-anchor", "sscf"], seeds=2, ks=[2, 4], domains=fab.HAR[:3])
    records[0] = fab.fail(records[0], "<img src=x onerror=boom()> " + "long" * 60)
    lost = records.pop(1)
    records += fab.har_records(["erm", "sscf"], seeds=1, ks=[2], domains=NASTY, classes=("<b>", "q"), task="z<i>x")
    folder = fab.write_runs(
        tmp_path_factory.mktemp("page"),
        records,
        arrays=lambda r: (
            r["spec"]["seed"] == 0 and r["spec"]["method"] == "sscf" and r["spec"]["target"] in fab.HAR[:2]
        ),
        planned=[lost["spec"]],
    )
    return write_report(folder, tmp_path_factory.mktemp("out"), figures=90)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=ARGS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The page, opened from disk; a test fails if anything was said on the console or asked of the network."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: None if request.url == report.as_uri() else said.append(request.url))
    opened.set_default_timeout(8000)
    opened.goto(report.as_uri())
    opened.wait_for_function(SETTLED)
    yield opened
    assert said == []
    context.close()


SETTLED = (
    "() => [...document.querySelectorAll('figure.item:not([hidden]) .drawing')].every(d => d.querySelector('svg'))"
)


def card(page: Any, title: str, section: str = "#figures") -> Any:
    return page.locator(f"{section} .switch[data-name='{title}']")


def choice(group: Any, facet: str) -> Any:
    return group.get_by_role("combobox", name=facet, exact=True)


def shown(group: Any) -> str:
    """Caption of the one item that is shown."""
    visible = group.locator(".item:not([hidden])")
    assert visible.count() == 1
    return visible.locator("figcaption, caption").inner_text()


def test_summary_comes_first_and_all_is_there(page: Any) -> None:
    assert page.locator("main > section").first.get_attribute("id") == "summary"
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    assert page.locator("#runs").get_by_text("onerror=boom()").count() >= 1
    assert page.evaluate("typeof boom") == "undefined"


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows(page: Any, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(e => {
            const box = e.getBoundingClientRect();
            const inside = e.closest('.scroll, nav, pre, .skip');
            return !(inside && inside !== e) && !e.matches('.skip') && box.width && box.right > innerWidth + 1;
        }).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert wide == []


def test_a_long_name_stays_in_its_column(browser: Any, fab: Any, tmp_path: Path) -> None:
    runs = fab.write_runs(tmp_path / "runs", fab.har_records(["erm", "sscf"], seeds=1, domains=["x" * 90, "B", "C"]))
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto(write_report(runs, tmp_path / "out", figures=0).as_uri())
    heads = opened.locator("#tables .item:not([hidden]) thead th.number")
    assert heads.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)") == []
    opened.close()


TEXTS = ("h2", "nav a", ".quiet", ".notice", ".best", ".gap", ".spread", ".reported td", ".verdict", "figcaption")
CONTRAST = """(selector) => {
    const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const linear = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const luminance = (text) => { const [r, g, b] = rgb(text).map(linear); return .2126 * r + .7152 * g + .0722 * b; };
    const element = document.querySelector(selector);
    let ground = element;
    while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(getComputedStyle(ground).backgroundColor)];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
}"""


def test_text_can_be_read_in_light_and_dark(page: Any) -> None:
    """Contrast of text and ground by the formula of WCAG, at least 4.5."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for selector in (
            "h2",
            "nav a",
            ".quiet",
            ".notice",
            ".best",
            ".gap",
            ".spread",
            ".reported td",
            ".verdict",
            "figcaption",
        ):
            assert page.evaluate(CONTRAST, selector) >= 4.5, (scheme, selector)
        ink = page.locator("#figures svg").first.evaluate("e => getComputedStyle(e).color")
        assert ink == page.locator("body").evaluate("e => getComputedStyle(e).color")


def column(table: Any, place: int) -> list[str]:
    return [row.locator("th, td").nth(place).inner_text() for row in table.locator("tbody tr").all()]


def numbers(texts: list[str]) -> list[float | None]:
    """Means of the cells; None where there is a note instead, as in "2/3 targets"."""
    return [float(text.split()[0]) if re.match(r"\d+\.\d\d", text) else None for text in texts]


def test_tables_sort_by_mouse_and_keyboard(page: Any) -> None:
    table = card(page, "Methods", "#tables").locator(".item:not([hidden]) table")
    head = table.locator("thead th").nth(2)
    before = numbers(column(table, 2))
    head.locator("button").click()
    values = [value for value in numbers(column(table, 2)) if value is not None]
    assert values == sorted(values, reverse=True)
    assert values != [value for value in before if value is not None]
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    values = [value for value in numbers(column(table, 2)) if value is not None]
    assert values == sorted(values)
    table.locator("thead th").first.locator("button").click()
    names = column(table, 0)
    assert [name.lower() for name in names] == sorted(name.lower() for name in names)
    assert head.get_attribute("aria-sort") is None


def test_cells_without_a_number_sort_last(page: Any) -> None:
    group = card(page, "Methods", "#tables")
    table = group.locator(".item:not([hidden]) table")
    average = table.locator("thead th").nth(4)
    for _ in range(2):
        average.locator("button").click()
        values = numbers(column(table, 4))
        known = [value is not None for value in values]
        assert not all(known)
        assert known == sorted(known, reverse=True)


def test_tables_switch(page: Any) -> None:
    group = card(page, "Methods", "#tables")
    assert shown(group).startswith("Macro-F1")
    choice(group, "Metric").select_option("accuracy")
    assert shown(group).startswith("Accuracy")


def test_figures_switch_by_target_method_and_k(page: Any) -> None:
    group = card(page, "Strata and their anchors")
    first = shown(group)
    choice(group, "Target").select_option("UCIHAR")
    page.wait_for_function(SETTLED)
    assert "target UCIHAR" in shown(group)
    assert shown(group) != first
    pictures = set()
    for k in ("2", "4"):
        choice(group, "K").select_option(k)
        page.wait_for_function(SETTLED)
        assert f"K={k}" in shown(group)
        pictures.add(group.locator(".item:not([hidden]) svg").inner_html())
        assert group.locator(".item:not([hidden]) svg").text_content().count("stratum ") == int(k)
    assert len(pictures) == 2
    confusion = card(page, "Confusion matrices")
    choice(confusion, "Method").select_option("CORAL")
    page.wait_for_function(SETTLED)
    assert shown(confusion).startswith("Confusion matrix: CORAL")
    assert choice(confusion, "K").is_disabled()


def test_figures_switch_by_rank(page: Any) -> None:
    group = card(page, "Anchor rank R")
    choice(group, "R").select_option("2")
    page.wait_for_function(SETTLED)
    assert "at anchor rank 2" in shown(group)


def test_a_combination_that_does_not_exist_gives_way(page: Any) -> None:
    group = card(page, "Training curves")
    data = choice(group, "Data")
    data.select_option(label=data.locator("option").nth(1).inner_text())
    page.wait_for_function(SETTLED)
    assert group.locator(".item:not([hidden])").count() == 1
    assert choice(group, "Data").input_value() in [o.inner_text() for o in data.locator("option").all()]


def test_switching_works_by_keyboard(page: Any) -> None:
    group = card(page, "Methods", "#tables")
    choice(group, "Metric").focus()
    page.keyboard.press("ArrowDown")
    assert shown(group).startswith("Accuracy")


def test_the_papers_rows_can_be_hidden(page: Any) -> None:
    rows = card(page, "Methods", "#tables").locator(".item:not([hidden]) tr.reported")
    assert rows.first.is_visible()
    assert "paper" in rows.first.inner_text()
    page.locator("#show-paper").uncheck()
    assert not rows.first.is_visible()


def test_runs_are_filtered(page: Any) -> None:
    page.locator("#runs summary", has_text="All runs").click()
    rows = page.locator("#all-runs tbody tr")
    total = rows.count()
    page.locator("#filter").fill("coral ucihar")
    visible = [row for row in rows.all() if row.is_visible()]
    assert 0 < len(visible) < total
    assert all("CORAL" in row.inner_text() and "UCIHAR" in row.inner_text() for row in visible)
    assert page.locator("#filtered").inner_text() == f"{len(visible)} of {total}"


def test_prints(page: Any) -> None:
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator(".controls").first.is_visible()
    page.set_viewport_size({"width": 794, "height": 1123})  # A4 at 96 dpi
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert page.pdf(format="A4")[:4] == b"%PDF"
