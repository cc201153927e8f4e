"""Storage keys: pure functions of what they name, so that a step that runs twice writes the same object.

A key holds a workspace's slug, digests and numbers, never a business id (which may be a person's name or address), and
only characters that no file system, URL or signature treats specially.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_SLUG = re.compile(r"[A-Za-z0-9_-]{1,60}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,100}")
MAX_KEY_LENGTH = 300
#: The folder of what came to us. Its objects have one folder more than a document's, so no workspace's can be meant.
RECEIVED = "_received"
#: As many characters as a row has for a name.
SHOWN_LENGTH = 400


def checked_key(key: str) -> str:
    """`key` itself. Raises `ValueError` for one that could leave its folder or mean two things."""
    if not is_key(key):
        raise ValueError(f"not a storage key: {key[:80]!r}")
    return key


def is_key(key: str) -> bool:
    """Whether a row may name it: all else in a store was put there by somebody else."""
    return len(key) <= MAX_KEY_LENGTH and _KEY.fullmatch(key) is not None


def shown(name: str) -> str:
    """A name that somebody else gave, on one line, fit for a page, a terminal and a column; a key stays as it is.

    A file's name may hold line breaks, escape sequences and bytes that are no text at all. One that is cut ends in "…".
    """
    plain = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in name)
    return plain if len(plain) <= SHOWN_LENGTH else f"{plain[: SHOWN_LENGTH - 1]}…"


def artifact_key(workspace_slug: str, business_id: str, number: int) -> str:
    """The stored PDF of version `number` of a document."""
    return f"{_document(workspace_slug, business_id)}/v{_positive(number)}.pdf"


def named_by_digest(key: str, sha256: str) -> str:
    """Where a PDF goes whose own `key` holds another one already: beside it, named by its content.

    Only the bytes of that digest are ever meant to lie there, so that no writer, however late, can change what a row
    says about it.
    """
    return checked_key(f"{key.removesuffix('.pdf')}-{_digest(sha256)[:32]}.pdf")


def aside_key(key: str, found_at: str) -> str:
    """Where the sweep keeps a damaged object: beside its place, with the instant in digits, for whoever looks at it."""
    return checked_key(f"{key}.damaged-{found_at}")


def input_key(workspace_slug: str, business_id: str, sha256: str, deletions: int = 0) -> str:
    """The exact input of a document's version, where it is too large for its row.

    Named by its digest, not by the version's number: of two uploads that race for one number, the loser must not
    have written over the winner's input. `deletions`: how many versions with this input were deleted before, so that
    no deletion, however late, takes away what was put after it was requested.
    """
    again = f"-{_positive(deletions)}" if deletions else ""
    return f"{_document(workspace_slug, business_id)}/input-{_digest(sha256)}{again}"


def request_key(workspace_slug: str, business_id: str, sha256: str, number: int) -> str:
    """The exact request bytes of a submission, where they are too large for its row; named by their digest, and by the
    version's number, so that deleting those of one version leaves another's alone."""
    return f"{_document(workspace_slug, business_id)}/request-{_digest(sha256)}-v{_positive(number)}"


def manifest_key(workspace_slug: str, sha256: str) -> str:
    """An uploaded manifest, by the hex SHA-256 of its bytes."""
    return f"{_workspace(workspace_slug)}/manifests/{_digest(sha256)}"


def template_key(workspace_slug: str, sha256: str) -> str:
    """An uploaded template with its files, by the hex SHA-256 of its bytes."""
    return f"{_workspace(workspace_slug)}/templates/{_digest(sha256)}"


def upload_key(workspace_slug: str, token: str) -> str:
    """An upload that is being checked and is no batch yet, by a random token of its own."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("an upload is named by letters, digits, _ and -")
    return f"{_workspace(workspace_slug)}/uploads/{token}"


def export_key(workspace_slug: str, export_id: str, token: int, number: int, ending: str) -> str:
    """A file of an export, by the export's random id and the number of the turn that writes it: a worker that was
    thought dead never writes over what its successor made."""
    if not _TOKEN.fullmatch(export_id) or not re.fullmatch(r"[a-z0-9]{1,8}", ending):
        raise ValueError("an export is named by letters, digits, _ and -")
    return checked_key(
        f"{_workspace(workspace_slug)}/exports/{export_id}/{_positive(token)}-{_positive(number)}.{ending}"
    )


def received_key(account_slug: str, sha256: str, ending: str) -> str:
    """What a provider sent to us of one of its jobs, by the hex SHA-256 of the job's id.

    Beside the workspaces, since an account may serve several.
    """
    if not re.fullmatch(r"[a-z0-9]{1,8}", ending):
        raise ValueError("what was received ends in letters and digits")
    return checked_key(f"{RECEIVED}/{_workspace(account_slug)}/{_digest(sha256)}.{ending}")


def _document(workspace_slug: str, business_id: str) -> str:
    digest = hashlib.sha256(unicodedata.normalize("NFC", business_id).encode("utf-8")).hexdigest()
    return f"{_workspace(workspace_slug)}/{digest[:32]}"


def _workspace(slug: str) -> str:
    if not _SLUG.fullmatch(slug):
        raise ValueError(f"not a workspace slug: {slug[:80]!r}")
    return slug


def _digest(sha256: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError("named by the 64 hex digits of a SHA-256")
    return sha256


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError("versions and sequences count from 1")
    return number
