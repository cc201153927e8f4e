"""What came of it: bills from the sandbox's ledger, the texts of the stored PDFs, and whether all faces agree.

Each breach is a sentence with the documents it is about, and a double bill comes with its whole story.
"""

from __future__ import annotations

import csv
import dataclasses
import http.cookiejar
import io
import json
import re
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections import Counter
from typing import Any

import pypdfium2

from tests.chaos.hostility import SAVED, Document
from tests.sandbox_process import SandboxProcess
from tests.stack_process import Stack, eventually

NAMED_MOST = 10


@dataclasses.dataclass
class Report:
    """All figures of one run; `breaches` is empty when every promise was kept. `as_json()` is its stable form."""

    plan: dict[str, Any]
    seconds: float
    blows: dict[str, int]
    restarts: dict[str, int]
    standstills: list[tuple[float, str]]
    breaches: list[str]
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    states: dict[str, int] = dataclasses.field(default_factory=dict)
    ledger: dict[str, int] = dataclasses.field(default_factory=dict)
    bills_per_document: dict[int, int] = dataclasses.field(default_factory=dict)
    double_bills: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    texts_right: int = 0
    webhooks: dict[str, int] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        plan, total = self.plan, sum(self.blows.values())
        where = f"{plan['database']}, {plan['store']}, seed {plan['seed']}"
        bills = {str(number): documents for number, documents in self.bills_per_document.items()}
        standstills = ", ".join(f"{seconds:.1f} s ({what})" for seconds, what in self.standstills)
        answer = [
            f"{where}: {plan['documents']} documents, {total} blows in {self.seconds:.0f} s",
            f"  blows           {_listed(self.blows)}",
            f"  runstack again  {_listed(self.restarts)}",
            f"  states          {_listed(self.states)}",
            f"  ledger          {_listed(self.ledger)}",
            f"  documents by number of bills  {_listed(bills)}",
            f"  double bills    {len(self.double_bills)}",
            f"  texts right     {self.texts_right} of {self.counts.get('saved', 0)} saved PDFs",
            f"  webhooks        {_listed(self.webhooks)}",
            f"  longest from blow (or blows) to progress  {standstills or 'no blow'}",
        ]
        answer += [f"  BREACH: {breach}" for breach in self.breaches] or ["  every promise was kept"]
        return answer


def _listed(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items())) or "none"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return ", ".join(names[:NAMED_MOST]) + more


def judge(
    report: Report,
    *,
    stack: Stack,
    sandbox: SandboxProcess,
    batch_id: str,
    address: str,
    documents: list[Document],
    person: str,
    password: str,
) -> None:
    """Fill in the report's figures and add a breach for every promise that was not kept."""
    done = stack.manage("batch", batch_id, "--json")
    batch = json.loads(done.stdout)
    report.counts = batch["counts"]
    report.states = dict(Counter(item["state"] for item in batch["items"]))
    _ends(report, batch, documents)
    _bills(report, stack, sandbox, documents, batch)
    _texts(report, stack, batch_id, batch)
    _faces(report, stack, batch_id, batch, address, person, password)
    _stuck(report, stack)


def _ends(report: Report, batch: dict[str, Any], documents: list[Document]) -> None:
    items = {item["business_id"]: item for item in batch["items"]}
    if sorted(items) != sorted(document.business_id for document in documents):
        report.breaches.append(f"{len(documents)} documents were handed over and {len(items)} are listed")
    for document in documents:
        item = items.get(document.business_id)
        if item is not None and item["state"] != document.end:
            report.breaches.append(
                f"{document.business_id} ({', '.join(document.lots) or 'calm'}) ended as {item['state']}"
                f" ({item['failure_class']}) instead of {document.end}"
            )


# --- bills ---


