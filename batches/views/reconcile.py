"""The page of one document whose end is not certain: the evidence, the verdict, the safe verbs, and adopting a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import F
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from batches import cursors, rights, storage, wording
from batches.engine import adoption, reconcile, standings, verbs
from batches.engine.accounts import Providers
from batches.engine.adoption import Inspection
from batches.engine.orders import Order
from batches.engine.pdfcheck import PdfChecker
from batches.engine.reconcile import Findings
from batches.models import ACCOUNT_SECRETS, BatchItem, Document, Verb
from batches.views.access import SignedInRequest, by, document_or_404, refuse_without, typed

_NO_KEY = "The account's key cannot be read, so the provider cannot be asked. Correct the account first."


@dataclass(frozen=True)
class Offer:
    """One safe verb as a button: its price, what it needs, and why it is not the reader's to press."""

    verb: Verb
    price: str
    to_confirm: str
    needs_reason: bool
    refusal: str
    url: str
    is_link: bool


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def document_reconcile(request: SignedInRequest, public_id: str) -> HttpResponse:
    """What is known; by POST `ask` the provider too, `inspect` a provider job, or `adopt` it."""
    document = document_or_404(request.user, public_id)
    item = _item(document, request.GET.get("version"))
    step = request.POST.get("step", "") if request.method == "POST" else ""
    refuse_without(request, rights.ADOPT if step in ("inspect", "adopt") else Verb.RECONCILE, document.workspace)
    with reconcile.tools() as (providers, checker):
        page = _Page(request, document, item, providers, checker)
        if step == "ask":
            return page.shown(page.settled())
        if step in ("inspect", "adopt"):
            return page.adopting(is_confirmed=step == "adopt")
        return page.shown(page.looked())


def _item(document: Document, wanted: str | None) -> BatchItem:
    """The item that the verbs are applied to: the newest that names the version, a live one first."""
    items = BatchItem.objects.filter(document=document).select_related("version__job__account")
    items = items.defer(*(f"version__job__account__{name}" for name in ACCOUNT_SECRETS))
    number = cursors.number(wanted)
    items = items.filter(version=document.current_version) if number is None else items.filter(version__number=number)
    item = items.order_by(F("cancelled_at").asc(nulls_first=True), "-pk").first()
    if item is None:
        raise Http404("No batch names this version.")
    return item


@dataclass(frozen=True)
class _Page:
    request: SignedInRequest
    document: Document
    item: BatchItem
    providers: Providers
    checker: PdfChecker

    @property
    def order(self) -> Order:
        request = self.request
        return Order(by(request), reason=typed(request.POST.get("reason")))

    def _allowed(self) -> verbs.Answer:
        standing = standings.of_items(BatchItem.objects.filter(pk=self.item.pk))[self.item.pk]
        return verbs.answer(Verb.RECONCILE, standing, now=timezone.now())

    def looked(self) -> Findings:
        store = storage.open_store(settings.STORAGE_URL)
        return reconcile.look(self.item.pk, store=store, checker=self.checker, now=timezone.now())

    def settled(self) -> Findings:
        if not self._allowed().allowed:
            return self.looked()
        return reconcile.settle(
            self.item.pk,
            order=self.order,
            provider=reconcile.provider_of(self.item.pk, self.providers),
            store=storage.open_store(settings.STORAGE_URL),
            checker=self.checker,
            now=timezone.now(),
        )

    def adopting(self, *, is_confirmed: bool) -> HttpResponse:
        findings = self.looked()
        pasted = self.request.POST.get("provider_job_id", "")
        token = self.request.POST.get("candidate", "")
        if token:
            pasted = next((each.provider_job_id for each in findings.candidates if each.token == token), "")
            if not pasted:
                return self.shown(findings, problem="That provider job is no candidate any more.")
        provider = reconcile.provider_of(self.item.pk, self.providers)
        if provider is None:
            return self.shown(findings, problem=_NO_KEY)
        order = self.order
        adopted = adoption.adopt(
            self.item.version.job.pk,
            pasted,
            order=Order(order.by, order.reason, is_confirmed=is_confirmed),
            provider=provider,
            store=storage.open_store(settings.STORAGE_URL),
            checker=self.checker,
            now=timezone.now(),
        )
        if adopted.result.is_done:
            return self.shown(self.looked(), done=adopted.result.words)
        if adopted.inspection.refusal:
            return self.shown(self.looked(), problem=adopted.inspection.refusal, pasted="" if token else pasted)
        return self.shown(findings, inspection=adopted.inspection, token=token)

    def shown(
        self,
        findings: Findings,
        *,
        problem: str = "",
        done: str = "",
        inspection: Inspection | None = None,
        token: str = "",
        pasted: str = "",
    ) -> HttpResponse:
        item = BatchItem.objects.select_related("version__job").get(pk=self.item.pk)
        held = rights.rights(self.request.user, self.document.workspace)
        answer = self._allowed()
        context: dict[str, Any] = {
            "document": self.document,
            "version": item.version,
            "badge": wording.JOB_BADGES[item.version.job.state],
            "findings": findings,
            "refusal": "" if answer.allowed else answer.words,
            "offers": list(self._offers(findings, held)),
            "may_ask": Verb.RECONCILE in held,
            "may_adopt": rights.ADOPT in held,
            "problem": problem,
            "done": done or findings.done,
            "inspection": inspection,
            "token": token,
            "pasted": pasted,
            "was_asked": self.request.POST.get("step") == "ask",
        }
        status = 422 if problem else 200
        return render(self.request, "batches/reconcile.html", context, status=status)

    def _offers(self, findings: Findings, held: frozenset[str]) -> Iterator[Offer]:
        page = reverse("batches:document_detail", args=[self.document.public_id])
        for verb, answer in findings.offers.items():
            assert answer.price is not None
            is_link = verb is Verb.REGENERATE
            yield Offer(
                verb,
                answer.price.value,
                answer.to_confirm,
                verb in verbs.NEEDS_REASON,
                "" if verb in held else f"Your role may not do this; ask a manager of {self.document.workspace.name}.",
                f"{page}regenerate/" if is_link else f"{page}actions/{verb.value}/",
                is_link,
            )
