"""`bootstrap` and `runstack` as an operator meets them, with real processes."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from batches.queue import SCHEDULES
from tests.stack_process import REPOSITORY, STOP_SECONDS, Stack, eventually

pytestmark = pytest.mark.processes


@pytest.fixture
def sandbox_port() -> int:
    return free_port()


@pytest.fixture
def stack(make_stack: Callable[..., Stack], sandbox_port: int) -> Stack:
    """Pages, workers and sandbox on free ports, bootstrapped and not yet started."""
    stack = make_stack(
        env={"SANDBOX_PORT": str(sandbox_port), "RELAYPDF_SUBMIT_INTERVAL": "0.05"},
        command=("runstack", "--sandbox", "--port", "0"),
    )
    stack.bootstrap()
    return stack


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ready_port(stack: Stack, *, times: int = 1) -> int:
    """The port of the pages, as soon as the log says for the `times`-th time that all parts serve."""

    def port() -> int:
        said = re.findall(r"ready at http://127\.0\.0\.1:(\d+)/", stack.log())
        return int(said[times - 1]) if len(said) >= times else 0

    return int(eventually(port, f"a ready stack, which says:\n{stack.log()}"))


def answers(port: int, path: str = "/admin/login/") -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def a_document_is_saved(stack: Stack, name: str) -> None:
    manifest = stack.data_dir / f"{name}.json"
    manifest.write_text(json.dumps([{"id": name, "html_content": f"<h1>Invoice {name}</h1>"}]))
    done = stack.manage("submit", str(manifest), "--wait", "--timeout", "60", "--json")
    assert done.returncode == 0, done.stdout + done.stderr + stack.log()
    assert json.loads(done.stdout)["counts"]["saved"] == 1


def test_the_whole_stack_serves_pages_saves_a_document_and_stops_cleanly(stack: Stack) -> None:
    stack.start()
    port = ready_port(stack)
    assert answers(port)
    assert answers(port, "/static/admin/css/base.css"), "static files are served without another step"
    a_document_is_saved(stack, "INV-1")
    second = stack.manage("runstack", "--port", "0")
    assert second.returncode == 2
    assert "A stack is running" in second.stderr
    prefixes = {line.split("|")[0].strip() for line in stack.log().splitlines()}
    assert prefixes == {"sandbox", "web", "cluster", "stack"}
    assert stack.stop() == 0
    assert not answers(port)


def test_after_a_kill_of_the_whole_stack_it_starts_again_on_the_same_port(stack: Stack) -> None:
    port = free_port()
    stack.command = ("runstack", "--sandbox", "--port", str(port))
    stack.start()
    assert ready_port(stack) == port
    assert answers(port)
    assert stack.process is not None
    stack.process.kill()
    stack.process.wait()
    stack.start()
    assert ready_port(stack, times=2) == port
    assert answers(port)
    a_document_is_saved(stack, "INV-2")
    assert stack.stop() == 0


def test_nothing_survives_a_kill_of_the_first_process(stack: Stack) -> None:
    stack.start()
    ready_port(stack)
    assert stack.process is not None
    stack.process.kill()
    eventually(lambda: not stack.survivors(), "the end of the whole tree", within=10)


def test_a_part_that_is_killed_starts_again(stack: Stack) -> None:
    stack.start()
    port = ready_port(stack)
    a_document_is_saved(stack, "INV-before")
    for part in ("gunicorn", "sandbox", "runcluster"):
        victim = part_of(stack, part)
        assert victim is not None
        victim.kill()
        eventually(lambda gone=victim, part=part: part_of(stack, part) not in (None, gone), f"a new {part}")  # type: ignore[misc] # bound now
        eventually(lambda: answers(port), "pages")
        a_document_is_saved(stack, f"INV-after-{part}")
    assert stack.stop() == 0


def part_of(stack: Stack, word: str) -> psutil.Process | None:
    """The child of the first process whose command line holds `word`."""
    assert stack.process is not None
    for child in psutil.Process(stack.process.pid).children():
        try:
            if any(word in argument for argument in child.cmdline()):
                return child
        except psutil.NoSuchProcess:
            continue
    return None


def test_a_part_that_cannot_stay_alive_ends_the_stack(stack: Stack) -> None:
    (stack.data_dir / "sandbox").write_text("a file where the sandbox wants its folder")
    stack.start()
    assert stack.process is not None
    assert stack.process.wait(STOP_SECONDS) != 0
    assert "sandbox" in stack.log()
    assert not stack.survivors()


def test_ctrl_c_stops_the_stack_as_sigterm_does(stack: Stack) -> None:
    stack.start()
    ready_port(stack)
    assert stack.process is not None
    os.killpg(stack.process.pid, signal.SIGINT)
    assert stack.process.wait(STOP_SECONDS) == 0
    assert not stack.survivors()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_a_taken_port_is_refused_with_a_sentence(stack: Stack, taken_port: int) -> None:
    done = stack.manage("runstack", "--port", str(taken_port))
    assert done.returncode == 2
    assert f"Port {taken_port} of 127.0.0.1 is taken by another program; choose another" in done.stderr


def test_a_taken_sandbox_port_ends_the_stack_with_a_sentence(stack: Stack, sandbox_port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", sandbox_port))
        other.listen()
        done = stack.manage("runstack", "--port", "0", "--sandbox")
    assert done.returncode == 2
    assert "can't be listened on" in done.stdout
    assert not stack.survivors()


def test_a_database_that_was_not_bootstrapped_is_refused(make_stack: Callable[..., Stack]) -> None:
    done = make_stack(empty=True).manage("runstack", "--port", "0")
    assert done.returncode == 2
    assert "run `manage.py bootstrap` first" in done.stderr


def test_a_sandbox_port_that_its_account_does_not_know_is_refused(stack: Stack, sandbox_port: int) -> None:
    done = stack.manage("runstack", "--port", "0", "--sandbox", "--sandbox-port", str(sandbox_port % 60000 + 1))
    assert done.returncode == 2
    assert f"looks for its sandbox on port {sandbox_port}" in done.stderr


def test_two_bootstraps_at_once_make_everything_once(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(empty=True)
    started = [
        subprocess.Popen(
            [sys.executable, "manage.py", "bootstrap", "--admin", "okoye", "--json"],
            cwd=REPOSITORY,
            env=stack.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], answers
    summaries = [json.loads(out) for out, _ in answers]
    assert sorted(summary["account"]["outcome"] for summary in summaries) == ["kept", "kept", "made"]
    assert sum(summary["admin"]["made"] for summary in summaries) == 1
    for table, count in {
        "batches_workspace": 1,
        "batches_provideraccount": 1,
        "batches_pacinglane": 3,
        "batches_pumpslot": 1,
        "django_q_schedule": len(SCHEDULES),
        "auth_group": 4,
        "auth_user": 1,
    }.items():
        assert stack.query(f"SELECT count(*) FROM {table}") == [(count,)], table


def test_the_log_survives_its_reader(stack: Stack) -> None:
    """`runstack | head` ends head, not the work."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "manage.py", *stack.command], cwd=REPOSITORY, env=stack.env, stdout=writer, stderr=writer
    )
    os.close(writer)
    os.close(reader)
    eventually(lambda: any("q-worker" in name_of(found) for found in stack.survivors()), "workers")
    process.terminate()
    assert process.wait(STOP_SECONDS) == 0
    assert not stack.survivors()


def name_of(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def test_output_that_nobody_reads_any_more_ends_a_command_quietly(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack()
    stack.bootstrap()
    # Buffered output breaks when it is flushed at the end, unbuffered output in the middle of the command.
    for command, unbuffered in ((("account", "sandbox"), "1"), (("account", "sandbox"), ""), (("durations",), "")):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = subprocess.run(
                [sys.executable, "manage.py", *command],
                cwd=REPOSITORY,
                env=stack.env | {"PYTHONUNBUFFERED": unbuffered},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
            )
        finally:
            os.close(writing)
        assert (done.returncode, done.stderr) == (141, ""), command
