"""The workplace on a real stack: two people press the same buttons at once while its workers are killed with SIGKILL.

What is promised there: a bulk action ends with a result for each document, and nothing is billed twice; an export is
whole and names each row once; a letter is never lost, and comes at most twice, under one Message-ID
(docs/decisions/0030-notices-at-least-once.md).
"""

from __future__ import annotations

import csv
import io
import random
import re
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.mailing.server import MailServer
from tests.sandbox_process import SandboxProcess
from tests.scenarios.stacks import batch, environment, invoices, saved_count, submitted
from tests.stack_process import Stack, eventually

pytestmark = pytest.mark.processes
DOCUMENTS = 40
PASSWORD = "Correct-horse-battery-7"
PAST, FUTURE = "2026-01-01 00:00:00", "2099-01-01 00:00:00"


class Person:
    """Somebody at a browser of their own."""

    def __init__(self, base: str, name: str) -> None:
        self.base, self.browser = base, requests.Session()
        self.get("/sign-in/")
        self.press("/sign-in/", username=name, password=PASSWORD)
        assert "sessionid" in self.browser.cookies

    def get(self, path: str) -> requests.Response:
        return self.browser.get(f"{self.base}{path}", timeout=30)

    def press(self, path: str, **fields: str) -> str:
        """The address of the page that a button led to."""
        given = {"csrfmiddlewaretoken": self.browser.cookies["csrftoken"], **fields}
        answer = self.browser.post(f"{self.base}{path}", given, headers={"Referer": self.base}, timeout=30)
        assert answer.status_code in (200, 422), answer.text  # 422: it was pressed before, in words
        return answer.url.removeprefix(self.base)


