"""Documents and their versions: what is to become a PDF. Versions are immutable; a change is a new version."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.checks import known_values, one_unless, set_together
from batches.models.templates import TemplateVersion
from batches.models.workspaces import Workspace


class Document(models.Model):
    """One business id in one workspace. `business_id` is text as the manifest gave it, trimmed and in NFC."""

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="documents")
    public_id = models.CharField(max_length=40)
    business_id = models.CharField(max_length=200)
    current_version = models.ForeignKey(
        "DocumentVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    is_final = models.BooleanField(
        default=False, help_text="Was handed out: a new version needs a permission of its own."
    )
    source_sha256 = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="Digest of the input that was last offered and not taken: while set, its PDF is stale.",
    )
    source_seen_at = models.DateTimeField(null=True, blank=True, help_text="When that input was offered.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        permissions = [
            ("check_again_document", "Can check documents again (free)"),
            ("fetch_again_document", "Can fetch documents again (free)"),
            ("retry_document", "Can retry documents (bills 0 or 1)"),
            ("regenerate_document", "Can regenerate documents (bills 1)"),
            ("reconcile_document", "Can reconcile documents (free)"),
            ("adopt_document", "Can adopt a provider job for a document (free)"),
            ("cancel_document", "Can cancel documents (free)"),
            ("dismiss_document", "Can dismiss failed documents (free)"),
            ("reopen_document", "Can reopen dismissed or cancelled documents"),
            ("finalise_document", "Can mark documents final, and take the mark off"),
            ("regenerate_final_document", "Can regenerate final documents (bills 1)"),
            ("note_document", "Can write notes on documents"),
            ("view_content", "Can see content: PDF, HTML, row data, previews, differences"),
            ("reveal", "Can reveal provider job ids"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["public_id"], name="document_public_id_unique"),
            models.UniqueConstraint(
                fields=["workspace", "business_id"], name="document_business_id_once_per_workspace"
            ),
            models.CheckConstraint(condition=~models.Q(business_id=""), name="document_business_id_not_empty"),
        ]

    def __str__(self) -> str:
        return self.business_id


class DocumentNote(models.Model):
    """What somebody wrote about a document, for whoever looks at it next. Never changed, never deleted."""

    document = models.ForeignKey(Document, on_delete=models.PROTECT, related_name="notes")
    at = models.DateTimeField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    author_words = models.CharField(max_length=150, help_text="User name, as it was then.")
    text = models.TextField()

    class Meta:
        constraints = [models.CheckConstraint(condition=~models.Q(text=""), name="note_not_empty")]
        indexes = [models.Index(fields=["document", "-id"], name="note_of_document")]

    def __str__(self) -> str:
        return f"{self.author_words} at {self.at:%Y-%m-%d %H:%M:%S}"


class SourceKind(models.TextChoices):
    HTML = "html", "HTML"
    MARKDOWN = "markdown", "Markdown"
    URL = "url", "URL"
    TEMPLATE = "template", "Template at the provider"


class DocumentVersion(models.Model):
    """The exact input of one document, number 1, 2, … Rows are never updated, but that retention empties them.

    The input text (UTF-8) lies in the row when it is small, else in the artifact store under `input_key`.
    `input_sha256` is over kind, text and options (`manifests.fingerprint`): the same digest is the same version, unless
    it was regenerated as it was; then an upload attaches to the newest of them. A document that one of our templates
    made keeps which version of it, and the data: its text is what came out, and stands here like any other.
    """

    document = models.ForeignKey(Document, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=SourceKind.choices)
    input_inline = models.BinaryField(null=True)
    input_key = models.CharField(max_length=300, null=True, blank=True)
    input_deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="Nothing reads the input from then on: retention deletes it, or has."
    )
    input_sha256 = models.CharField(max_length=64)
    input_bytes = models.BigIntegerField()
    filename = models.CharField(max_length=255, blank=True, default="")
    options = models.JSONField(default=dict, blank=True)
    template_version = models.ForeignKey(
        TemplateVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="document_versions"
    )
    template_data = models.JSONField(null=True, blank=True, help_text="What it was filled from.")
    reason = models.TextField(blank=True, default="", help_text="Why this version was made, for 2 and later.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["document", "number"], name="version_number_once_per_document"),
            models.CheckConstraint(condition=models.Q(number__gte=1), name="version_number_from_one"),
            one_unless("input_inline", "input_key", "input_deleted_at", name="version_input_in_one_place"),
            known_values("kind", SourceKind, name="version_kind_known"),
            set_together("template_version", "template_data", name="version_template_with_data"),
        ]

    def __str__(self) -> str:
        return f"{self.document} v{self.number}"


class ArtifactNotice(models.TextChoices):
    """What makes a stored PDF worth a look, though it opens well."""

    SMALL = "small", "Much smaller than the others"
    LARGE = "large", "Much larger than the others"
    SAME = "same", "Same file as another document"


class Artifact(models.Model):
    """A stored, verified PDF: exactly one per version, whichever submission's was stored first."""

    version = models.OneToOneField(DocumentVersion, on_delete=models.PROTECT, related_name="artifact")
    submission = models.ForeignKey("Submission", on_delete=models.PROTECT, related_name="artifacts")
    storage_key = models.CharField(max_length=300)
    sha256 = models.CharField(max_length=64)
    byte_count = models.BigIntegerField()
    page_count = models.PositiveIntegerField()
    stored_at = models.DateTimeField()
    verified_at = models.DateTimeField()
    checked_at = models.DateTimeField(null=True, blank=True, help_text="When the sweep last looked at the object.")
    missing_at = models.DateTimeField(
        null=True, blank=True, help_text="When the sweep found the object gone or damaged; empty again once restored."
    )
    notice = models.CharField(max_length=10, choices=ArtifactNotice.choices, blank=True, default="")
    notice_words = models.TextField(blank=True, default="")
    local_deleted_at = models.DateTimeField(null=True, blank=True)
    remote_delete_requested_at = models.DateTimeField(null=True, blank=True)
    remote_deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["storage_key"], name="artifact_storage_key_unique"),
            models.CheckConstraint(condition=models.Q(byte_count__gt=0, page_count__gt=0), name="artifact_not_empty"),
            models.CheckConstraint(
                condition=models.Q(notice="") | models.Q(notice__in=list(ArtifactNotice.values)),
                name="artifact_notice_known",
            ),
        ]
        indexes = [
            models.Index(fields=["version"], condition=models.Q(notice__gt=""), name="artifact_noticed_by_version")
        ]

    def __str__(self) -> str:
        return self.storage_key
