"""`python -m tests.postgres -- …`: the server is there for the command, and gone after it however it ended."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from tests.stack_process import REPOSITORY, eventually

pytestmark = pytest.mark.processes

#: Says where the server is, then what it is asked to do.
SAY_WHERE = "import os; print(os.environ['DATABASE_URL'], flush=True); "


def runner(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.postgres", "--", "python", "-c", SAY_WHERE + code],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def folder_of(url: str) -> Path:
    return Path(parse_qs(urlsplit(url.strip()).query)["host"][0])


def servers_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize("code", [0, 3])
def test_the_commands_exit_code_is_passed_on_and_the_server_is_gone(code: int) -> None:
    ask = (
        "import psycopg, sys; "
        "print(psycopg.connect(os.environ['DATABASE_URL']).execute('select 6 * 7').fetchone()[0]); "
        f"sys.exit({code})"
    )
    running = runner(ask)
    out, err = running.communicate(timeout=120)
    assert running.returncode == code, err
    url, answer = out.splitlines()
    assert answer == "42"
    assert not folder_of(url).exists()
    assert not servers_in(folder_of(url))


def test_a_stop_reaches_the_command_and_the_server(tmp_path: Path) -> None:
    running = runner("import time; time.sleep(600)")
    assert running.stdout is not None
    folder = folder_of(running.stdout.readline())
    assert servers_in(folder)
    running.terminate()
    running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert not folder.exists()
    assert not servers_in(folder)


def test_a_killed_runner_leaves_no_server(tmp_path: Path) -> None:
    running = runner("import time; time.sleep(600)")
    assert running.stdout is not None
    folder = folder_of(running.stdout.readline())
    command = psutil.Process(running.pid).children()
    running.kill()
    running.communicate(timeout=60)
    eventually(lambda: not servers_in(folder), "the server's end")
    shutil.rmtree(folder)  # a killed runner cannot; nothing else is left of it
    for process in command:
        eventually(lambda process=process: not process.is_running(), "the command's end")  # type: ignore[misc] # bound now


def test_a_call_without_a_command_says_how(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.postgres"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
