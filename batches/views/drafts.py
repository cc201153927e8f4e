"""A checked upload between check and start: what the start form carries, signed, so that nobody can change it."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import timedelta

from django.core import signing

SALT = "batches.draft"
LIFETIME = timedelta(days=1)


class DraftRefused(Exception):
    """The form was changed, or is too old; `args[0]` are words for people."""


@dataclass(frozen=True)
class Draft:
    """What was checked. `token` names the stored upload, and as the creation key makes a second start harmless.

    `renders` is the number of documents that the person was told would be sent.
    """

    token: str
    user_id: int
    workspace: str
    account: str
    on_conflict: str
    filename: str
    name: str
    upload_sha256: str
    renders: int

    def signed(self) -> str:
        return signing.dumps(asdict(self), salt=SALT, compress=True)


def new_token() -> str:
    return secrets.token_urlsafe(24)


def read(signed: str, *, user_id: int) -> Draft:
    """The draft that `signed` holds. Raises `DraftRefused` where it is not this user's, too old, or not ours."""
    try:
        draft = Draft(**signing.loads(signed, salt=SALT, max_age=LIFETIME))
    except signing.SignatureExpired as error:
        raise DraftRefused(
            "This check is older than a day. Choose the file again, so that it is checked anew."
        ) from error
    except (signing.BadSignature, TypeError) as error:
        raise DraftRefused("The form did not arrive whole. Choose the file again.") from error
    if draft.user_id != user_id:
        raise DraftRefused("This check was made by somebody else. Choose the file again.")
    return draft
