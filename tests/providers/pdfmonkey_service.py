"""What PDFMonkey does, as far as its documents say, without an address: see `pdfmonkey_double.py`.

Templates that are filled, drafts and their start, cards with links that live for an hour, deletion that leaves the
record, the account with its quota, and webhooks signed as Svix does. What the vendor leaves open is a switch.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

WHOLE_HTML, INVOICE = "b5f1-whole-html", "77aa-invoice"
FIRST_QUOTA = 5000
JSON, XML, PDF = "application/json", "application/xml", "application/pdf"


@dataclass
class Switches:
    """What the vendor leaves open, or what an account has its own way. Seconds; counts."""

    render_seconds: float = 0.0
    link_seconds: float = 3600.0
    link_is_late: bool = False  # the first card that says success names no link yet
    meta_is_text: bool = True  # `meta` comes back as a JSON string
    delete_forgets: bool = False  # the record goes too
    deleted_shows_link: bool = False
    start_status: int = 200
    created_status: str = "draft"
    quota: int = FIRST_QUOTA
    quota_refuses: int = 0  # the status that a start meets without quota; 0: the document fails instead
    webhook_url: str = ""
    webhook_secret: str = ""
    webhook_times: int = 1
    webhook_is_early: bool = False  # it comes before the answer to the start


@dataclass
class Document:
    """`bills` is what stands on the invoice for it."""

    id: str
    fields: dict[str, Any]
    reference: str
    status: str = "draft"
    failure: str = ""
    file: bytes | None = None
    bills: int = 0
    cards: int = 0
    made_at: float = field(default_factory=time.time)

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.fields.get("meta") or {}
        return json.loads(meta) if isinstance(meta, str) else meta


@dataclass
class Reply:
    status: int
    content: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def said(status: int, value: Any) -> Reply:
    return Reply(status, json.dumps(value).encode())


class Service:
    """One account's service. `url` is where it is reached."""

    url = ""

    def __init__(self, **switches: Any) -> None:
        self.switches = Switches(**switches)
        self.documents: dict[str, Document] = {}
        self.failing: deque[str] = deque()  # why the next documents fail
        self.delivered: list[int] = []  # what the webhook address answered; 0 where it did not
        self.keys_at_files: int = 0  # how often a file was asked for with the API key
        self.lock = threading.RLock()

    def ledger(self) -> dict[str, Any]:
        with self.lock:
            billed = Counter[str]()
            for document in self.documents.values():
                if document.bills:
                    billed[document.reference] += document.bills
            return {"accepted": len(self.documents), "billed": dict(billed), "keys_at_files": self.keys_at_files}

    def create(self, body: bytes) -> Reply:
        fields, problem = self._fields(body)
        if problem is not None:
            return problem
        with self.lock:
            number = hashlib.sha256(f"document {len(self.documents)}".encode()).hexdigest()
            name = f"{number[:8]}-{number[8:12]}-{number[12:24]}"
            document = Document(name, fields, str((fields.get("meta") or {}).get("job_key", name)))
            self.documents[document.id] = document
            if fields.get("status", self.switches.created_status) == "pending":
                self._begin(document)
        return said(201, {"document": self._whole(document)})

    def update(self, name: str, body: bytes) -> Reply:
        """A full replacement. Asked for again of what has begun, it begins, and is billed, once more."""
        fields, problem = self._fields(body)
        document = self.documents.get(name)
        if document is None:
            return said(404, {"error": "Document not found"})
        if problem is not None:
            return problem
        with self.lock:
            document.fields = fields
            if fields.get("status") == "pending":
                if self.switches.quota <= 0 and self.switches.quota_refuses:
                    return said(self.switches.quota_refuses, {"error": "Your quota is used up."})
                self._begin(document)
        if self.switches.start_status == 204:
            return Reply(204)
        return said(self.switches.start_status, {"document": self._whole(document)})

    def _fields(self, body: bytes) -> tuple[dict[str, Any], Reply | None]:
        try:
            fields = json.loads(body)["document"]
            template = fields["document_template_id"]
        except (ValueError, KeyError, TypeError):
            return {}, said(422, {"errors": {"document_template_id": ["can't be blank"]}})
        if template not in (WHOLE_HTML, INVOICE):
            return {}, said(404, {"error": "Document template not found"})
        payload = fields.get("payload")
        if "forbidden" in json.dumps(payload):
            return {}, said(422, {"errors": ["Payload is not acceptable"]})
        return fields, None

    def _begin(self, document: Document) -> None:
        document.status = "pending"
        document.bills += self.switches.quota > 0
        if self.switches.render_seconds:
            threading.Timer(self.switches.render_seconds, self.finish, [document]).start()
        elif self.switches.webhook_is_early:
            self.finish(document)
        else:
            threading.Timer(0.005, self.finish, [document]).start()

    def finish(self, document: Document) -> None:
        with self.lock:
            if self.failing or self.switches.quota <= 0:
                document.status = "failure"
                document.failure = self.failing.popleft() if self.failing else "Document generation failed"
            else:
                self.switches.quota -= 1
                document.status, document.file = "success", pdf(_text_of(document.fields))
        for _ in range(self.switches.webhook_times if self.switches.webhook_url else 0):
            self.tell({"document": self._card(document)})

    # --- cards and files ---

    def card(self, name: str) -> Reply:
        document = self.documents.get(name)
        if document is None:
            return said(404, {"errors": [{"status": "404", "title": "Not found"}]})
        return said(200, {"document_card": self._card(document)})

    def _card(self, document: Document) -> dict[str, Any]:
        document.cards += 1
        has_link = document.status == "success" and (document.file is not None or self.switches.deleted_shows_link)
        if self.switches.link_is_late and document.cards < 2:
            has_link = False
        meta: Any = document.meta
        return {
            "id": document.id,
            "status": document.status,
            "document_template_id": document.fields.get("document_template_id"),
            "meta": json.dumps(meta) if self.switches.meta_is_text else meta,
            "filename": document.meta.get("_filename", "document.pdf") if document.status == "success" else None,
            "download_url": self._link(document) if has_link else None,
            "preview_url": f"{self.url}/preview/{document.id}",
            "failure_cause": document.failure or None,
            "created_at": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(document.made_at)),
        }

    def _whole(self, document: Document) -> dict[str, Any]:
        return {**self._card(document), "payload": document.fields.get("payload"), "checksum": None}

    def _link(self, document: Document) -> str:
        ends = int(1000 * (time.time() + self.switches.link_seconds))
        return f"{self.url}/s3/{document.id}.pdf?X-Amz-Expires={ends}&X-Amz-Signature={_signed(document.id, ends)}"

    def file(self, name: str, query: dict[str, str], *, with_key: bool) -> Reply:
        """Object storage: a signed address, and nothing beside it."""
        self.keys_at_files += with_key
        document, ends = self.documents.get(name.removesuffix(".pdf")), int(query.get("X-Amz-Expires", 0))
        if with_key:
            return Reply(400, b"<Error><Code>InvalidArgument</Code></Error>", XML)
        if document is None or query.get("X-Amz-Signature") != _signed(document.id, ends) or 1000 * time.time() > ends:
            return Reply(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", XML)
        if document.file is None:
            return Reply(404, b"<Error><Code>NoSuchKey</Code></Error>", XML)
        return Reply(200, document.file, PDF)

    def delete(self, name: str) -> Reply:
        document = self.documents.get(name)
        if document is None:
            return said(404, {"error": "Document not found"})
        with self.lock:
            document.file, document.fields = None, {**document.fields, "payload": None, "meta": {}}
            if self.switches.delete_forgets:
                del self.documents[name]
        return Reply(204)

    def user(self) -> Reply:
        user = {"id": "u-1", "email": "owner@example.com", "auth_token": "s3cretAuthT0ken", "current_plan": "premium"}
        return said(200, {"current_user": {**user, "available_documents": self.switches.quota}})

    # --- webhooks ---

    def tell(self, value: Any) -> None:
        """Deliver one event, with a signature beside the right one, as while a secret is rotated."""
        body = json.dumps(value).encode()
        name = "msg_" + hashlib.sha256(body).hexdigest()[:20]
        headers = {"Content-Type": JSON, **signed_headers(self.switches.webhook_secret, name, time.time(), body)}
        request = urllib.request.Request(self.switches.webhook_url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                self.delivered.append(answer.status)
        except urllib.error.HTTPError as error:
            self.delivered.append(error.code)
        except OSError:
            self.delivered.append(0)


def signed_headers(secret: str, name: str, at: float, body: bytes) -> dict[str, str]:
    """As Svix signs; a signature of another version and one under a secret of before stand beside the right one."""
    message = f"{name}.{int(at)}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    right, old = (base64.b64encode(hmac.new(each, message, hashlib.sha256).digest()).decode() for each in (key, b"old"))
    return {"svix-id": name, "svix-timestamp": str(int(at)), "svix-signature": f"v1,{old} v1a,{old} v1,{right}"}


def _signed(name: str, ends: int) -> str:
    return hashlib.sha256(f"storage {name} {ends}".encode()).hexdigest()


def _text_of(fields: dict[str, Any]) -> str:
    payload = fields.get("payload")
    payload = json.loads(payload) if isinstance(payload, str) else payload or {}
    shown = payload.get("html") if fields["document_template_id"] == WHOLE_HTML else json.dumps(payload)
    return " ".join(html.unescape(re.sub(r"<(title|style)\b.*?</\1>|<[^>]*>", " ", str(shown))).split())


def pdf(text: str) -> bytes:
    """One page with the beginning of `text`."""
    shown = re.sub(rb"([\\()])", rb"\\\1", text[:90].encode("latin-1", "replace"))
    content = b"BT /F1 12 Tf 40 780 Td (" + shown + b") Tj ET"
    fonts = b"/Resources << /Font << /F1 5 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R %s >>" % fonts,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, table = b"%PDF-1.4\n", b"0000000000 65535 f \n"
    for number, each in enumerate(objects, start=1):
        table += b"%010d 00000 n \n" % len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    size = len(objects) + 1
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(out))
    return out + b"xref\n0 %d\n" % size + table + end
