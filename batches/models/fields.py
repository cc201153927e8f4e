"""A text column that is encrypted at rest with keys of its own, so that rotating the web secret touches nothing."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models


class UnreadableSecret(Exception):
    """A stored secret that none of FIELD_KEYS opens."""


@cache
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


#: Before a token in what `dumpdata` writes, so that `loaddata` knows it from a secret that somebody types.
DUMPED = "fernet:"


#: As much of a token as says when it was made: its version and a time, in base64, which no key protects.
HEAD_LENGTH = 12


def stored_at(head: str) -> datetime | None:
    """When a secret was stored, by the first `HEAD_LENGTH` characters of its token; None where that is no token's."""
    try:
        read = base64.urlsafe_b64decode(head[:HEAD_LENGTH])
        return datetime.fromtimestamp(int.from_bytes(read[1:9]), UTC) if read[0] == 0x80 else None
    except (ValueError, IndexError, OverflowError, OSError):
        return None


class EncryptedTextField(models.TextField):
    """Text, stored as a Fernet token under the first of `settings.FIELD_KEYS`, readable under any of them.

    The empty string is stored as it is. Reading raises `UnreadableSecret` when no key fits. A dump holds the token, as
    the row does, so it is no more worth than the database, and is loaded under the same keys alone.
    """

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return f"{DUMPED}{self.get_prep_value(value)}" if value else str(value)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(DUMPED):
            return self._decrypted(value.removeprefix(DUMPED))
        return super().to_python(value)

    def get_prep_value(self, value: Any) -> Any:
        if value in (None, ""):
            return value
        return _fernet(tuple(settings.FIELD_KEYS)).encrypt(str(value).encode()).decode()

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if value in (None, ""):
            return value
        return self._decrypted(value)

    def _decrypted(self, value: str) -> str:
        try:
            return _fernet(tuple(settings.FIELD_KEYS)).decrypt(value.encode()).decode()
        except InvalidToken as error:
            raise UnreadableSecret(
                f"{self.model.__name__}.{self.name} cannot be decrypted with any key of FIELD_KEYS; "
                "put the key that it was stored with back into FIELD_KEYS."
            ) from error
