"""What stands behind signing in where passwords are switched off: rights and sessions of people, and no password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend


class RightsOnly(ModelBackend):
    """Django's backend but for passwords: none opens a session, on no page and not in the admin."""

    def authenticate(self, request: Any, username: Any = None, password: Any = None, **given: Any) -> None:
        return None
