"""The examples on every provider, each against its double, through one real stack: all saved, and each billed once.

Every double is hostile: each document meets some trouble of its vendor's, of which it can recover. What is lost where
no key protects it ends as unknown, which is told beside each vendor's conformance. Last of all, whatever the run wrote
and showed is searched for the accounts' secrets and for words of the documents.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from batches.providers import PROVIDERS
from tests.sandbox_process import start_sandbox
from tests.scenarios.stacks import batch, environment, free_port
from tests.stack_process import REPOSITORY, Stack, eventually

EXAMPLES = REPOSITORY / "examples" / "manifest.json"
#: RelayPDF's double is the sandbox. What it bills is told by others; here it is among those that may tell no secret.
KINDS = sorted(kind for kind in PROVIDERS if kind != "relaypdf")
#: In every document, and in no name of one.
WORDS = "Quillfeather-7731"
PASSWORD = "granite-otter-48"
#: Where secrets and documents belong: encrypted, or as they were sent.
PLACES_OF_DOCUMENTS = {"batches_documentversion.input_inline", "batches_submission.body_inline"}
#: As fast as the doubles take them.
LIMITS = {"submit_interval_ms": 50, "poll_initial_ms": 200, "poll_max_ms": 1000, "max_in_flight": 20}


@dataclass
class Running:
    """The stack, with the double and the batch of each kind."""

    stack: Stack
    doubles: dict[str, Any] = field(default_factory=dict)
    batches: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """All of them at once: one batch on each account, as it may be in use."""
    folder, port = tmp_path_factory.mktemp("providers"), free_port()
    site, sandbox = f"http://127.0.0.1:{port}", start_sandbox(folder)
    secret = sandbox.add_endpoint(f"{site}/webhooks/relaypdf")
    env = {"PUBLIC_URL": site, "FIRST_PASSWORD": PASSWORD, "RELAYPDF_WEBHOOK_SECRET": secret}
    stack = Stack(
        data_dir=folder / "data",
        env=environment(sandbox, interval=0.05, **env),
        command=("runstack", "--port", str(port), "--workers", "3"),
    )
    running = Running(stack, secrets={sandbox.api_key, secret})
    try:
        for kind in KINDS:
            running.doubles[kind] = importlib.import_module(f"tests.providers.{kind}_double").start(folder)
            running.doubles[kind].hostile()
        stack.bootstrap("--admin", "okoye")
        for kind, double in running.doubles.items():
            columns = double.account_fields()
            running.secrets |= _secrets(columns)
            _add_account(stack, kind, columns)
        stack.start()
        eventually(lambda: "ready at http://" in stack.log(), "the stack to be ready")
        for kind in (*KINDS, "relaypdf"):
            done = stack.manage("submit", str(_examples(kind, folder)), "--account", kind, "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            running.batches[kind] = json.loads(done.stdout)["id"]
        yield running
    finally:
        stack.close()
        sandbox.stop()
        for double in running.doubles.values():
            double.stop()


def _add_account(stack: Stack, kind: str, columns: dict[str, Any]) -> None:
    """As an operator does; its secrets come by standard input."""
    options = columns.pop("options", {})
    hosts = ",".join(columns.pop("download_hosts", []))
    secrets = [name for name in ("api_key", "webhook_secret") if columns.get(name)]
    plain = {name: value for name, value in columns.items() if name not in ("kind", "base_url", *secrets) and value}
    pairs = [f"{name}={value}" for name, value in (plain | LIMITS | options).items()]
    pairs += [f"{name}=-" for name in secrets] + ([f"download_hosts={hosts}"] if hosts else [])
    given = "".join(f"{columns[name]}\n" for name in secrets)
    added = stack.manage(
        "account", kind, "--add", kind, "--base-url", columns["base_url"], "--set", *pairs, given=given
    )
    assert added.returncode == 0, added.stdout + added.stderr


def _examples(kind: str, folder: Path) -> Path:
    """The examples under ids of their own: a document of one id is one and the same for every account."""
    rows = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    whole = [
        {
            "id": f"{kind}-{row['id']}",
            "html_content": (EXAMPLES.parent / row["html"]).read_text(encoding="utf-8").replace("</body>", _MARK),
            "options": row.get("options", {}),
        }
        for row in rows
    ]
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_are_saved_and_billed_once(kind: str, running: Running) -> None:
    batch_id = running.batches[kind]
    eventually(lambda: _has_ended(running.stack, kind), f"the end of the batch on {kind}", within=150)
    items = batch(running.stack, batch_id)["items"]
    states = {item["business_id"]: (item["state"], item["failure_class"]) for item in items}
    assert set(states.values()) == {("saved", None)}, running.stack.log()[-4000:]
    ledger = running.doubles[kind].ledger()
    if PROVIDERS[kind].capabilities.resend_is_harmless:
        assert ledger["accepted"] >= len(states), "renders that cost no bill may be repeated"
    else:
        assert sorted(ledger["billed"].values()) == [1] * len(states)


def _has_ended(stack: Stack, kind: str) -> bool:
    moving = "('pending', 'submitting', 'accepted', 'rendered')"
    jobs = "batches_job j JOIN batches_provideraccount a ON a.id = j.account_id"
    return stack.query(f"SELECT count(*) FROM {jobs} WHERE a.slug = '{kind}' AND j.state IN {moving}") == [(0,)]


# --- what nobody may read --------------------------------------------------------------------------------------------

_MARK = f"<p>{WORDS}</p></body>"


def _secrets(columns: dict[str, Any]) -> set[str]:
    """Each secret of an account: whole, each half of a pair, and as HTTP's basic authentication shows them."""
    given = [str(columns[name]) for name in ("api_key", "webhook_secret") if columns.get(name)]
    halves = [half for secret in given for half in secret.split(":")[1:]]
    basic = [base64.b64encode(secret.encode()).decode() for each in given for secret in (each, f"{each}:")]
    return {*given, *halves, *basic}