def _bills(
    report: Report, stack: Stack, sandbox: SandboxProcess, documents: list[Document], batch: dict[str, Any]
) -> None:
    ledger = sandbox.ledger()
    report.ledger = ledger["totals"]
    keys: dict[str, list[str]] = {document.business_id: [] for document in documents}
    for business_id, key in stack.query(
        "SELECT d.business_id, s.idempotency_key FROM batches_submission s JOIN batches_job j ON j.id = s.job_id"
        " JOIN batches_documentversion v ON v.id = j.version_id JOIN batches_document d ON d.id = v.document_id"
    ):
        keys[business_id].append(key)
    billed: dict[str, int] = ledger["billed_by_key"]
    bills = {name: sum(billed.get(key, 0) for key in of_it) for name, of_it in keys.items()}
    report.bills_per_document = dict(sorted(Counter(bills.values()).items()))
    doubles = [name for name, of_it in keys.items() if bills[name] > 1]
    report.double_bills = [_story(stack, sandbox, ledger, name, keys[name]) for name in doubles]
    if doubles:
        report.breaches.append(f"billed more than once: {_named(doubles)}")
    if strangers := sorted(set(billed) - {key for of_it in keys.values() for key in of_it}):
        report.breaches.append(f"billed under keys that no submission of ours has: {_named(strangers)}")
    if twice := [body for body, number in ledger["billed_by_body"].items() if number > 1]:
        report.breaches.append(f"billed more than once for the same body: {_named(twice)}")
    states = {item["business_id"]: item["state"] for item in batch["items"]}
    if lost := [name for name, number in bills.items() if number and states.get(name) != SAVED]:
        report.breaches.append(f"billed and not saved: {_named(lost)}")
    if free := [name for name, number in bills.items() if not number and states.get(name) == SAVED]:
        report.breaches.append(f"saved without a bill: {_named(free)}")
    deliveries = sandbox.deliveries()
    report.webhooks = dict(Counter(str(delivery["state"]) for delivery in deliveries))
    if deliveries and not report.webhooks.get("delivered"):
        answers = sorted({str(delivery["last_status"]) for delivery in deliveries})
        report.breaches.append(f"not one webhook was taken; the last answers: {', '.join(answers)}")


def _story(
    stack: Stack, sandbox: SandboxProcess, ledger: dict[str, Any], business_id: str, keys: list[str]
) -> dict[str, Any]:
    """All that both sides know of one document."""
    ((job_id,),) = stack.query(
        "SELECT j.id FROM batches_job j JOIN batches_documentversion v ON v.id = j.version_id"
        " JOIN batches_document d ON d.id = v.document_id WHERE d.business_id = ?",
        business_id,
    )
    ours = {
        "submissions": "SELECT sequence, idempotency_key, first_sent_at, last_sent_at, try_count, in_doubt,"
        " provider_job_id, outcome FROM batches_submission WHERE job_id = ? ORDER BY id",
        "exchanges": "SELECT at, kind, status, error_class, duration_ms FROM batches_exchange WHERE job_id = ?"
        " ORDER BY id",
        "events": "SELECT at, from_state, to_state, reason, words FROM batches_jobevent WHERE job_id = ? ORDER BY id",
    }
    return {
        "document": business_id,
        **{name: [[str(value) for value in row] for row in stack.query(sql, job_id)] for name, sql in ours.items()},
        "arrivals": [arrival for arrival in sandbox.arrivals() if arrival["idempotency_key"] in keys],
        "provider jobs": [job for job in ledger["jobs"] if job["idempotency_key"] in keys],
    }


# --- the PDFs ---


def _texts(report: Report, stack: Stack, batch_id: str, batch: dict[str, Any]) -> None:
    """Each saved PDF, out of the batch's archive, opens and shows its own business id."""
    path = stack.data_dir / "chaos.zip"
    done = stack.manage("download", batch_id, "--out", str(path), timeout=300)
    if not path.exists():
        report.breaches.append(f"the archive could not be made: {done.stderr[-300:]}")
        return
    wrong = []
    with zipfile.ZipFile(path) as archive:
        rows = _results(stack, batch_id)
        for row in rows:
            if row["status"] != SAVED:
                continue
            shown = _text(archive.read(f"documents/{row['filename']}"))
            if f"Invoice {row['id']}" in shown:
                report.texts_right += 1
            else:
                wrong.append(f"{row['id']} shows {shown[:60]!r}")
    if wrong:
        report.breaches.append(f"wrong texts: {_named(wrong)}")
    if report.texts_right != batch["counts"]["saved"]:
        report.breaches.append(f"{report.texts_right} right texts for {batch['counts']['saved']} saved documents")


