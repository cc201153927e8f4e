"""Turns an uploaded file into checked rows and a plan. Reads, checks and plans; never stores or sends.

See README.md in this folder for the rules. Imports nothing else of `batches` but `cells.py`.
"""

from __future__ import annotations

from batches.manifests.limits import Limits
from batches.manifests.manifest import Manifest, ManifestRow, SourceKind, fingerprint
from batches.manifests.planning import (
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
from batches.manifests.problems import Code, ManifestRefused, Place, Problem
from batches.manifests.reading import read
from batches.manifests.source import ManifestSource, from_path, from_upload

__all__ = [
    "Action",
    "Code",
    "ExistingDocument",
    "ExistingVersion",
    "Limits",
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
    "from_upload",
    "plan",
    "read",
]
