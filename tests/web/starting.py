"""The Start button of a draft's page: where its form goes, and what it carries."""

from __future__ import annotations

import html
import re
from typing import Any

from django.test import Client


def start_form(page: Any) -> tuple[str, dict[str, str]]:
    """The address of the form and its hidden fields, as the page has them."""
    found = re.search(r'<form method="post" action="([^"]*/start/)".*?</form>', page.text, re.S)
    assert found is not None, page.text
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', found[0])
    return found[1], {name: html.unescape(value) for name, value in fields if name != "csrfmiddlewaretoken"}


def start(client: Client, page: Any, **fields: str) -> Any:
    """Press it."""
    address, hidden = start_form(page)
    return client.post(address, hidden | fields)
