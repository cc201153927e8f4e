"""What a hostile or greedy document can't do: read files, reach the network, take the service down."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pypdfium2
import pytest

from batches.sandbox.rendering import RendererPool, RenderLimits, RenderRefused, Work
from tests.sandbox.calls import submit
from tests.sandbox_process import PROJECT_ROOT, SandboxProcess

pytestmark = pytest.mark.processes


class Canary:
    """A server and files that nobody should ever ask for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        canary = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                canary.asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/css")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.port = self.server.server_port
        self.html = folder / "secret.html"
        self.html.write_text("<p>CANARY-IN-A-FILE</p>")
        self.css = folder / "secret.css"
        self.css.write_text("body::before { content: 'CANARY-IN-A-FILE' }")
        self.svg = folder / "secret.svg"
        self.svg.write_text(
            '<svg xmlns="http://www.w3.org/2000/svg" width="99" height="99"><text y="20">CANARY-IN-A-FILE</text></svg>'
        )
        self.png = folder / "secret.png"
        self.png.write_bytes(
            base64.b64decode(
                "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
            )
        )

    def references(self, *, beyond: bool = True) -> str:
        """A document that points at files and at the server in every way there is.

        `beyond` adds what must not even be tried where a fence is off: another machine, and a protocol that
        would wait for a greeting.
        """
        others = ("http://169.254.169.254/latest/meta-data", f"ftp://127.0.0.1:{self.port}/g.png") if beyond else ()
        web = f"http://127.0.0.1:{self.port}"
        parts = []
        for number, base in enumerate((f"file://{self.svg}", str(self.svg), f"file://{self.png}", f"{web}/a.svg")):
            parts.append(self._kinds(base, number))
        for address in (
            f"//127.0.0.1:{self.port}/b.png",
            f"http://localhost:{self.port}/c.png",
            f"http://2130706433:{self.port}/d.png",
            f"http://[::ffff:127.0.0.1]:{self.port}/e.png",
            f"HTTP://0x7f.1:{self.port}/f.png",
            *others,
            "file:///etc/passwd",
            "/etc/passwd",
            "../../../../etc/passwd",
        ):
            parts.append(f'<img src="{address}"><link rel="stylesheet" href="{address}">')
        return "<p>HARMLESS</p>" + "".join(parts)

    def _kinds(self, target: str, number: int) -> str:
        css = str(self.css) if target.startswith(("/", "file")) else target
        nested = base64.b64encode(
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
            f'<image width="9" height="9" xlink:href="{target}"/><use href="{target}#x"/></svg>'.encode()
        ).decode()
        return f"""
        <link rel="stylesheet" href="{css}"><link rel="attachment" href="{target}"><link rel="icon" href="{target}">
        <style>@import "{css}"; @import url({css});
          @font-face {{ font-family: X{number}; src: url("{target}") }}
          .bg{number} {{ background: url("{target}"); list-style-image: url("{target}"); cursor: url("{target}") }}
          .bg{number}::before {{ content: url("{target}"); border-image: url("{target}"); mask: url("{target}") }}
        </style>
        <img src="{target}"><img srcset="{target} 2x"><picture><source srcset="{target}"><img></picture>
        <p class="bg{number}" style="font-family: X{number}; display: list-item">HARMLESS</p>
        <iframe src="{target}"></iframe><object data="{target}"></object><embed src="{target}">
        <video poster="{target}" src="{target}"></video><audio src="{target}"></audio>
        <input type="image" src="{target}">
        <svg><image href="{target}" width="9" height="9"/><use href="{target}#a"/><script href="{target}"></script>
          <filter id="f{number}"><feImage href="{target}"/></filter>
          <rect filter="url(#f{number})" width="5" height="5"/></svg>
        <svg xmlns:xlink="http://www.w3.org/1999/xlink"><image xlink:href="{target}" width="9" height="9"/></svg>
        <img src="data:image/svg+xml;base64,{nested}">
        <script src="{target}"></script><script>fetch("{target}")</script><body background="{target}">
        <meta http-equiv="refresh" content="0; url={target}"><a href="{target}">HARMLESS</a>
        <base href="{target}"><img src="relative.png">
        """


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    canary = Canary(tmp_path)
    yield canary
    canary.server.shutdown()
    canary.server.server_close()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RendererPool]:
    pool = RendererPool(tmp_path_factory.mktemp("renderer"))
    pool.start()
    yield pool
    pool.stop()