def _text(pdf: bytes) -> str:
    try:
        document = pypdfium2.PdfDocument(pdf)
    except pypdfium2.PdfiumError as error:
        return f"no PDF: {error}"
    try:
        return "\n".join(page.get_textpage().get_text_bounded() for page in document)
    finally:
        document.close()


# --- the faces ---


def _results(stack: Stack, batch_id: str) -> list[dict[str, str]]:
    done = stack.manage("results", batch_id, "--format", "csv")
    return list(csv.DictReader(io.StringIO(done.stdout.lstrip("\ufeff"))))


def _faces(
    report: Report, stack: Stack, batch_id: str, batch: dict[str, Any], address: str, person: str, password: str
) -> None:
    """Command, result file, API and page say the same of every document."""
    said = [(item["business_id"], item["state"]) for item in batch["items"]]
    rows = [(row["id"], row["status"]) for row in _results(stack, batch_id)]
    if rows != said:
        report.breaches.append(
            f"the result file differs from the batch: {_named(sorted(map(str, set(rows) ^ set(said))))}"
        )
    if sum(value for name, value in batch["counts"].items() if name != "total") != batch["counts"]["total"]:
        report.breaches.append(f"the counters do not add up: {batch['counts']}")
    if batch["counts"]["in_progress"] or batch["counts"]["held"]:
        report.breaches.append(f"the batch has not ended: {batch['counts']}")
    eventually(lambda: _answers(f"{address}/healthz"), "the pages to be served again")
    token = stack.manage("api_token", person, "--name", "chaos").stdout.strip()
    request = urllib.request.Request(
        f"{address}/api/v1/batches/{batch_id}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        if json.loads(response.read()) != batch:
            report.breaches.append("the API's batch differs from the command's")
    page = _page(address, f"/batches/{batch_id}/", person, password)
    shown = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(r'id="count-(\w+)"[^>]*><span class="nums">([\d,]+)</span>', page)
    }
    expected = {"all": batch["counts"]["total"]} | {
        name: number for name, number in batch["counts"].items() if name != "total"
    }
    if {name: shown.get(name) for name in expected} != expected:
        report.breaches.append(f"the page counts {shown}, the command {expected}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _page(address: str, path: str, person: str, password: str) -> str:
    """A page, as a signed-in person gets it."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(f"{address}/sign-in/", timeout=30).read()
    secret = next(cookie.value for cookie in jar if cookie.name == "csrftoken")
    form = {"username": person, "password": password, "csrfmiddlewaretoken": secret, "next": path}
    signed_in = opener.open(f"{address}/sign-in/", urllib.parse.urlencode(form).encode(), timeout=30)
    text: str = signed_in.read().decode()
    return text


def _stuck(report: Report, stack: Stack) -> None:
    """At the end nobody holds a lease, and nothing waits for anybody."""
    # Pumps go on for a moment after the last document; what they hold, they give back.
    eventually(
        lambda: not stack.query("SELECT id FROM batches_job WHERE lease_until IS NOT NULL"),
        "the end of the last lease",
    )
    for question, sql in {
        "jobs in progress": "SELECT id FROM batches_job"
        " WHERE state IN ('pending', 'submitting', 'accepted', 'rendered')",
        "open submissions of jobs that have ended": "SELECT s.id FROM batches_submission s JOIN batches_job j"
        " ON j.id = s.job_id WHERE s.outcome = 'open' AND j.state IN ('saved', 'failed')",
        "parked jobs": "SELECT id FROM batches_job WHERE failure_class = 'internal'",
    }.items():
        if found := stack.query(sql):
            report.breaches.append(f"{question}: {_named([str(row[0]) for row in found])}")
