"""The page of a back-test, opened by a browser from a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import Page, async_playwright

from autoscaler.backtest.demand import Replayed
from autoscaler.cli.rendering.report.page import as_page
from tests.browser.needs import browser
from tests.report.made import results

pytestmark = pytest.mark.browser


class Opened(NamedTuple):
    """A page, and what went wrong or left the file while it was shown."""

    page: Page
    wrong: list[str]


@pytest.fixture(params=[("light", 1280), ("dark", 1280), ("light", 360)], ids=lambda each: f"{each[0]}-{each[1]}")
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    path = browser()
    assert path is not None, "there is no browser; install one: python -m tests.browser.needs"
    file = tmp_path / "page.html"
    file.write_text(as_page(results(Replayed.MEMORY, "bridge", "histogram")), encoding="utf-8")
    scheme, width = request.param
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=path, chromium_sandbox=False)
        page = await running.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None
        )
        await page.goto(file.as_uri())
        yield Opened(page, wrong)
        await running.close()


async def test_it_is_shown(opened: Opened) -> None:
    page = opened.page
    assert await page.title() == "Back-test of memory"
    plots = page.locator("svg.plot")
    assert await plots.count() == 5
    for plot in await plots.all():
        box = await plot.bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 250
    for kind in ("used", "wanted", "limit", "wrong", "resized"):
        box = await page.locator(f".timeline path.{kind}").first.bounding_box()
        assert box is not None
        assert box["width"] > 1
        assert box["height"] > 1
    overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow == 0, "the page scrolls sideways"
    assert opened.wrong == []


async def test_words_do_not_cover_each_other(opened: Opened) -> None:
    boxes = await opened.page.evaluate(
        """[...document.querySelectorAll('svg.timeline')].map(plot => [...plot.querySelectorAll('text')]
            .map(each => each.getBoundingClientRect()).filter(box => box.width)
            .map(box => [box.left, box.top, box.right, box.bottom]))"""
    )
    for plot in boxes:
        for index, one in enumerate(plot):
            for other in plot[index + 1 :]:
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] + 3 or other[3] <= one[1] + 3
                assert apart, (one, other)


async def test_it_is_read_with_the_keyboard_and_by_ear(opened: Opened) -> None:
    page = opened.page
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the scores"
    await page.keyboard.press("Enter")
    assert page.url.endswith("#scores")
    details = page.locator("details").first
    await details.locator("summary").focus()
    await page.keyboard.press("Enter")
    assert await details.locator("tbody tr").count() == 14
    assert await details.locator("table").is_visible()
    for name in ("first under bridge: memory over time", "Slack against OOM episodes a day"):
        assert await page.get_by_role("img", name=name, exact=True).count() == 1
    assert await page.get_by_role("region", name="first by time").count() == 1  # the other one is closed
    assert await page.get_by_role("navigation", name="Traces").get_by_role("link").count() == 2


async def test_what_is_written_can_be_read(opened: Opened) -> None:
    """WCAG AA: a contrast of 4.5 between text and its background."""
    pairs = await opened.page.evaluate(
        """() => { const style = getComputedStyle(document.documentElement);
            const made = document.createElement('canvas').getContext('2d');
            const rgb = name => { made.fillStyle = style.getPropertyValue(name); made.fillRect(0, 0, 1, 1);
                return [...made.getImageData(0, 0, 1, 1).data].slice(0, 3); };
            return [['--ink', '--card'], ['--soft', '--card'], ['--soft', '--page'], ['--focus', '--page'],
                ['--card', '--best']].map(pair => pair.map(rgb)); }"""
    )
    for one, other in pairs:
        light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (one, other)


def _luminance(rgb: list[int]) -> float:
    linear = [share / 12.92 if (share := each / 255) <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for each in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
