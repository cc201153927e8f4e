"""`make demo` and `make up`, without make: what a newcomer sees in the first five minutes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pypdfium2
import pytest

from relaypdf_site.environment import without_ours
from tests.databases import copy_migrated_file
from tests.stack_process import REPOSITORY, STOP_SECONDS, eventually

pytestmark = pytest.mark.processes

#: What a developer who also works with the real service has in the shell.
REAL_LIFE = {
    "RELAYPDF_API_KEY": "pdf_live_real_money",
    "RELAYPDF_BASE_URL": "http://127.0.0.1:9",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/production",
    "STORAGE_URL": "s3://production",
}


def demo(what: str, folder: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "relaypdf_site.demo", what, "--data-dir", str(folder), *arguments],
        cwd=REPOSITORY,
        env=without_ours(os.environ) | {"DEMO_UNDER_TEST": str(folder)} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def used_folder(tmp_path: Path) -> Path:
    """A demonstration's folder whose database has its tables: for what does not tell of the very first start."""
    folder = tmp_path / "demo"
    folder.mkdir(mode=0o700)
    copy_migrated_file(folder / "db.sqlite3")
    return folder


def left_over(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DEMO_UNDER_TEST") == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def set_pace(folder: Path, interval_ms: int) -> int:
    """Set the account's pace as README says; milliseconds that it was."""
    env = without_ours(os.environ) | {"DATA_DIR": str(folder)}

    def account(*arguments: str) -> str:
        command = [sys.executable, "manage.py", "account", "sandbox", *arguments]
        return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True).stdout

    before = json.loads(account("--json"))["submit_interval_ms"]
    account("--set", f"submit_interval_ms={interval_ms}")
    return int(before)


def test_the_demo_saves_twelve_documents_and_a_second_run_sends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    first = demo("demo", folder, **REAL_LIFE)
    out, err = first.communicate(timeout=300)
    assert first.returncode == 0, out + err
    assert "12 documents to go" in out
    assert "12 documents: 12 saved" in out
    assert "billed 12 jobs in all, 12 of them in this run" in out
    pdfs = list((folder / "artifacts").rglob("*.pdf"))
    assert len(pdfs) == 12
    assert all(len(pypdfium2.PdfDocument(pdf)) >= 1 for pdf in pdfs)
    assert not left_over(folder)

    second = demo("demo", folder)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, out + err
    assert "12 already saved" in out
    assert "billed 12 jobs in all, 0 of them in this run" in out
    assert len(list((folder / "artifacts").rglob("*.pdf"))) == 12
    assert not left_over(folder)


def test_up_prints_an_address_and_a_login_and_stops_cleanly(used_folder: Path) -> None:
    folder = used_folder
    said, paces = [], []
    for _ in range(2):
        running = demo("up", folder, "--port", "0", **REAL_LIFE)
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if "Each mail is a file in " in line:
                break
        assert lines[0].startswith("Preparing "), "whoever waits sees at once that something is done"
        assert "stack   | starting sandbox and waiting until it serves\n" in lines
        ready, sign_in = lines[-3:-1]
        assert "ready at http://127.0.0.1:" in ready
        assert lines[1].partition(";")[0] in sign_in, "the log-in stands once more where the eye is by then"
        said.append(lines[1])
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=STOP_SECONDS)
        assert running.returncode == 0
        assert not left_over(folder)
        paces.append(set_pace(folder, 300))
    assert paces == [200, 300], "what a person set stays at the next start"
    assert said[0].startswith("Sign in as admin with ")
    assert said[0] == said[1], "the first log-in is still known at the second start"
    login = folder / "first-login.txt"
    assert login.stat().st_mode & 0o777 == 0o600
    assert login.read_text().split()[1] in said[0]


def test_an_interrupted_demo_leaves_nothing_running(used_folder: Path) -> None:
    folder = used_folder
    running = demo("demo", folder)
    eventually(lambda: any("gunicorn" in " ".join(found.cmdline()) for found in left_over(folder)), "the pages")
    running.terminate()
    running.communicate(timeout=STOP_SECONDS)
    assert running.returncode != 0
    eventually(lambda: not left_over(folder), "the end of everything", within=10)


def test_a_taken_sandbox_port_is_explained(used_folder: Path) -> None:
    folder = used_folder
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (folder / "sandbox-port").write_text(str(other.getsockname()[1]))
        running = demo("demo", folder)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 1, out
    assert "can't be listened on" in err
    assert "make clean" in err
    assert not left_over(folder)
