"""Every model, by one import path: `from batches.models import Job`. Rows only: no logic in `save()`, no signals."""

from __future__ import annotations

from batches.models.access import ApiToken
from batches.models.accounts import (
    ACCOUNT_SECRETS,
    AccountHealth,
    HoldNote,
    HoldReason,
    Lane,
    LearnedDeadline,
    PacingLane,
    ProviderAccount,
    ProviderKind,
)
from batches.models.batches import Batch, BatchItem, ConflictPolicy
from batches.models.documents import Artifact, ArtifactNotice, Document, DocumentNote, DocumentVersion, SourceKind
from batches.models.drafts import (
    SAMPLE_MOST,
    UPLOAD_IS_UNNEEDED,
    WORKING_STATES,
    ColumnMapping,
    Draft,
    DraftState,
    TakeRows,
)
from batches.models.durations import Duration
from batches.models.evidence import (
    Alert,
    AlertKind,
    AuditEntry,
    WebhookEvent,
    WebhookOutcome,
    WebhookRefusal,
)
from batches.models.exports import (
    EXPORTS_AT_WORK,
    KINDS_WITH_CONTENT,
    Export,
    ExportKind,
    ExportPart,
    ExportState,
)
from batches.models.fields import EncryptedTextField, UnreadableSecret
from batches.models.jobs import (
    ACTIVE_STATES,
    FAILED_STATES,
    IN_FLIGHT_STATES,
    MAYBE_THERE,
    NOTHING_THERE,
    OUTCOME_STATES,
    PROVEN_UNBILLED,
    UNSAVED_STATES,
    Exchange,
    ExchangeKind,
    FailureClass,
    Job,
    JobEvent,
    JobState,
    Submission,
    SubmissionOutcome,
)
from batches.models.notices import Notice, NoticeEvent, NoticeWatch
from batches.models.objects import FindingKind, StoreFinding, StoreSweep, SweepKind
from batches.models.pumps import PumpSlot, SweepRun
from batches.models.repairs import BulkAction, BulkActionItem, ItemResult, Verb
from batches.models.savedviews import SavedView, ViewPage
from batches.models.settled import CauseCount, SettledCounts
from batches.models.templates import Template, TemplateVersion
from batches.models.workspaces import Membership, Role, Workspace

__all__ = [
    "ACCOUNT_SECRETS",
    "ACTIVE_STATES",
    "EXPORTS_AT_WORK",
    "FAILED_STATES",
    "IN_FLIGHT_STATES",
    "KINDS_WITH_CONTENT",
    "MAYBE_THERE",
    "NOTHING_THERE",
    "OUTCOME_STATES",
    "PROVEN_UNBILLED",
    "SAMPLE_MOST",
    "UNSAVED_STATES",
    "UPLOAD_IS_UNNEEDED",
    "WORKING_STATES",
    "AccountHealth",
    "Alert",
    "AlertKind",
    "ApiToken",
    "Artifact",
    "ArtifactNotice",
    "AuditEntry",
    "Batch",
    "BatchItem",
    "BulkAction",
    "BulkActionItem",
    "CauseCount",
    "ColumnMapping",
    "ConflictPolicy",
    "Document",
    "DocumentNote",
    "DocumentVersion",
    "Draft",
    "DraftState",
    "Duration",
    "EncryptedTextField",
    "Exchange",
    "ExchangeKind",
    "Export",
    "ExportKind",
    "ExportPart",
    "ExportState",
    "FailureClass",
    "FindingKind",
    "HoldNote",
    "HoldReason",
    "ItemResult",
    "Job",
    "JobEvent",
    "JobState",
    "Lane",
    "LearnedDeadline",
    "Membership",
    "Notice",
    "NoticeEvent",
    "NoticeWatch",
    "PacingLane",
    "ProviderAccount",
    "ProviderKind",
    "PumpSlot",
    "Role",
    "SavedView",
    "SettledCounts",
    "SourceKind",
    "StoreFinding",
    "StoreSweep",
    "Submission",
    "SubmissionOutcome",
    "SweepKind",
    "SweepRun",
    "TakeRows",
    "Template",
    "TemplateVersion",
    "UnreadableSecret",
    "Verb",
    "ViewPage",
    "WebhookEvent",
    "WebhookOutcome",
    "WebhookRefusal",
    "Workspace",
]