def text_of(pdf: bytes) -> str:
    with pypdfium2.PdfDocument(pdf) as document:
        return "\n".join(page.get_textpage().get_text_range() for page in document)


def render_unfenced(html: str, *, fetcher_off: bool = False) -> bytes:
    """Render in a process that has the engine's own refusal and no second wall; or not even that."""
    program = """
        import sys
        from batches.sandbox.rendering import options, plutoprint_engine
        if sys.argv[1] == "off":
            import plutoprint
            plutoprint_engine._NothingFetched = lambda: plutoprint.default_resource_fetcher
        pdf, _ = plutoprint_engine.render(sys.stdin.read(), options.page_setup({}), max_pages=100)
        sys.stdout.buffer.write(pdf)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), "off" if fetcher_off else "on"],
        cwd=PROJECT_ROOT,
        input=html.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_a_hostile_document_reaches_nothing(pool: RendererPool, canary: Canary) -> None:
    made = pool.render(Work("html", canary.references()))
    assert canary.asked == []
    assert "CANARY" not in text_of(made.pdf)
    assert "HARMLESS" in text_of(made.pdf)
    assert b"root:" not in made.pdf
    with pypdfium2.PdfDocument(made.pdf) as document:
        assert document.count_attachments() == 0


def test_the_engines_own_refusal_is_enough(canary: Canary) -> None:
    pdf = render_unfenced(canary.references())
    assert canary.asked == []
    assert "CANARY" not in text_of(pdf)


def test_without_any_fence_the_canaries_would_sing(canary: Canary) -> None:
    pdf = render_unfenced(canary.references(beyond=False), fetcher_off=True)
    assert canary.asked != []
    assert "CANARY" in text_of(pdf)


def test_markdown_reaches_nothing_either(pool: RendererPool, canary: Canary) -> None:
    made = pool.render(Work("markdown", f"![x](file://{canary.svg}) ![y](http://127.0.0.1:{canary.port}/m.png) ok"))
    assert canary.asked == []
    assert "CANARY" not in text_of(made.pdf)


def test_second_walls_hold_where_the_system_has_them(canary: Canary, tmp_path: Path) -> None:
    program = f"""
        import socket, pathlib
        from batches.sandbox.rendering import fences
        allowed = pathlib.Path({str(tmp_path)!r}) / "allowed"
        allowed.mkdir()
        (allowed / "font").write_text("font")
        network = fences.leave_network()
        files = fences.leave_files([allowed])
        def blocked(act):
            try:
                act()
            except OSError:
                return True
            return False
        print(network, blocked(lambda: socket.create_connection(("127.0.0.1", {canary.port}), 2)))
        print(files, blocked(lambda: open({str(canary.html)!r})), blocked(lambda: open("/etc/passwd")))
        print(files, blocked(lambda: open(allowed / "new", "w")), (allowed / "font").read_text())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    network, first, second = (line.split() for line in done.stdout.splitlines())
    assert network[1] == network[0]
    assert first[1:] == [first[0], first[0]]
    assert second[1:] == [second[0], "font"]


TIGHT = RenderLimits(wall_seconds=2.0, cpu_seconds=1, memory_bytes=600 << 20, output_bytes=1 << 20, pages=50)