@pytest.mark.processes
def test_no_secret_and_no_words_of_a_document_are_told_anywhere(running: Running) -> None:
    """In no log, table, file, page or answer of the run: secrets lie encrypted, and documents where they belong."""
    stack = running.stack
    for kind in (*KINDS, "relaypdf"):
        eventually(lambda kind=kind: _has_ended(stack, kind), f"the end of the batch on {kind}", within=150)
    asked = _pages(running)
    assert any(where == "batches_submission.body_inline" and WORDS in text for where, text in _rows(stack)), (
        "they are sent"
    )
    told = [("the log", stack.log()), *_rows(stack), *_files(stack), *asked]
    found = {(where, secret) for where, text in told for secret in running.secrets if secret in text}
    found |= {(where, WORDS) for where, text in told if WORDS in text and where not in PLACES_OF_DOCUMENTS}
    # Whoever knows the way by which a provider calls us may call.
    found |= {("the log", way) for way in re.findall(r"/webhooks/[\w-]+/[\w-]{20,}", stack.log())}
    assert not found


def _rows(stack: Stack) -> Iterator[tuple[str, str]]:
    """Every value of every table, by its column."""
    tables = [name for (name,) in stack.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        columns = [row[1] for row in stack.query(f'PRAGMA table_info("{table}")')]
        for row in stack.query(f'SELECT * FROM "{table}"'):
            for column, value in zip(columns, row, strict=True):
                if isinstance(value, str | bytes):
                    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                    yield f"{table}.{column}", text


def _files(stack: Stack) -> Iterator[tuple[str, str]]:
    """What lies in DATA_DIR beside the database and the store of documents."""
    for path in stack.data_dir.rglob("*"):
        about = path.relative_to(stack.data_dir)
        if path.is_file() and about.parts[0] != "artifacts" and not about.name.startswith("db.sqlite3"):
            yield str(about), path.read_bytes().decode("utf-8", "replace")


def _pages(running: Running) -> list[tuple[str, str]]:
    """What a superuser is shown of accounts, documents and events, and what is said where something fails."""
    site = running.stack.env["PUBLIC_URL"]
    browser = requests.Session()
    browser.get(f"{site}/sign-in/", timeout=20)
    form = {"username": "okoye", "password": PASSWORD, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    signed_in = browser.post(f"{site}/sign-in/", data=form, headers={"Referer": site}, timeout=20)
    assert "Sign out" in signed_in.text
    stack = running.stack
    events = [key for (key,) in stack.query("SELECT id FROM batches_webhookevent ORDER BY id DESC LIMIT 5")]
    documents = [key for (key,) in stack.query("SELECT public_id FROM batches_document ORDER BY id LIMIT 3")]
    accounts = [f"/accounts/{kind}/" for kind in KINDS]
    admin = [
        f"/admin/batches/{model}/{key}/change/"
        for model in ("provideraccount", "exchange", "auditentry", "webhookevent", "submission")
        for (key,) in stack.query(f"SELECT id FROM batches_{model} ORDER BY id DESC LIMIT 6")
    ]
    inbox = [f"/inbox/{key}/" for key in events]
    shown = [f"/documents/{key}/" for key in documents]
    wrong = ["/webhooks/docraptor/wrong/wrong", "/accounts/nobody/", "/api/v1/batches/bat_none", "/documents/doc_none/"]
    found = []
    for address in ["/", "/accounts/", "/inbox/", "/audit/", *accounts, *inbox, *shown, *admin, *wrong]:
        answer = browser.get(f"{site}{address}", timeout=20)
        assert answer.status_code == 200 or address in wrong, (address, answer.status_code)
        found.append((address, answer.text))
    return found
