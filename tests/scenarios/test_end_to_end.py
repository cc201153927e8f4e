"""The whole road in a real browser, on the real stack: sign in, hand over the examples, watch, read a PDF, download."""

from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pypdfium2
import pytest
from playwright.sync_api import Page, expect

from tests.stack_process import Stack, eventually
from tests.web.browser import chromium, sign_in, watched

pytestmark = [pytest.mark.processes, pytest.mark.browser]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PASSWORD = "Correct-horse-battery-7"
PATIENCE = 120_000


def packed_examples(folder: Path) -> Path:
    """`examples/` as a person would pack it."""
    path = folder / "examples.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in [EXAMPLES / "manifest.json", *sorted((EXAMPLES / "documents").iterdir())]:
            archive.write(file, file.relative_to(EXAMPLES))
    return path


def address_of(stack: Stack) -> str:
    found = eventually(lambda: re.search(r"ready at (http://\S+)/", stack.log()), "the stack to be ready")
    return str(found.group(1))


def hand_over(page: Page, file: Path) -> None:
    page.goto("/new/")
    page.set_input_files("#id_file", file)
    page.get_by_role("button", name="Upload and check").click()


def text_of(pdf: bytes) -> str:
    document = pypdfium2.PdfDocument(pdf)
    try:
        return "\n".join(page.get_textpage().get_text_bounded() for page in document)
    finally:
        document.close()


def test_the_examples_go_from_upload_to_download_without_a_reload(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = make_stack(
        command=("runstack", "--sandbox", "--port", "0"),
        workers=2,
        env={"RELAYPDF_SUBMIT_INTERVAL": "0.2", "SANDBOX_PORT": free_port(), "FIRST_PASSWORD": PASSWORD},
    )
    stack.bootstrap("--admin", "okoye")
    stack.start()
    base = address_of(stack)
    ids = [row["id"] for row in json.loads((EXAMPLES / "manifest.json").read_text("utf-8"))]
    with chromium() as browser, watched(browser, base) as page:
        sign_in(page, "okoye", PASSWORD)
        hand_over(page, packed_examples(tmp_path))
        expect(page.get_by_role("row", name=re.compile("^12 New"))).to_be_visible()
        page.fill("#sample-size", "0")
        page.get_by_role("button", name=re.compile("^Start")).click()
        page.wait_for_url(re.compile("/batches/bat_"))
        page.evaluate("() => { window.sameDocument = true }")

        # It finishes before our eyes: no reload, no click.
        expect(page.locator("h1 + *, .page-head").get_by_text("Complete").first).to_be_visible(timeout=PATIENCE)
        assert page.evaluate("() => window.sameDocument") is True, "the page was loaded anew"
        for business_id in ids:
            expect(page.get_by_text(business_id, exact=True).first).to_be_visible()

        with page.expect_download() as downloading:
            page.get_by_role("link", name=re.compile("ZIP")).first.click()
        check_archive(Path(downloading.value.path()).read_bytes(), ids)

        page.get_by_role("link", name="invoice-usd", exact=True).first.click()
        expect(page.locator("#drawer-title")).to_have_text("invoice-usd")
        page.keyboard.press("Escape")
        page.keyboard.press("o")  # the same as a page
        page.wait_for_url(re.compile("/documents/"))
        preview = page.locator("iframe").first
        expect(preview).to_be_visible()
        source = preview.get_attribute("src")
        assert source
        pdf = page.request.get(source)
        assert pdf.ok
        assert pdf.headers["content-type"] == "application/pdf"
        assert "invoice-usd" in text_of(pdf.body())

        # The same file again sends nothing.
        hand_over(page, packed_examples(tmp_path))
        expect(page.get_by_role("row", name=re.compile("^12 "))).to_contain_text("nothing is sent")
    assert stack.query("SELECT count(*) FROM batches_submission")[0][0] == 12
    assert stack.stop() == 0


def check_archive(content: bytes, ids: list[str]) -> None:
    """Every document is in it under its own name, holds its own id, and has the digest that the list says."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        sums = dict(reversed(line.split("  ", 1)) for line in archive.read("SHA256SUMS").decode().splitlines() if line)
        pdfs = [name for name in archive.namelist() if name.endswith(".pdf")]
        assert len(pdfs) == len(ids)
        for name in pdfs:
            assert hashlib.sha256(archive.read(name)).hexdigest() == sums[name]
        for business_id in ids:
            (name,) = [name for name in pdfs if business_id in name]
            assert business_id in text_of(archive.read(name))


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