ENTITIES = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 20}">' for n in range(1, 12))
ENTITY_BOMB = (
    f'<!DOCTYPE svg [<!ENTITY a0 "lol">{ENTITIES}]><svg xmlns="http://www.w3.org/2000/svg"><text>&a11;</text></svg>'
)
USES = {n: f"<use href='#g{n - 1}'/>" * 10 for n in range(1, 12)}
USE_BOMB = "".join(f"<g id='g{n}'>{uses}</g>" for n, uses in USES.items())
BOMBS = {
    "50,000 nested divs": "<div>" * 50_000,
    "nested tables": "<table><tr><td>" * 1_000,
    "an svg entity bomb": f"<img src='data:image/svg+xml;base64,{base64.b64encode(ENTITY_BOMB.encode()).decode()}'>",
    "an svg use bomb": f"<svg><g id='g0'><rect width='1' height='1'/></g>{USE_BOMB}</svg>",
    "a mile of pages": "<div style='height: 100000000px'>x</div>",
    "more pages than allowed": "<p style='break-after: page'>x</p>" * 60,
    "a document too long for its time": "<table>" + "<tr><td>cell<td>cell" * 200_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_resource_bombs_are_refused_and_harm_nobody(pool: RendererPool, bomb: str) -> None:
    with pytest.raises(RenderRefused) as refused:
        pool.render(Work("html", BOMBS[bomb], limits=TIGHT))
    assert str(refused.value)
    assert pool.render(Work("html", "<p>still here</p>")).pages == 1


def test_output_over_its_limit_is_refused(pool: RendererPool) -> None:
    with pytest.raises(RenderRefused, match="too large"):
        pool.render(Work("html", "<p>x</p>", limits=RenderLimits(output_bytes=100)))


def test_a_bomb_does_not_hold_up_other_documents_for_long(pool: RendererPool) -> None:
    with ThreadPoolExecutor(4) as threads:
        bombs = [threads.submit(pool.render, Work("html", "<table><tr><td>" * 1000, limits=TIGHT)) for _ in range(2)]
        assert all(pool.render(Work("html", f"<p>{n}</p>")).pages == 1 for n in range(20))
        assert all(isinstance(bomb.exception(), RenderRefused) for bomb in bombs)


def test_bombs_fail_their_job_and_the_service_goes_on(sandbox: SandboxProcess) -> None:
    sandbox.configure(jobs={"cpu_seconds": 1})
    bad = submit(sandbox, "<div>" * 50_000).json()["id"]
    good = submit(sandbox).json()["id"]
    ledger = sandbox.wait_for_jobs(1, status="failed")
    ledger = sandbox.wait_for_jobs(1)
    jobs = {job["id"]: job for job in ledger["jobs"]}
    assert (jobs[bad]["error_code"], jobs[bad]["billed"]) == ("render_failed", False)
    assert "brought the renderer down" in jobs[bad]["error_message"]
    assert jobs[good]["status"] == "completed"


def zygote_of(pid: int) -> int:
    (child,) = children_of(pid)
    return child


def children_of(pid: int) -> list[int]:
    """Process ids of the children of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    children: list[int] = []
    for thread in threads:
        with contextlib.suppress(FileNotFoundError):  # it has ended since it was listed
            children += [int(name) for name in (thread / "children").read_text().split()]
    return children


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Any, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_dead_zygote_is_replaced(sandbox: SandboxProcess) -> None:
    submit(sandbox)
    sandbox.wait_for_jobs(1)
    old = zygote_of(sandbox.pid)
    os.kill(old, signal.SIGKILL)
    submit(sandbox)
    sandbox.wait_for_jobs(2)
    assert zygote_of(sandbox.pid) != old


def test_renderer_ends_with_its_sandbox(tmp_path: Path) -> None:
    from tests.sandbox_process import start_sandbox

    own = start_sandbox(tmp_path)
    zygote = zygote_of(own.pid)
    submit(own, "<table><tr><td>" * 1000)
    wait_until(lambda: children_of(zygote))
    (child,) = children_of(zygote)
    own.kill()
    wait_until(lambda: not is_running(zygote))
    wait_until(lambda: not is_running(child))
