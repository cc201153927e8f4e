"""One process of the site with sign-in through an issuer switched on: asks and answers are lines of JSON.

Which apps there are is settled when settings load, so this cannot be a fixture of the test's own process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relaypdf_site.settings")
django.setup()

from django.conf import settings  # noqa: E402 - settings first
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402


def answer(clients: dict[str, Client], asked: dict[str, Any]) -> dict[str, Any]:
    match asked["do"]:
        case "get" | "post":
            client = clients.setdefault(asked["browser"], Client(HTTP_HOST="localhost"))
            found = getattr(client, asked["do"])(asked["path"], asked.get("form", {}))
            text = "" if found.streaming else found.content.decode()
            cookie = client.cookies.get(settings.SESSION_COOKIE_NAME)
            key = cookie.value if cookie else ""
            return {"status": found.status_code, "to": found.headers.get("Location", ""), "text": text, "session": key}
        case "people":
            fields = ("username", "email", "is_active", "is_staff", "is_superuser")
            return {
                "people": list(User.objects.order_by("pk").values(*fields)),
                "members": list(User.objects.filter(memberships__isnull=False).values_list("username", flat=True)),
            }
        case "make":
            User.objects.create_user(asked["name"], email=asked["email"], password=asked["password"])
        case "deactivate":
            User.objects.filter(username=asked["name"]).update(is_active=False)
    return {}


def _tell(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    call_command("migrate", verbosity=0)
    clients: dict[str, Client] = {}
    _tell({"ready": True})
    for line in sys.stdin:
        _tell(answer(clients, json.loads(line)))


if __name__ == "__main__":
    main()
