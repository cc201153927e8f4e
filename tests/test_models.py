"""What the database itself refuses, whoever writes: every named constraint, on whichever database the suite runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.serializers.base import DeserializationError
from django.db import IntegrityError, connection, models, transaction

from batches.models import (
    Alert,
    ApiToken,
    BatchItem,
    BulkActionItem,
    ColumnMapping,
    Document,
    DocumentNote,
    Exchange,
    Job,
    JobEvent,
    JobState,
    Membership,
    Notice,
    PacingLane,
    ProviderAccount,
    PumpSlot,
    SavedView,
    SettledCounts,
    StoreFinding,
    StoreSweep,
    SweepRun,
    Template,
    WebhookRefusal,
)
from tests.factories import (
    NOW,
    make_accepted_job,
    make_account,
    make_batch,
    make_bulk_action,
    make_bulk_action_item,
    make_deletion,
    make_draft,
    make_duration,
    make_event,
    make_job,
    make_ready_export,
    make_saved_job,
    make_submission,
    make_template_version,
    make_version,
    make_workspace,
)

pytestmark = pytest.mark.django_db

CONSTRAINTS: dict[str, tuple[type[models.Model], models.BaseConstraint]] = {
    constraint.name: (model, constraint)
    for model in apps.get_app_config("batches").get_models()
    for constraint in model._meta.constraints
}


def make_person(name: str = "okoye") -> User:
    return User.objects.create(username=name)


def make_alert(**fields: Any) -> Alert:
    defaults = {"kind": "surplus", "subject": "job:1", "words": "Billed twice.", "opened_at": NOW}
    return Alert.objects.create(**defaults | fields)


def make_token(**fields: Any) -> ApiToken:
    workspace, user = make_workspace(), User.objects.get_or_create(username="lindqvist")[0]
    defaults = {"name": "reporting", "prefix": "rpb_1234", "secret_sha256": "0" * 64}
    return ApiToken.objects.create(workspace=workspace, user=user, **defaults | fields)


def make_exchange(**fields: Any) -> Exchange:
    defaults = {"kind": "submit", "at": NOW, "duration_ms": 1}
    return Exchange.objects.create(**{"account": make_account()} | defaults | fields)


def twice(make: Callable[[], Any]) -> None:
    make()
    make()


def second_deletion(**of: Any) -> None:
    """The same thing deleted in the same place twice."""
    twice(lambda: make_deletion(**of))


def changed(row: models.Model, **fields: Any) -> None:
    """A bulk update, which goes past every check in Python."""
    assert type(row)._default_manager.filter(pk=row.pk).update(**fields)


def second_membership() -> None:
    workspace, user = make_workspace(), make_person()
    twice(lambda: Membership.objects.create(workspace=workspace, user=user, role="viewer"))


def second_lane() -> None:
    account = make_account()
    twice(lambda: PacingLane.objects.create(account=account, lane="submit"))


def second_creation() -> None:
    workspace = make_workspace()
    twice(lambda: make_batch(workspace=workspace, creation_key="one click"))


def make_notice(**fields: Any) -> Notice:
    recipient = fields.pop("recipient", None) or make_person()
    batch = fields.pop("batch", None) or make_batch()
    return Notice.objects.create(batch=batch, recipient=recipient, **{"event": "finished"} | fields)


def second_notice() -> None:
    batch, recipient = make_batch(), make_person()
    twice(lambda: make_notice(batch=batch, recipient=recipient))


def make_view(user: User, page: str = "batches") -> SavedView:
    return SavedView.objects.create(user=user, page=page, name="Mine")


def second_view() -> None:
    user = make_person()
    twice(lambda: make_view(user))


def half_settled(missing: str) -> None:
    counted = {"saved": 1, "failed": 0, "cancelled": 0, "attention": 0, "delivered": 1, "billed": 0, "billed_count": 0}
    SettledCounts.objects.create(batch=make_batch(), token="a" * 32, **counted | {"settled_at": NOW, missing: None})


def second_refusal() -> None:
    account = make_account()
    twice(lambda: WebhookRefusal.objects.create(account=account, hour=NOW, status=401, last_at=NOW))


def second_order_at_work() -> None:
    batch = make_batch()
    for _ in range(2):
        make_ready_export(batch, state="queued", order_sha256="a" * 64)


def second_part(**fields: Any) -> None:
    part = make_ready_export(make_batch()).parts.get()
    for name, value in ({"pk": None} | fields).items():
        setattr(part, name, value)
    part.save()


def second_column_mapping() -> None:
    workspace = make_workspace()
    twice(lambda: ColumnMapping.objects.create(workspace=workspace, header_sha256="a" * 64))


def second_template() -> None:
    workspace = make_workspace()
    twice(lambda: Template.objects.create(workspace=workspace, slug="invoice", name="Invoice"))


def second_template_version() -> None:
    workspace = make_workspace()
    make_template_version(workspace=workspace, source="one")
    changed(make_template_version(workspace=workspace, source="two"), number=1)


def second_row(**same: str) -> None:
    """Another item of the same batch at the same position, or with the same document."""
    first = make_job().version.items.get()
    other = make_job(batch=first.batch).version.items.get()
    changed(other, **{name: getattr(first, value) for name, value in same.items()})


def second_business_id() -> None:
    workspace = make_workspace()
    twice(
        lambda: Document.objects.create(
            workspace=workspace, public_id=f"doc_{Document.objects.count()}", business_id="INV-1"
        )
    )


def second_number() -> None:
    workspace = make_workspace()
    twice(lambda: make_version(workspace=workspace, business_id="INV-1", number=7))


def second_submission(**fields: Any) -> None:
    """A closed submission beside another that shares `fields` with it."""
    job = make_job()
    closed = {"outcome": "refused", "closed_at": NOW}
    twice(lambda: make_submission(job=job, **closed | fields))


def second_open_submission() -> None:
    job = make_job()
    twice(lambda: make_submission(job=job))


def second_storage_key() -> None:
    first, second = make_saved_job(), make_saved_job()
    changed(second.version.artifact, storage_key=first.version.artifact.storage_key)


def second_event() -> None:
    account = make_account()
    twice(lambda: make_event(account=account, dedupe_key="k"))


def make_finding(**fields: Any) -> StoreFinding:
    defaults = {"kind": "missing", "storage_key": "north/ab/v1.pdf", "words": "It is gone.", "found_at": NOW}
    return StoreFinding.objects.create(**defaults | fields)


def in_batch_of(job: Job) -> BatchItem:
    return job.version.items.get()


def second_bulk_action() -> None:
    workspace = make_workspace()
    twice(lambda: make_bulk_action(batch=make_batch(workspace=workspace), creation_key="one click"))


def bulk_action_item(**fields: Any) -> BulkActionItem:
    job = make_job()
    return make_bulk_action_item(action=make_bulk_action(batch=in_batch_of(job).batch), job=job, **fields)


def second_bulk_action_item(same: str) -> None:
    """Another item of the same action at the same position, or the same item of the batch."""
    first = bulk_action_item()
    second = make_bulk_action_item(action=first.action, job=make_job(batch=first.action.batch))
    changed(second, **{same: getattr(first, same)})


BREACHES: dict[str, Callable[[], Any]] = {
    "workspace_slug_unique": lambda: twice(lambda: make_workspace(slug="north")),
    "membership_once_per_workspace": second_membership,
    "membership_role_known": lambda: Membership.objects.create(
        workspace=make_workspace(), user=make_person(), role="king"
    ),
    "provider_account_slug_unique": lambda: twice(lambda: make_account(slug="relaypdf")),
    "provider_account_kind_known": lambda: make_account(kind="carrier pigeon"),
    "provider_account_health_known": lambda: make_account(health="poorly"),
    "provider_account_hold_note_known": lambda: make_account(hold_note="by the way"),
    "provider_account_learned_deadline_known": lambda: make_account(learned_deadline="by heart"),
    "provider_account_hold_has_reason": lambda: make_account(health="held", held_at=NOW),
    "pacing_lane_once_per_account": second_lane,
    "pacing_lane_known": lambda: PacingLane.objects.create(account=make_account(), lane="overtaking"),
    "pump_slot_number_unique": lambda: twice(lambda: PumpSlot.objects.create(number=1)),
    "pump_slot_lease_pairs": lambda: PumpSlot.objects.create(number=1, owner="host:1"),
    "batch_public_id_unique": lambda: twice(lambda: make_batch(public_id="bat_1")),
    "batch_creation_key_once_per_workspace": second_creation,
    "batch_on_conflict_known": lambda: make_batch(on_conflict="shrug"),
    "batch_weight_in_range": lambda: make_batch(weight=0),
    "batch_waits_for_release_paused": lambda: make_batch(waits_for_release=True),
    "draft_public_id_unique": lambda: twice(lambda: make_draft(public_id="dft_same")),
    "draft_state_known": lambda: make_draft(state="dreaming"),
    "draft_take_known": lambda: make_draft(take="some"),
    "draft_on_conflict_known": lambda: make_draft(on_conflict="shrug"),
    "draft_lease_pairs": lambda: make_draft(lease_owner="host:1"),
    "draft_due_in_the_workers_turn": lambda: make_draft(due_at=NOW),
    "export_public_id_unique": lambda: twice(lambda: make_ready_export(make_batch(), public_id="exp_same")),
    "export_order_once_at_work": lambda: second_order_at_work(),
    "export_kind_known": lambda: make_ready_export(make_batch(), kind="poem"),
    "export_state_known": lambda: make_ready_export(make_batch(), state="dreaming"),
    "export_lease_pairs": lambda: make_ready_export(make_batch(), lease_owner="host:1"),
    "export_due_in_the_workers_turn": lambda: make_ready_export(make_batch(), due_at=NOW),
    "deletion_once_per_version": lambda: second_deletion(version=make_saved_job().version),
    "deletion_once_per_submission": lambda: second_deletion(submission=make_saved_job().submissions.get()),
    "deletion_once_per_batch": lambda: second_deletion(batch=make_batch()),
    "deletion_of_one_thing": lambda: make_deletion(batch=make_batch(), version=make_saved_job().version),
    "deletion_what_known": lambda: make_deletion(batch=make_batch(), what="memory"),
    "deletion_where_known": lambda: make_deletion(batch=make_batch(), where="nowhere"),
    "deletion_state_known": lambda: make_deletion(batch=make_batch(), state="likely", due_at=None, settled_at=NOW),
    "deletion_settled_with_time": lambda: make_deletion(batch=make_batch(), settled_at=NOW),
    "export_ready_expires": lambda: make_ready_export(make_batch(), expires_at=None),
    "export_part_storage_key_unique": lambda: second_part(number=2),
    "export_part_once_per_export": lambda: second_part(storage_key="main/exports/exp_other/1-1.zip"),
    "export_part_written_with_hash": lambda: changed(make_ready_export(make_batch()).parts.get(), sha256=""),
    "column_mapping_once_per_workspace_and_header": second_column_mapping,
    "template_slug_once_per_workspace": second_template,
    "template_version_number_once": second_template_version,
    "template_version_number_from_one": lambda: changed(
        make_template_version(workspace=make_workspace(), source="x"), number=0
    ),
    "version_template_with_data": lambda: make_version(workspace=make_workspace(), template_data={"a": 1}),
    "item_position_once_per_batch": lambda: second_row(position="position"),
    "item_document_once_per_batch": lambda: second_row(document="document"),
    "item_dismissed_with_note": lambda: changed(in_batch_of(make_job()), dismissed_at=NOW),
    "document_public_id_unique": lambda: twice(
        lambda: Document.objects.create(workspace=make_workspace(), public_id="doc_same", business_id="INV-1")
    ),
    "document_business_id_once_per_workspace": second_business_id,
    "document_business_id_not_empty": lambda: Document.objects.create(
        workspace=make_workspace(), public_id="doc_1", business_id=""
    ),
    "version_number_once_per_document": second_number,
    "version_number_from_one": lambda: make_version(workspace=make_workspace(), number=0),
    "version_input_in_one_place": lambda: make_version(workspace=make_workspace(), input_key="inputs/1"),
    "version_kind_known": lambda: make_version(workspace=make_workspace(), kind="papyrus"),
    "artifact_storage_key_unique": second_storage_key,
    "artifact_notice_known": lambda: changed(make_saved_job().version.artifact, notice="pretty"),
    "artifact_not_empty": lambda: changed(make_saved_job().version.artifact, byte_count=0),
    "job_state_known": lambda: changed(make_job(), state="resting"),
    "job_lease_pairs": lambda: changed(make_job(), lease_owner="host:1"),
    "job_failed_has_class": lambda: changed(make_job(), state=JobState.FAILED),
    "job_accepted_has_deadline": lambda: changed(make_job(), state=JobState.ACCEPTED),
    "job_event_from_known": lambda: JobEvent.objects.create(
        job=make_job(), at=NOW, from_state="limbo", to_state="pending", reason="test"
    ),
    "job_event_to_known": lambda: JobEvent.objects.create(
        job=make_job(), at=NOW, from_state="pending", to_state="limbo", reason="test"
    ),
    "submission_sequence_once_per_job": lambda: second_submission(sequence=1),
    "submission_key_once_per_account": lambda: second_submission(idempotency_key="k" * 64),
    "submission_provider_job_once_per_account": lambda: second_submission(provider_job_id="pdf_1", accepted_at=NOW),
    "submission_one_open_per_job": second_open_submission,
    "submission_body_in_one_place": lambda: make_submission(job=make_job(), body_key="bodies/1"),
    "submission_accepted_with_id": lambda: make_submission(job=make_job(), provider_job_id="pdf_1"),
    "submission_outcome_known": lambda: make_submission(job=make_job(), outcome="applause", closed_at=NOW),
    "submission_closed_with_time": lambda: make_submission(job=make_job(), outcome="refused"),
    "submission_watched_with_id_and_end": lambda: make_submission(job=make_job(), watch_at=NOW),
    "duration_outcome_known": lambda: make_duration(outcome="asleep"),
    "store_finding_one_open_per_key": lambda: twice(make_finding),
    "store_finding_kind_known": lambda: make_finding(kind="ugly"),
    "store_finding_resolved_with_words": lambda: make_finding(resolved_at=NOW),
    "store_sweep_once_per_kind": lambda: twice(lambda: StoreSweep.objects.create(kind="objects")),
    "store_sweep_kind_known": lambda: StoreSweep.objects.create(kind="chimney"),
    "store_sweep_lease_pairs": lambda: StoreSweep.objects.create(kind="objects", lease_owner="host:1"),
    "exchange_kind_known": lambda: make_exchange(kind="small talk"),
    "webhook_event_dedupe_key_once_per_account": second_event,
    "webhook_event_outcome_known": lambda: make_event(outcome="puzzled"),
    "alert_one_open_per_kind_and_subject": lambda: twice(make_alert),
    "alert_kind_known": lambda: make_alert(kind="rumour"),
    "api_token_secret_unique": lambda: twice(make_token),
    "bulk_action_public_id_unique": lambda: twice(lambda: make_bulk_action(public_id="act_same")),
    "bulk_action_creation_key_once_per_workspace": second_bulk_action,
    "bulk_action_verb_known": lambda: make_bulk_action(verb="hope"),
    "bulk_action_lease_pairs": lambda: make_bulk_action(lease_owner="host:1"),
    "bulk_action_finished_after_confirmed": lambda: make_bulk_action(finished_at=NOW),
    "bulk_action_item_position_once": lambda: second_bulk_action_item("position"),
    "bulk_action_item_once_per_action": lambda: second_bulk_action_item("item"),
    "bulk_action_item_result_known": lambda: bulk_action_item(result="perhaps"),
    "bulk_action_item_state_known": lambda: bulk_action_item(job_state="tired"),
    "note_not_empty": lambda: DocumentNote.objects.create(
        document=make_job().version.document, author=make_person(), at=NOW, text=""
    ),
    "notice_once_per_event_and_person": second_notice,
    "notice_event_known": lambda: make_notice(event="rumour"),
    "notice_sent_is_not_tried": lambda: make_notice(sent_at=NOW, next_try_at=NOW),
    "saved_view_name_once_per_user_and_page": second_view,
    "saved_view_page_known": lambda: make_view(make_person(), page="elsewhere"),
    "settled_counts_with_saved": lambda: half_settled("saved"),
    "settled_counts_with_failed": lambda: half_settled("failed"),
    "settled_counts_with_cancelled": lambda: half_settled("cancelled"),
    "settled_counts_with_attention": lambda: half_settled("attention"),
    "settled_counts_with_delivered": lambda: half_settled("delivered"),
    "settled_counts_with_billed": lambda: half_settled("billed"),
    "settled_counts_with_billed_count": lambda: half_settled("billed_count"),
    "sweep_run_once_per_name": lambda: twice(lambda: SweepRun.objects.create(name="sweep", ran_at=NOW)),
    "webhook_refusal_once_per_hour": second_refusal,
}

#: The same constraint from its other sides: each of these must be refused as well.
FURTHER_BREACHES: list[tuple[str, Callable[[], Any]]] = [
    ("provider_account_hold_has_reason", lambda: make_account(hold_reason="auth")),
    ("provider_account_hold_has_reason", lambda: make_account(health="held", hold_reason="auth")),
    ("provider_account_hold_has_reason", lambda: make_account(health="held", hold_reason="mood", held_at=NOW)),
    ("pump_slot_lease_pairs", lambda: PumpSlot.objects.create(number=1, lease_until=NOW)),
    ("item_dismissed_with_note", lambda: changed(in_batch_of(make_job()), dismissed_note="seen")),
    ("version_input_in_one_place", lambda: make_version(workspace=make_workspace(), input_inline=None)),
    ("artifact_not_empty", lambda: changed(make_saved_job().version.artifact, page_count=0)),
    ("job_lease_pairs", lambda: changed(make_job(), lease_until=NOW)),
    ("job_failed_has_class", lambda: changed(make_job(), failure_class="internal")),
    ("job_failed_has_class", lambda: changed(make_job(state=JobState.FAILED), failure_class="bad luck")),
    ("submission_body_in_one_place", lambda: make_submission(job=make_job(), body_inline=None)),
    ("submission_accepted_with_id", lambda: make_submission(job=make_job(), accepted_at=NOW)),
    ("submission_closed_with_time", lambda: make_submission(job=make_job(), closed_at=NOW)),
    ("batch_weight_in_range", lambda: make_batch(weight=101)),
    ("submission_watched_with_id_and_end", lambda: make_submission(job=make_job(), watch_at=NOW, watch_until=NOW)),
    ("store_finding_resolved_with_words", lambda: make_finding(resolution="Stored again.")),
    ("store_sweep_lease_pairs", lambda: StoreSweep.objects.create(kind="objects", lease_until=NOW)),
    ("bulk_action_lease_pairs", lambda: make_bulk_action(lease_until=NOW)),
    ("export_lease_pairs", lambda: make_ready_export(make_batch(), lease_until=NOW)),
    ("export_ready_expires", lambda: make_ready_export(make_batch(), built_at=None)),
    ("draft_lease_pairs", lambda: make_draft(lease_until=NOW)),
    ("draft_due_in_the_workers_turn", lambda: make_draft(due_at=NOW, state="started")),
]


def refused_by(error: IntegrityError, name: str) -> bool:
    """Whether it was this very constraint. SQLite tells a unique one by its columns, not by its name."""
    model, constraint = CONSTRAINTS[name]
    if connection.vendor == "sqlite" and isinstance(constraint, models.UniqueConstraint):
        columns = [model._meta.get_field(field).column for field in constraint.fields]
        return ", ".join(f"{model._meta.db_table}.{column}" for column in columns) in str(error)
    return name in str(error)


@pytest.mark.parametrize(
    ("name", "breach"),
    [*BREACHES.items(), *FURTHER_BREACHES],
    ids=[*BREACHES, *(f"{name}-{number}" for number, (name, _) in enumerate(FURTHER_BREACHES))],
)
def test_the_database_refuses(name: str, breach: Callable[[], Any]) -> None:
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        breach()
    assert refused_by(refused.value, name), f"refused by something else: {refused.value}"


def test_every_named_constraint_is_tried() -> None:
    assert set(BREACHES) == set(CONSTRAINTS)


def test_every_constraint_stands_in_the_database_under_its_name() -> None:
    found: set[str] = set()
    with connection.cursor() as cursor:
        for model in {model for model, _ in CONSTRAINTS.values()}:
            found |= set(connection.introspection.get_constraints(cursor, model._meta.db_table))
    assert set(CONSTRAINTS) <= found


def test_one_job_and_one_artifact_per_version() -> None:
    job = make_saved_job()
    other = make_saved_job()
    for row in (other, other.version.artifact):
        with pytest.raises(IntegrityError), transaction.atomic():
            changed(row, version=job.version)


def test_a_second_account_may_know_the_same_key_and_provider_job() -> None:
    for _ in range(2):
        job = make_job()
        make_submission(job=job, idempotency_key="k" * 64, provider_job_id="pdf_1", accepted_at=NOW)


def test_a_closed_alert_makes_room_for_the_next() -> None:
    make_alert(closed_at=NOW + timedelta(hours=1))
    make_alert()


def test_a_job_in_every_state_can_be_stored() -> None:
    for state in JobState:
        job = make_accepted_job() if state == JobState.ACCEPTED else make_job(state=state)
        job.refresh_from_db()
        assert job.state == state


def test_a_dump_holds_an_account_s_secrets_as_they_are_stored_and_is_loaded_again(
    tmp_path: Path, settings: Any
) -> None:
    account = make_account(api_key="pdf_live_secret", webhook_secret="")
    dump = tmp_path / "accounts.json"
    call_command("dumpdata", "batches.provideraccount", output=str(dump))
    written = dump.read_text()
    assert "pdf_live_secret" not in written
    assert '"api_key": "fernet:gAAAA' in written
    ProviderAccount.objects.filter(pk=account.pk).update(api_key="another")
    call_command("loaddata", str(dump), verbosity=0)
    loaded = ProviderAccount.objects.get(pk=account.pk)
    assert (loaded.api_key, loaded.webhook_secret) == ("pdf_live_secret", "")
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(DeserializationError, match="FIELD_KEYS"):
        call_command("loaddata", str(dump), verbosity=0)
