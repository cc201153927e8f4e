"""A real headless Chromium for tests, and what is asked of every page in it: no script error, no blocked resource."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, sync_playwright

#: Names under which Debian and others install it.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 844}


class NoBrowser(Exception):
    """Chromium is not installed; the words say how."""


@contextmanager
def chromium() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise NoBrowser("Chromium is needed for these tests: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page and what its console complained about. `expected` are parts of complaints that a test provokes."""

    page: Page
    expected: tuple[str, ...] = ()
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self._note("error", str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.complaints.append(text)


@contextmanager
def watched(browser: Browser, base: str, *, expected: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """A fresh page of its own session; fails at the end if anything was wrong on it."""
    context = browser.new_context(base_url=base, **({"viewport": WIDE} | options))
    context.set_default_timeout(15_000)
    seen = Watched(context.new_page(), expected)
    yield seen.page
    context.close()
    assert not seen.complaints, seen.complaints


def sign_in(page: Page, name: str, password: str) -> None:
    page.goto("/sign-in/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("button[type=submit]")
    page.wait_for_url("**/")


#: Text that is too faint on its ground (WCAG 2 AA: 4.5, or 3 for large text), as "words: ratio".
FAINT_TEXT = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    context.clearRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((value, n) => value * top[3] + under[n] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => [r, g, b].map((value) => value / 255)
    .map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, n) => sum + value * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    const page = parse(getComputedStyle(document.body).backgroundColor);
    return layers.reverse().reduce((under, top) => over(top, under), page);
  };
  const faint = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!words || !element.checkVisibility({ opacityProperty: true })) continue;
    if (element.closest(".unseen, .skip, svg, option")) continue;
    const style = getComputedStyle(element), behind = ground(element);
    let opacity = 1; for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const colour = parse(style.color); colour[3] *= opacity;
    const pair = [light(over(colour, behind)), light(behind)].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) faint.add(`${words.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return [...faint];
}"""

#: Fields and buttons that a screen reader could not name, but for what is hidden from it: that axe-core looks at.
UNNAMED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")]
  .filter((element) => element.checkVisibility() && !(element.labels?.length) && !element.getAttribute("aria-label")
    && !element.closest("[aria-hidden=true]")
    && !element.textContent.trim() && !(element.type === "submit" && element.value) && !element.title)
  .map((element) => element.outerHTML.slice(0, 120))"""

#: How far the page is wider than the window, in pixels.
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def whole(page: Page, seen_as: str = "") -> None:
    """Nothing is cut off or too faint, and every control has a name."""
    seen = {
        "too wide": page.evaluate(TOO_WIDE) > 0,
        "faint": page.evaluate(FAINT_TEXT),
        "unnamed": page.evaluate(UNNAMED),
    }
    assert seen == {"too wide": False, "faint": [], "unnamed": []}, (seen_as or page.url, seen)


def tab_to(page: Page, target: Locator, *, most: int = 150) -> None:
    """Press Tab until the element has the focus, as somebody without a mouse does."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if target.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"{most} times Tab did not reach {target}")


def drop(page: Page, target: Locator, file: Path) -> None:
    """Drag a file from outside over the element and let it go there. Chromium itself does it: an event that a script
    makes up puts no file anywhere."""
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box is not None, f"{target} is not shown"
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}  # 1: what is dragged is copied
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "data": data, **at})
    session.detach()
