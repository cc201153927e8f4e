"""A database that is away and a form that cannot be read are answered in words."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import OperationalError
from django.test import Client

from batches import selectors
from batches.models import AuditEntry, Batch, Role, Workspace
from tests.factories import make_saved_job
from tests.web.conftest import make_member, signed_in

TOKEN = "a" * 32


@pytest.mark.parametrize("charset", ["utf-16", "utf-7", "cp037", "latin-1"])
@pytest.mark.parametrize("path", ["/sign-in/", "/admin/login/", "/new/", "/drafts/dft_1/start/", "/sign-out/"])
def test_a_form_in_another_charset_is_refused_as_a_bad_request(db: None, path: str, charset: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = TOKEN
    content_type = f"application/x-www-form-urlencoded; charset={charset}"
    answer = client.post(path, b"username=x", content_type=content_type)
    assert answer.status_code == 400
    assert "cannot be read" in answer.content.decode()


def test_a_form_in_utf8_is_read(db: None) -> None:
    answer = Client().post("/sign-in/", b"username=x", content_type="application/x-www-form-urlencoded; charset=UTF-8")
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["regenerate/", "actions/dismiss/"])
def test_texts_that_are_too_long_for_a_form_are_refused_in_words(path: str, batch: Batch, workspace: Workspace) -> None:
    job = make_saved_job(batch=batch)
    manager = signed_in(make_member(workspace, "h.brandt", Role.MANAGER))
    address = f"/documents/{job.version.document.public_id}/{path}"
    long = {"reason": "r", "text": "z" * 3_000_000}
    answers = [manager.post(address, urlencode(long), content_type="application/x-www-form-urlencoded")]
    if path == "regenerate/":  # as its page sends it, beside a file
        answers.append(manager.post(address, long))
    for answer in answers:
        assert answer.status_code == 413
        assert "That text is too long" in answer.text
        assert "2.0\xa0MB" in answer.text
    assert not AuditEntry.objects.exists()


def test_a_busy_database_is_said_in_words_and_not_as_a_fault(operator: Client, monkeypatch: Any) -> None:
    def locked(*_: Any, **__: Any) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(selectors, "visible_batches", locked)
    answer = operator.get("/batches/")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "10"
    assert "Busy for a moment" in answer.content.decode()
