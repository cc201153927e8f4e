"""Idempotency keys and public ids."""

from __future__ import annotations

import base64
import hashlib
import secrets


def idempotency_key(
    *, workspace_id: int, account_id: int, route: str, body_sha256: str, document_id: int, version: int, sequence: int
) -> str:
    """The key of one logical submission: 64 hex digits, no personal data, never from a business id alone.

    Every part is length-prefixed, so that no two different lists of parts can spell the same text.
    """
    digest = hashlib.sha256()
    for part in (workspace_id, account_id, route, body_sha256, document_id, version, sequence):
        encoded = str(part).encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def kept(key: str) -> str:
    """What a row keeps of the key that makes a second start, or a second replacement, harmless."""
    return hashlib.sha256(key.encode()).hexdigest()


def public_id(prefix: str) -> str:
    """A random id for addresses, such as bat_7q2m…: 100 bits, so that none can be guessed.

    Base 32 leaves out the digits 0, 1 and 8, which people mix up with letters.
    """
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(13)).decode().lower()[:20]}"
