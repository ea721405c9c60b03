"""The pages in a real browser: at phone and desktop width, light and dark, by eye (overflow), ear (axe) and keyboard.

`SCREENSHOTS=folder` keeps what the browser saw.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from example_run import conforming, run
from hostile_run import hostile
from test_report_exhibits import all_of_them

from conformance.reporting import html
from conformance.reporting.compare import compare

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)
PATIENCE = 300_000
"""Milliseconds that a browser on a busy machine may take for anything."""
SIZES = {"phone": {"width": 360, "height": 740}, "desktop": {"width": 1280, "height": 900}}


def with_rows() -> str:
    """A page that has no room for more than a row for each check of most modes."""
    with mock.patch.object(html, "PAGE_LIMIT", 100_000):
        page = html.page(run())
    assert "Judged in the other modes" in page
    return page


PAGES = {
    "report": lambda: html.page([*run(), all_of_them()]),
    "diff": lambda: html.diff_page(compare([*run(), all_of_them()], [all_of_them(), conforming()])),
    "rows": with_rows,
    "hostile": lambda: html.page([hostile()]),
    "hostile diff": lambda: html.diff_page(compare([hostile()], [hostile()])),
}
WIDE = """clipped => [...document.querySelectorAll('body *')]
    .filter(e => !e.closest('.scroll, .skip, thead') && !(clipped && e.closest('figure svg')))
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.outerHTML.slice(0, 120))"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        print("no browser: not run")
        pytest.skip("no browser: not run")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: not run")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


class Visit:
    """A page that was opened, and what it asked for and complained of."""

    def __init__(self, browser: Any, file: Path, size: str, theme: str) -> None:
        context = browser.new_context(viewport=SIZES[size], color_scheme=theme)
        context.set_default_timeout(PATIENCE)
        self.page, self.said, self.asked = context.new_page(), [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri(), wait_until="load")

    def open_all(self) -> None:
        self.page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def close(self) -> None:
        self.page.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("name", list(PAGES))
def test_a_page_is_quiet_alone_fits_and_can_be_used_by_everyone(
    browser: Any, files: dict[str, Path], name: str, size: str, theme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    visit = Visit(browser, files[name], size, theme)
    try:
        visit.open_all()
        if folder := os.environ.get("SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            visit.page.screenshot(path=Path(folder) / f"{name}-{size}-{theme}.png", full_page=True)
        assert visit.said == []
        assert visit.asked == [files[name].as_uri()]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        assert visit.page.evaluate(WIDE, name == "hostile") == []  # its legends are cut off, within the figure
        if name.startswith("hostile") and theme == "dark":
            return  # of these pages the words differ, and not their form
        found = Axe().run(visit.page)
        assert found.violations_count == 0, found.generate_report()
        assert visit.said == []
    finally:
        visit.close()


def test_it_can_be_read_with_the_keyboard_alone(browser: Any, files: dict[str, Path]) -> None:
    visit = Visit(browser, files["report"], "desktop", "light")
    try:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the verdicts"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "it shows where it is"
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'main'")
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.tagName"))
            if page.evaluate("document.activeElement.tagName") != "BODY":
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert {"A", "SUMMARY"} <= reached
        summary = page.locator("details.settings > summary").first
        summary.focus()
        before = page.locator("details.settings").first.get_attribute("open")
        page.keyboard.press("Enter")
        assert page.locator("details.settings").first.get_attribute("open") != before
    finally:
        visit.close()


def test_a_screen_reader_is_told_the_same(browser: Any, files: dict[str, Path]) -> None:
    visit = Visit(browser, files["report"], "phone", "light")
    try:
        visit.open_all()
        heard = visit.page.locator("main").aria_snapshot()
        assert heard.index('heading "Verdicts"') < heard.index("is lossy as declared") < heard.index('table "Every requirement')
        for said in ("The mask of a tree", "The entries of a cache", "Evidence against the engine by tokens judged"):
            assert f'img "{said}' in heard
        assert len(re.findall("- '?table", heard)) == visit.page.locator("table").count(), "on a phone a table is still one"
    finally:
        visit.close()
