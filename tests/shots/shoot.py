"""A picture of every page, light and dark, at 1280 and 390 px, with data and without: `make shots` puts them into
`var/shots/` and says what is too wide, cut off, too faint, nameless or wrong in the console. Not part of a test run.

Every address that answers a GET with a page is shot. A new one is found by its row in `tests/web/test_rights_walk.py`;
where that names a thing that `scene.py` does not make, this fails and says which.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone
from playwright.sync_api import Browser, Page

from batches.urls import pages
from tests import factories
from tests.shots import scene
from tests.web import browser as chrome
from tests.web.conftest import browser
from tests.web.test_rights_walk import TABLE

__all__ = ["browser"]

FOLDER = Path(settings.BASE_DIR) / "var" / "shots"
SCHEMES = ("light", "dark")
SIZES = {"1280": chrome.WIDE, "390": chrome.NARROW}
#: Only pictures whose names begin so: `make shots ONLY=home,failed`.
ONLY = tuple(filter(None, os.environ.get("ONLY", "").split(",")))
TALLEST = 4000  # pixels; what lies below says the same again

#: What the address alone does not show: more of the same page, by the end of the picture's name.
ALSO: dict[str, tuple[tuple[str, str], ...]] = {
    "batch_detail": (("failed", "?state=failed"), ("nothing", "?q=zzz"), ("everything", "?everything=1")),
    "batch_list": (("nothing", "?q=zzz"),),
    "audit_list": (("nothing", "?who=zzz"),),
    "template_list": (("archived", "?view=archived"),),
    "account_list": (("archived", "?view=archived"),),
    "export_list": (("all", "?view=all"),),
    "draft_list": (("over", "?view=over"),),
    "batch_running": (("cancel", "?verb=cancel"),),
}

#: Words that end before their end, for want of room.
CUT = """() => [...document.querySelectorAll("main *, header *")].filter((element) => {
  if (!element.checkVisibility() || element.closest(".unseen, .visually-hidden, .who, svg, iframe")) return false;
  const style = getComputedStyle(element);
  const hides = style.overflowX === "hidden" || style.overflowX === "clip" || style.textOverflow === "ellipsis";
  return hides && element.scrollWidth > element.clientWidth + 1 && element.textContent.trim();
}).map((element) => `${element.tagName}.${element.className}: ${element.textContent.trim().slice(0, 40)}`)"""


def addresses(things: dict[str, str]) -> dict[str, str]:
    """Every address that may be read, by its name; without things, those that need none."""
    found = {}
    for page in pages:
        assert isinstance(page, URLPattern)
        row = TABLE[str(page.name)]
        if not row.reads or (row.arguments and not things):
            continue
        missing = [argument for argument in row.arguments if argument not in things]
        assert not missing, f"{page.name} needs {missing}: make it in tests/shots/scene.py"
        found[str(page.name)] = reverse(f"batches:{page.name}", args=[things[argument] for argument in row.arguments])
    return found


def shown(client: Client, found: dict[str, str], *, is_empty: bool = False) -> dict[str, str]:
    """Those that answer with a whole page, and what else is to be seen there."""
    chosen = {}
    for name, address in found.items():
        answer = client.get(address, follow=True)
        kind = answer.headers.get("Content-Type", "")
        if (
            not kind.startswith("text/html")
            or answer.streaming
            or b"<!doctype html" not in answer.content[:200].lower()
        ):
            continue
        if is_empty and answer.status_code == 403:  # it says what is missing first
            chosen[name] = address
            continue
        assert answer.status_code == 200, f"{name}: {address} answers {answer.status_code}"
        chosen[name] = address
        chosen |= {f"{name}-{suffix}": f"{address}{query}" for suffix, query in ALSO.get(name, ())}
    return chosen


def of_the_admin() -> dict[str, str]:
    lists = {
        f"admin-{model._meta.model_name}": reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
    }
    return {"admin": reverse("admin:index")} | lists


@pytest.fixture(scope="module")
def report() -> Iterator[list[str]]:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    lines: list[str] = []
    yield lines
    (FOLDER / "report.txt").write_text("\n".join(sorted(set(lines))) + "\n", encoding="utf-8")


def shoot(page: Page, name: str, address: str, report: list[str]) -> None:
    page.goto(address)
    page.wait_for_load_state("load")
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True, clip={
        "x": 0, "y": 0, "width": page.viewport_size["width"], "height": height
    })  # fmt: skip
    if (wide := page.evaluate(chrome.TOO_WIDE)) > 0:
        report.append(f"{name}: {wide} px wider than the window")
    for kind, script in (("cut", CUT), ("too faint", chrome.FAINT_TEXT), ("without a name", chrome.UNNAMED)):
        report.extend(f"{name}: {kind}: {re.sub(chr(10), ' ', words)}" for words in page.evaluate(script))


#: What opens over a page, by what is pressed on the design page.
OVERLAYS = {
    "drawer": "#overlays ~ .card [data-drawer]",
    "keys": "#overlays ~ .card [data-dialog=keys]",
    "dialog": "[data-dialog=design-dialog]",
    "confirm": "[data-dialog=design-confirm]",
    "destroy": "[data-dialog=design-destroy]",
    "account": ".topbar-end summary",
    "more": ".topnav summary, .topnav-small summary",
}


def shoot_overlays(page: Page, look: str, report: list[str]) -> None:
    for name, opener in OVERLAYS.items():
        page.goto(reverse("design"))
        page.locator(opener).locator("visible=true").first.click()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=FOLDER / f"overlay-{name}.{look}.png")
        if (wide := page.evaluate(chrome.TOO_WIDE)) > 0:
            report.append(f"overlay-{name}.{look}: {wide} px wider than the window")


def tour(
    browser: Browser,
    site: str,
    person: User,
    chosen: dict[str, str],
    report: list[str],
    prefix: str,
    looks: Iterable[tuple[str, str]] = tuple(itertools.product(SCHEMES, SIZES)),
) -> None:
    for scheme, size in looks:
        context = browser.new_context(base_url=site, viewport=SIZES[size], color_scheme=scheme)
        context.set_default_timeout(30_000)
        client = Client()
        client.force_login(person)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": site}])
        page = context.new_page()
        seen = chrome.Watched(page, expected=("Autofocus processing", "status of 404"))
        for name, address in chosen.items():
            if ONLY and not name.startswith(ONLY):
                continue
            full = f"{prefix}{name}.{scheme}.{size}"
            seen.complaints.clear()
            shoot(page, full, address, report)
            report.extend(f"{full}: console: {words}" for words in seen.complaints)
        if "design" in chosen and not ONLY:
            shoot_overlays(page, f"{scheme}.{size}", report)
        context.close()


@pytest.fixture
def lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it happened twenty minutes ago: pages say how long something waits."""
    monkeypatch.setattr(factories, "NOW", timezone.now() - timedelta(minutes=20))


@pytest.mark.django_db(transaction=True)
def test_with_data(browser: Browser, live_server: Any, report: list[str], lately: None) -> None:
    person, things = scene.fill()
    client = Client()
    client.force_login(person)
    chosen = shown(client, addresses(things)) | {"design": reverse("design")}
    for state, public_id in scene.documents_by_state().items():
        chosen[f"document_detail-{state}"] = reverse("batches:document_detail", args=[public_id])
    for number, draft in enumerate(scene.other_drafts(things["draft"])):
        chosen[f"draft_detail-{number}"] = reverse("batches:draft_detail", args=[draft])
    tour(browser, live_server.url, person, chosen, report, "")
    tour(browser, live_server.url, person, of_the_admin(), report, "", looks=(("light", "1280"), ("dark", "390")))


@pytest.mark.django_db(transaction=True)
def test_without_data(browser: Browser, live_server: Any, report: list[str]) -> None:
    person = User.objects.create_superuser("m.okoye", password="Correct-horse-7")
    client = Client()
    client.force_login(person)
    chosen = shown(client, addresses({}), is_empty=True)
    tour(browser, live_server.url, person, chosen | {"no-such-page": "/nothing/"}, report, "empty-")
