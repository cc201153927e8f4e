"""Every address × role × method against one table, asked as a page and as an htmx fragment. An address without a row
fails, as does a row without an address.

What is refused changes nothing. What is shown to a role without the right to see content holds none of it: the rows of
the walk carry `MARKS` wherever content, a provider's words, its job ids or its links lie.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, reverse

from batches.engine import accounts
from batches.models import (
    Batch,
    BulkAction,
    Document,
    Draft,
    Job,
    ProviderAccount,
    Role,
    SavedView,
    Template,
    Workspace,
)
from batches.urls import pages
from tests.factories import make_account, make_event, make_ready_export, make_template_version
from tests.web.conftest import make_member, signed_in
from tests.web.marked import MARKS, marked_jobs

ROLES = ("anonymous", "outsider", "viewer", "operator", "manager", "admin")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: What htmx sends along; its fragments are asked for by no other methods.
FRAGMENT = {"HX-Request": "true"}
ASKED = (*((method, "page") for method in METHODS), ("GET", "fragment"), ("POST", "fragment"))
MEMBERS = frozenset({"viewer", "operator", "manager", "admin"})
WRITERS = frozenset({"operator", "manager", "admin"})
MANAGERS = frozenset({"manager", "admin"})
EVERYBODY = frozenset(ROLES)
SEES_NO_CONTENT = frozenset({"anonymous", "outsider", "viewer"})

SIGN_IN, NOT_FOUND, FORBIDDEN, NO_SUCH_METHOD, TAKEN = "sign in", "404", "403", "405", "taken"


@dataclass(frozen=True)
class Row:
    """`reads` may GET it, `acts` may POST to it; other members are refused with 403.

    Without `is_shared` it belongs to a workspace, and for an outsider it does not exist. `arguments` and `sent` are
    names of `things`. `is_hidden_from`: members for whom it does not exist either. `also` are methods that act as POST.
    """

    reads: Collection[str] = ()
    acts: Collection[str] = ()
    arguments: tuple[str, ...] = ()
    sent: Mapping[str, str] | None = None
    is_shared: bool = False
    is_open: bool = False
    is_hidden_from: Collection[str] = ()
    also: Collection[str] = ()

    def expected(self, role: str, method: str) -> str:
        allowed = self.reads if method in ("GET", "HEAD") else self.acts if method in ("POST", *self.also) else ()
        if self.is_open:
            return TAKEN if allowed else NO_SUCH_METHOD
        if role == "anonymous":
            return SIGN_IN
        if not allowed:
            return NO_SUCH_METHOD
        if role in allowed:
            return TAKEN
        is_hidden = role in self.is_hidden_from or (role == "outsider" and not self.is_shared)
        return NOT_FOUND if is_hidden else FORBIDDEN


OF_BATCH, OF_DOCUMENT, OF_ACTION, OF_DRAFT = ("batch",), ("document",), ("batch", "action"), ("draft",)
OF_TEMPLATE, OF_EXPORT, OF_ACCOUNT = ("template",), ("export",), ("own_account",)
SIGNED_IN = MEMBERS | {"outsider"}
#: Every address of `batches.urls` by its name. A new address needs a row; think before you write one.
TABLE: Mapping[str, Row] = {
    "home": Row(reads=SIGNED_IN, is_shared=True),
    "home_live": Row(reads=SIGNED_IN, is_shared=True),
    # An outsider is an admin elsewhere, and tries it there.
    "demo_start": Row(acts=WRITERS | {"outsider"}, is_shared=True),
    "sample_manifest": Row(reads=SIGNED_IN, is_shared=True),
    "failed_list": Row(reads=SIGNED_IN, is_shared=True),
    "failed_live": Row(reads=SIGNED_IN, is_shared=True),
    # What an outsider may not see is nothing that matches: it leads back to their list.
    "failed_plan": Row(acts=WRITERS | {"outsider"}, is_shared=True, sent={"verb": "retry", "all": "1"}),
    "failed_csv": Row(reads=WRITERS | {"outsider"}, is_shared=True),
    "across_list": Row(reads=SIGNED_IN, is_shared=True),
    "across_list_live": Row(reads=SIGNED_IN, is_shared=True),
    "across_detail": Row(reads=MEMBERS, arguments=("across",)),
    "across_live": Row(reads=MEMBERS, arguments=("across",)),
    "across_confirm": Row(acts=WRITERS, arguments=("across",)),
    "across_abort": Row(acts=WRITERS, arguments=("across",)),
    "across_items": Row(reads=WRITERS, arguments=("across",)),
    "view_save": Row(acts=SIGNED_IN, arguments=("failed",), is_shared=True),
    # Everybody's own: it is the operator's, and for nobody else there.
    "view_change": Row(acts={"operator"}, arguments=("failed", "view"), is_hidden_from=MEMBERS - {"operator"}),
    "batch_list": Row(reads=SIGNED_IN, is_shared=True),
    "batch_list_live": Row(reads=SIGNED_IN, is_shared=True),
    # An outsider is an admin elsewhere, and may start batches there.
    "batch_new": Row(reads=WRITERS | {"outsider"}, acts=WRITERS | {"outsider"}, is_shared=True),
    "draft_list": Row(reads=SIGNED_IN, is_shared=True),
    # Whoever may start batches there may look; only the uploader, an operator here, may change, and a viewer sees none.
    "draft_detail": Row(reads=WRITERS, arguments=OF_DRAFT, is_hidden_from=("viewer",)),
    "draft_row": Row(reads=WRITERS, arguments=("draft", "0"), is_hidden_from=("viewer",)),
    "draft_live": Row(reads=WRITERS, arguments=OF_DRAFT, is_hidden_from=("viewer",)),
    "draft_choose": Row(acts={"operator"}, arguments=OF_DRAFT, is_hidden_from=("viewer",)),
    "draft_check": Row(acts={"operator"}, arguments=OF_DRAFT, is_hidden_from=("viewer",)),
    "draft_start": Row(acts={"operator"}, arguments=OF_DRAFT, is_hidden_from=("viewer",)),
    "draft_discard": Row(reads={"operator"}, acts={"operator"}, arguments=OF_DRAFT, is_hidden_from=("viewer",)),
    "batch_detail": Row(reads=MEMBERS, arguments=OF_BATCH),
    "batch_running": Row(reads=WRITERS, acts=WRITERS, arguments=OF_BATCH),
    "batch_release": Row(acts=WRITERS, arguments=OF_BATCH),
    "batch_correct": Row(reads=MANAGERS, acts=MANAGERS, arguments=OF_BATCH),
    "batch_left_out": Row(reads=WRITERS, arguments=OF_BATCH),
    "batch_live": Row(reads=MEMBERS, arguments=OF_BATCH),
    "batch_download": Row(reads=WRITERS, acts=WRITERS, arguments=OF_BATCH, sent={"kind": "csv"}),
    "export_list": Row(reads=SIGNED_IN, is_shared=True),
    "export_detail": Row(reads=WRITERS, arguments=OF_EXPORT),
    "export_live": Row(reads=WRITERS, arguments=OF_EXPORT),
    "export_file": Row(reads=WRITERS, arguments=("export", "1")),
    "export_again": Row(acts=WRITERS, arguments=OF_EXPORT),
    "export_cancel": Row(acts=WRITERS, arguments=OF_EXPORT),
    "document_thumbnail": Row(reads=WRITERS, arguments=("document", "1")),
    "batch_archive": Row(reads=WRITERS, arguments=OF_BATCH),
    "batch_results": Row(reads=WRITERS, arguments=("batch", "csv")),
    "batch_failed": Row(reads=WRITERS, arguments=OF_BATCH),
    "batch_manifest": Row(reads=WRITERS, arguments=OF_BATCH),
    "action_list": Row(reads=MEMBERS, arguments=OF_BATCH),
    "action_plan": Row(acts=WRITERS, arguments=OF_BATCH, sent={"verb": "retry", "state": "failed"}),
    "action_detail": Row(reads=MEMBERS, arguments=OF_ACTION),
    "action_live": Row(reads=MEMBERS, arguments=OF_ACTION),
    "action_confirm": Row(acts=WRITERS, arguments=OF_ACTION),
    "action_abort": Row(acts=WRITERS, arguments=OF_ACTION),
    "action_items": Row(reads=WRITERS, arguments=OF_ACTION),
    "document_detail": Row(reads=MEMBERS, arguments=OF_DOCUMENT),
    "document_live": Row(reads=MEMBERS, arguments=OF_DOCUMENT),
    "document_reveal": Row(acts=WRITERS, arguments=OF_DOCUMENT, sent={"submission": "submission"}),
    "document_reconcile": Row(reads=WRITERS, acts=WRITERS, arguments=OF_DOCUMENT),
    "document_verb": Row(acts=WRITERS, arguments=("document", "retry")),
    "document_note": Row(acts=WRITERS, arguments=OF_DOCUMENT, sent={"text": "states"}),
    "document_pdf": Row(reads=WRITERS, arguments=("document", "1")),
    "document_regenerate": Row(reads=MANAGERS, acts=MANAGERS, arguments=OF_DOCUMENT),
    "document_final": Row(acts=MANAGERS, arguments=OF_DOCUMENT),
    "document_diff": Row(reads=WRITERS, arguments=("document", "1", "1")),
    "template_list": Row(reads=SIGNED_IN, is_shared=True),
    # An outsider is an admin elsewhere, and may upload templates there.
    "template_new": Row(reads=MANAGERS | {"outsider"}, acts=MANAGERS | {"outsider"}, is_shared=True),
    "template_detail": Row(reads=MEMBERS, acts=MANAGERS, arguments=OF_TEMPLATE),
    "template_sample": Row(reads=MEMBERS, arguments=OF_TEMPLATE),
    "template_version": Row(reads=MEMBERS, arguments=("template", "1")),
    "template_preview": Row(reads=WRITERS, arguments=("template", "1")),
    "template_publish": Row(reads=MANAGERS, acts=MANAGERS, arguments=("template", "1")),
    # Everybody's own list: nobody reads somebody else's.
    "notice_list": Row(reads=SIGNED_IN, is_shared=True),
    "notices_seen": Row(acts=SIGNED_IN, sent={"up_to": "1"}, is_shared=True),
    # An outsider is an admin elsewhere.
    "retention_list": Row(reads=SIGNED_IN, is_shared=True),
    "retention_detail": Row(reads={"admin"}, acts={"admin"}, arguments=("workspace",)),
    "document_deletions": Row(reads=MEMBERS, arguments=OF_DOCUMENT),
    "document_deletions_json": Row(reads=MEMBERS, arguments=OF_DOCUMENT),
    "rights_list": Row(reads=SIGNED_IN, is_shared=True),
    # An outsider is an admin elsewhere, and reads the part of that workspace.
    "audit_list": Row(reads=MANAGERS | {"outsider"}, is_shared=True),
    "audit_csv": Row(reads=MANAGERS | {"outsider"}, is_shared=True),
    "account_list": Row(reads=SIGNED_IN, is_shared=True),
    "account_detail": Row(reads=MEMBERS, arguments=OF_ACCOUNT),
    "account_live": Row(reads=MEMBERS, arguments=OF_ACCOUNT),
    # An outsider is an admin elsewhere, and makes one there.
    "account_new": Row(reads=MANAGERS | {"outsider"}, is_shared=True),
    "account_add": Row(
        reads=MANAGERS | {"outsider"}, acts=MANAGERS | {"outsider"}, arguments=("gotenberg",), is_shared=True
    ),
    "account_settings": Row(reads=MANAGERS, acts=MANAGERS, arguments=OF_ACCOUNT),
    "account_limits": Row(reads=MANAGERS, acts=MANAGERS, arguments=OF_ACCOUNT),
    "account_test": Row(acts=MANAGERS, arguments=OF_ACCOUNT),
    "account_hold": Row(acts=MANAGERS, arguments=OF_ACCOUNT),
    "account_resume": Row(acts=MANAGERS, arguments=OF_ACCOUNT),
    # An outsider is an admin elsewhere, and reads what came to that workspace's accounts.
    "inbox": Row(reads=MANAGERS | {"outsider"}, is_shared=True),
    "inbox_event": Row(reads=MANAGERS, arguments=("event",)),
    "inbox_reveal": Row(acts=MANAGERS, arguments=("event",)),
    "inbox_replay": Row(reads=MANAGERS, acts=MANAGERS, arguments=OF_ACCOUNT),
    "vitals": Row(reads=WRITERS | {"outsider"}, is_shared=True),
    "vitals_live": Row(reads=WRITERS | {"outsider"}, is_shared=True),
    "help_index": Row(reads=SIGNED_IN, is_shared=True),
    "help_topic": Row(reads=SIGNED_IN, arguments=("states",), is_shared=True),
    "webhook": Row(acts=EVERYBODY, arguments=("account",), is_open=True),
    "callback": Row(acts=EVERYBODY, arguments=("account", "token", "key"), is_open=True, also=("PUT", "PATCH")),
    "healthz": Row(reads=EVERYBODY, is_open=True),
    "readyz": Row(reads=EVERYBODY, is_open=True),
}


@pytest.fixture
def things(batch: Batch, operator: Client, artifact_folder: Any, settings: Any) -> dict[str, str]:
    """What the arguments of addresses stand for: a batch with one saved document and one that failed."""
    settings.PUBLIC_URL = "https://batches.example.com"
    job, _failed = marked_jobs(batch)
    planned = operator.post(
        reverse("batches:action_plan", args=[batch.public_id]), {"verb": "retry", "state": "failed"}
    )
    assert planned.status_code == 302
    action = BulkAction.objects.get()
    assert operator.post(reverse("batches:failed_plan"), {"verb": "retry", "all": "1"}).status_code == 302
    across = BulkAction.objects.get(batch=None)
    view = SavedView.objects.create(user=User.objects.get(username="m.okoye"), page="failed", name="Mine", query="a=1")
    make_account(slug="sandbox")
    upload = {"pasted": '[{"id": "A-1", "html": "<p>1</p>"}]', "workspace": batch.workspace.slug}
    assert operator.post(reverse("batches:batch_new"), upload | {"account": batch.account.slug}).status_code == 302
    make_template_version(workspace=batch.workspace, source="{{ name }}")
    export = make_ready_export(batch).public_id
    own = make_account(slug="own", workspace=batch.workspace)
    return {
        "own_account": own.slug,
        "event": str(make_event(account=own, provider_job_id="pdf_1").pk),
        "template": "invoice",
        "draft": Draft.objects.get().public_id,
        "workspace": batch.workspace.slug,
        "batch": batch.public_id,
        "action": action.public_id,
        "across": across.public_id,
        "view": str(view.pk),
        "retry": "retry",
        "failed": "failed",
        "document": job.version.document.public_id,
        "submission": str(job.submissions.get().pk),
        "account": batch.account.slug,
        "token": accounts.callback_url(batch.account).rpartition("/")[2],
        "key": job.submissions.get().idempotency_key,
        "csv": "csv",
        "states": "states",
        "gotenberg": "gotenberg",
        "export": export,
        "0": "0",
        "1": "1",
    }


@pytest.fixture
def clients(workspace: Workspace, outsider: Client, viewer: Client, operator: Client) -> dict[str, Client]:
    return {
        "anonymous": Client(),
        "outsider": outsider,
        "viewer": viewer,
        "operator": operator,
        "manager": signed_in(make_member(workspace, "h.brandt", Role.MANAGER)),
        "admin": signed_in(make_member(workspace, "r.ito", Role.ADMIN)),
    }


def everything() -> dict[str, Any]:
    """How many rows of each kind there are, and what of them a person can change."""
    counts = {model.__name__: model._default_manager.count() for model in apps.get_app_config("batches").get_models()}
    return counts | {
        "jobs": list(Job.objects.order_by("pk").values_list("pk", "state", "fencing_token", "due_at")),
        "batches": list(Batch.objects.order_by("pk").values_list("pk", "paused_at", "cancelled_at")),
        "documents": list(Document.objects.order_by("pk").values_list("pk", "current_version", "is_final")),
        "accounts": list(ProviderAccount.objects.order_by("pk").values()),
        "actions": list(BulkAction.objects.order_by("pk").values_list("pk", "confirmed_at", "aborted_at")),
        "drafts": list(Draft.objects.order_by("pk").values_list("pk", "state", "choices")),
        "templates": list(Template.objects.order_by("pk").values_list("pk", "published", "archived_at")),
    }


def outcome(answer: Any) -> str:
    if answer.status_code == 302 and answer["Location"].startswith("/sign-in/"):
        return SIGN_IN
    return {404: NOT_FOUND, 403: FORBIDDEN, 405: NO_SUCH_METHOD}.get(answer.status_code, TAKEN)


def test_every_address_has_a_row_and_every_row_an_address() -> None:
    assert {page.name for page in pages if isinstance(page, URLPattern)} == set(TABLE)
    assert all(isinstance(page, URLPattern) for page in pages)


#: Addresses that share what `things` made: each finds it as it was, since what one did is taken back. In the order of
#: the table, where what takes a file away comes last.
SHARES = [list(TABLE)[start::8] for start in range(8)]


@pytest.mark.parametrize("names", SHARES, ids=lambda names: names[0])
def test_each_role_gets_what_the_table_says(
    names: list[str], things: dict[str, str], clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The factory stores no manifest.
    monkeypatch.setattr("batches.views.downloads.opened", lambda key, byte_count: io.BytesIO(bytes(byte_count)))
    # Its PDFs are none that can be drawn.
    monkeypatch.setattr("batches.engine.thumbnails.draw", lambda key, store: b"PNG")
    for name in names:
        with transaction.atomic():
            walk(name, things, clients)
            transaction.set_rollback(True)


def walk(name: str, things: dict[str, str], clients: dict[str, Client]) -> None:
    row = TABLE[name]
    address = reverse(f"batches:{name}", args=[things[argument] for argument in row.arguments])
    sent = {field: things[thing] for field, thing in (row.sent or {}).items()}
    asked = [(role, *each) for role in ROLES for each in ASKED]
    expected = {each: row.expected(each[0], each[1]) for each in asked}
    found = {}
    before = everything()
    # What is taken comes last: until then nothing may change.
    for is_taken in (False, True):
        for role, method, way in (each for each in asked if (expected[each] == TAKEN) is is_taken):
            call = getattr(clients[role], method.lower())
            headers = FRAGMENT if way == "fragment" else {}
            answer = call(address, sent, headers=headers) if method == "POST" else call(address, headers=headers)
            told = outcome(answer)
            if (role, told) == ("anonymous", NO_SUCH_METHOD) and not row.is_open:
                told = SIGN_IN  # whichever of the two a view asks first
            found[role, method, way] = told
            if role in SEES_NO_CONTENT:
                text = b"".join(answer.streaming_content) if answer.streaming else answer.content
                assert [mark for mark in MARKS if mark.encode() in text] == [], (name, role, method, way)
        assert is_taken or everything() == before, name
    assert found == expected, name