def test_two_people_press_the_same_buttons_while_the_workers_are_killed(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    mails = MailServer()
    stack = make_stack(
        command=("runstack", "--port", "0"),
        env=environment(
            sandbox,
            interval=0.02,
            FIRST_PASSWORD=PASSWORD,
            EMAIL_URL=f"smtp://127.0.0.1:{mails.port}",
            DEFAULT_FROM_EMAIL="Batches <batches@example.com>",
            SITE_URL="https://batches.example.com",
        ),
    )
    stack.bootstrap("--admin", "okoye", "--admin-email", "okoye@example.com")
    add_colleague(stack, "nadia")
    batch_id = submitted(stack, invoices(tmp_path, DOCUMENTS), "--notify", "okoye", "--notify", "nadia")
    assert stack.manage("cancel", "--batch", batch_id, "--reason", "Too early.").returncode == 0
    stack.execute("UPDATE batches_noticewatch SET due_at = ?", FUTURE)  # until the last document is saved
    mails.came = lambda: kill_workers_behind_the_first(mails, stack)
    stack.start()
    found = eventually(lambda: re.search(r"ready at (http://\S+)/", stack.log()), "the stack to be ready")
    people = [Person(str(found[1]), name) for name in ("okoye", "nadia")]

    reopen_everything(people, stack, batch_id)
    eventually(lambda: saved_count(stack) == DOCUMENTS, "all documents to be saved", within=120)
    order_and_check_exports(people, stack, batch_id)
    check_letters(mails, stack)

    assert batch(stack, batch_id)["counts"]["saved"] == DOCUMENTS
    ledger = sandbox.ledger()
    assert ledger["totals"]["jobs_billed"] == DOCUMENTS
    assert set(ledger["billed_by_key"].values()) == set(ledger["billed_by_body"].values()) == {1}
    assert stack.stop() == 0


def add_colleague(stack: Stack, name: str) -> None:
    """Another administrator with the same password; a second `bootstrap` would take seconds."""
    columns = "password, is_superuser, is_staff, is_active, date_joined, first_name, last_name"
    stack.execute(
        f"INSERT INTO auth_user ({columns}, username, email) SELECT {columns}, ?, ? FROM auth_user",
        name,
        f"{name}@example.com",
    )


def kill_workers(stack: Stack) -> None:
    """SIGKILL to every worker that there is at this moment; the cluster starts anew."""
    for worker in eventually(lambda: stack.named("q-worker"), "workers"):
        worker.kill()


def kill_workers_behind_the_first(mails: MailServer, stack: Stack) -> None:
    """The sender dies before it hears that its letter was taken; the lease of that letter is over at once."""
    if len(mails.received) == 1:
        kill_workers(stack)
        stack.execute("UPDATE batches_notice SET next_try_at = ? WHERE sent_at IS NULL", PAST)
        bring_notices_forward(stack)


def bring_notices_forward(stack: Stack) -> None:
    """The next cluster that starts looks for news, and mails them, at once."""
    stack.execute("UPDATE batches_noticewatch SET due_at = ?", PAST)
    stack.execute("UPDATE django_q_schedule SET next_run = ? WHERE name = 'relaypdf: notices'", PAST)


def at_once(presses: list[Callable[[], str]]) -> list[str]:
    """All of them at the same time; where each led to."""
    with ThreadPoolExecutor(len(presses)) as pool:
        return [done.result() for done in [pool.submit(press) for press in presses]]


def reopen_everything(people: list[Person], stack: Stack, batch_id: str) -> None:
    """Two plans for the same documents, each confirmed by both people; each document is reopened by one of them."""
    account, path = "/accounts/relaypdf/", f"/batches/{batch_id}/actions/plan/"
    people[0].press(f"{account}hold/", reason="Wait for the new letterhead.")
    plans = at_once([lambda person=person: person.press(path, verb="reopen", state="cancelled") for person in people])
    assert len(set(plans)) == 2
    confirms = [
        lambda person=person, plan=plan: person.press(f"{plan}confirm/", reason="Now they may go.")
        for person in people
        for plan in plans
    ]
    for presses in (confirms, [lambda person=person: person.press(f"{account}resume/") for person in people]):
        at_once(presses)
        time.sleep(random.uniform(0, 0.5))
        kill_workers(stack)
    unfinished = "SELECT count(*) FROM batches_bulkaction WHERE finished_at IS NULL"
    eventually(lambda: stack.query(unfinished) == [(0,)], "both actions to end", within=120)
    for person, plan in zip(people, plans, strict=True):
        rows = list(csv.DictReader(io.StringIO(person.get(f"{plan}items.csv").content.decode("utf-8-sig"))))
        assert len({row["id"] for row in rows}) == len(rows) == DOCUMENTS
        assert {row["result"] for row in rows} <= {"done", "skipped"}
    results = stack.query(
        "SELECT result, count(*) FROM batches_bulkactionitem i JOIN batches_bulkaction a ON a.id = i.action_id "
        "WHERE a.verb = 'reopen' GROUP BY 1"
    )
    assert dict(results) == {"done": DOCUMENTS, "skipped": DOCUMENTS}


def order_and_check_exports(people: list[Person], stack: Stack, batch_id: str) -> None:
    """Each person orders both kinds, and presses twice; both times that the workers die is while these are built."""
    path = f"/batches/{batch_id}/download/"
    bring_notices_forward(stack)
    orders = at_once(
        [
            lambda person=person, kind=kind: person.press(path, kind=kind)
            for person in people
            for kind in ("zip", "csv")
            for _ in range(2)
        ]
    )
    assert len(set(orders)) == 4, "the same order of one person is the same export"
    kill_workers(stack)
    ended = "SELECT count(*) FROM batches_export WHERE state NOT IN ('queued', 'building')"
    eventually(lambda: stack.query(ended) == [(4,)], "all exports to be built", within=120)
    assert stack.query("SELECT DISTINCT state FROM batches_export") == [("ready",)]
    for order in sorted(set(orders)):
        check_rows(people[0].get(f"{order}files/1/"))


def check_rows(answer: requests.Response) -> None:
    """Each row once, saved, and of an archive with its PDF."""
    assert answer.ok
    content = answer.content
    is_archive = content.startswith(b"PK")
    if is_archive:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert archive.testzip() is None
            content = archive.read("manifest.csv")
            pdfs = [name for name in archive.namelist() if name.endswith(".pdf")]
            assert len(pdfs) == DOCUMENTS
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert [row["id"] for row in rows] == [f"INV-{number:04}" for number in range(DOCUMENTS)]
    assert {row["status"] for row in rows} == {"saved"}


def check_letters(mails: MailServer, stack: Stack) -> None:
    """Every notice was mailed; the one whose sender died came a second time, as the same letter."""
    waiting = "SELECT count(*) FROM batches_notice WHERE sent_at IS NULL"
    eventually(lambda: stack.query(waiting) == [(0,)] and mails.received, "all letters to be sent", within=120)
    copies = Counter(str(letter["Message-ID"]) for letter in mails.received)
    told = stack.query("SELECT recipient_id, event, message_id FROM batches_notice")
    assert len(told) == len(set(told)) == 2
    assert sorted(copies.values()) == [1, 2]
