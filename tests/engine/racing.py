"""Races: calls in threads, or processes, that begin at the same moment.

It starts them together and gives back what each answered; what a fair race is, the tests say.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import django
from django.conf import settings
from django.db import connection


def outcomes(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each call returned or raised, each in a thread with a database connection of its own."""
    barrier, came_of = threading.Barrier(len(calls)), [None] * len(calls)

    def work(number: int, call: Callable[[], Any]) -> None:
        try:
            barrier.wait()
            came_of[number] = call()
        except Exception as error:  # noqa: BLE001 - it is the outcome
            came_of[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return came_of


def answers(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each call returned; none may raise."""
    came_of = outcomes(calls)
    trouble = [each for each in came_of if isinstance(each, Exception)]
    assert not trouble
    return came_of


def processes(module: str, runs: Sequence[Sequence[str]], *, seconds: float) -> list[list[str]]:
    """The words that each process printed; all must end well.

    `module` is run once for each of `runs`, with this database's name and the run's own arguments. A process says
    `ready`, and goes on when it is sent a line, which none is before all are ready.
    """
    command = [sys.executable, "-m", module, str(connection.settings_dict["NAME"])]
    started = [
        subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for arguments in runs
    ]
    try:
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in started:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        printed = [each.communicate(timeout=seconds)[0].split() for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()
    assert [each.returncode for each in started] == [0] * len(runs)
    return printed


def set_up(database: str) -> None:
    """In a process of a race: Django on that database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    settings.DATABASES["default"]["NAME"] = database
    django.setup()


def wait_for_the_others() -> None:
    """The other side of `processes`: this one is ready, and goes on when all are."""
    say("ready")
    sys.stdin.readline()


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()
