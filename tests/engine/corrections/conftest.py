"""Fixtures of corrected rows: a batch whose documents failed, its corrections handed over, and carried out."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from batches import manifests
from batches.engine import correcting, drafts, intake
from batches.engine.audit import By
from batches.manifests.choices import NO_CHOICES, Choices
from batches.models import Batch, Draft, Job, JobState, ProviderAccount, Role, Workspace
from batches.storage.disk import DiskStore
from tests.engine.corrections.lists import worked
from tests.factories import NOW
from tests.web.conftest import make_member


@pytest.fixture
def person(workspace: Workspace) -> User:
    return make_member(workspace, "h.brandt", Role.MANAGER)


@pytest.fixture
def started(workspace: Workspace, account: ProviderAccount, store: DiskStore) -> Callable[..., Batch]:
    """Starts a batch of an upload; all of its documents then fail, but for those in `saved`."""

    def start(content: bytes, name: str, *, saved: tuple[str, ...] = (), choices: Choices = NO_CHOICES) -> Batch:
        source = manifests.from_upload(io.BytesIO(content), name)
        checked = intake.check(source, workspace=workspace, account=account, on_conflict="refuse", choices=choices)
        with checked.manifest:
            assert checked.ok, checked.report()["errors"]
            batch = intake.start(
                checked,
                name="March",
                actor=None,
                actor_words="submit",
                from_where="here",
                creation_key=name,
                store=store,
                now=NOW,
            )
        failure = {"failure_class": "render_failed", "failure_words": "-1 pages: it would not render."}
        jobs = Job.objects.filter(version__items__batch=batch)
        jobs.exclude(version__document__business_id__in=saved).update(state=JobState.FAILED, **failure)
        jobs.filter(version__document__business_id__in=saved).update(state=JobState.SAVED)
        return batch

    return start


@pytest.fixture
def upload(person: User, store: DiskStore) -> Callable[..., Draft]:
    """Hands corrected rows of a batch over and has them checked."""

    def hand_over(batch: Batch, content: bytes, name: str = "failed.csv", reason: str = "Prices corrected.") -> Draft:
        given = drafts.Upload(io.BytesIO(content), name, batch.workspace, batch.account, target=batch, reason=reason)
        draft = drafts.receive(given, by=By(person, "h.brandt", "here"), store=store, now=NOW)
        choices = correcting.remembered_choices(batch).as_dict()
        Draft.objects.filter(pk=draft.pk).update(choices=choices)
        drafts.ask_check(draft.pk, now=NOW)
        return worked(draft, store)

    return hand_over


@pytest.fixture
def replace(person: User, store: DiskStore) -> Callable[..., Draft]:
    def carry_out(draft: Draft, *, shown: int | None = None) -> Draft:
        renders = draft.report["renders"] if shown is None else shown  # type: ignore[index] # it was checked
        run = drafts.Run(generation=draft.generation, renders_shown=renders)
        drafts.ask_start(draft.pk, run, by=By(person, "h.brandt", "here"), now=NOW)
        return worked(draft, store)

    return carry_out
