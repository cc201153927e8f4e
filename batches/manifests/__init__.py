"""Turns an uploaded file into checked rows and a plan. Reads, checks and plans; never stores or sends.

See README.md in this folder for the rules. Imports nothing else of `batches` but `cells.py`.
"""

from __future__ import annotations

from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.limits import Limits
from batches.manifests.looking import Look, look
from batches.manifests.manifest import Manifest, ManifestRow, SourceKind, fingerprint
from batches.manifests.planning import (
    SENDING_ACTIONS,
    Action,
    ExistingDocument,
    ExistingVersion,
    Notice,
    NoticeKind,
    OnConflict,
    Plan,
    PlannedRow,
    plan,
)
from batches.manifests.problems import Code, LeftOut, ManifestRefused, Place, Problem
from batches.manifests.reading import read
from batches.manifests.source import ManifestSource, from_path, from_text, from_upload

__all__ = [
    "NO_CHOICES",
    "SENDING_ACTIONS",
    "Action",
    "Choices",
    "Code",
    "ExistingDocument",
    "ExistingVersion",
    "LeftOut",
    "Limits",
    "Look",
    "Manifest",
    "ManifestRefused",
    "ManifestRow",
    "ManifestSource",
    "Notice",
    "NoticeKind",
    "OnConflict",
    "Place",
    "Plan",
    "PlannedRow",
    "Problem",
    "SourceKind",
    "fingerprint",
    "from_path",
    "from_text",
    "from_upload",
    "look",
    "plan",
    "read",
]
