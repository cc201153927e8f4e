"""API tokens: making, proving and ending them. The secret is shown once; only its SHA-256 is stored."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q

from batches import selectors
from batches.models import ApiToken, Workspace

PREFIX = "rpb_"
SHOWN_CHARACTERS = 10
#: `last_used_at` is written at most this often, so that reading through the API stays a read.
USE_NOTED_EVERY = timedelta(minutes=1)


def issue(
    user: User, workspace: Workspace, *, name: str, now: datetime, lifetime: timedelta | None
) -> tuple[ApiToken, str]:
    """A new token of `user` for `workspace` and its secret, 256 random bits; nobody can read the secret again."""
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        workspace=workspace,
        user=user,
        name=name[:100],
        prefix=secret[:SHOWN_CHARACTERS],
        secret_sha256=_digest(secret),
        created_at=now,
        expires_at=now + lifetime if lifetime else None,
    )
    return token, secret


def proven(secret: str, *, now: datetime) -> ApiToken | None:
    """The living token with this secret, whose person may still see its workspace; else None."""
    if not secret.startswith(PREFIX) or len(secret) > 100:
        return None
    token = (
        ApiToken.objects.select_related("user", "workspace")
        .filter(Q(expires_at=None) | Q(expires_at__gt=now), secret_sha256=_digest(secret), revoked_at=None)
        .first()
    )
    if token is None or not selectors.visible_workspaces(token.user).filter(pk=token.workspace_id).exists():
        return None
    if token.last_used_at is None or now - token.last_used_at >= USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def revoke(token: ApiToken, *, now: datetime) -> bool:
    """End a token for good; false when it was ended before."""
    return bool(ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now))


def _digest(secret: str) -> str:
    # The secret is 256 random bits, so a plain digest is enough: there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
