"""`manage.py account SLUG`: health and limits of a provider account; hold it, resume it, change a setting."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from batches import figures, results, selectors, sentences, wording
from batches.engine import account_changes, accounts, deadlines, webhook_health
from batches.management import account_settings, auditing, choosing
from batches.management.readiness import DatabaseCommand
from batches.models import AccountHealth, HoldReason, ProviderAccount


class Command(DatabaseCommand):
    help = "Show a provider account, hold or resume it, or change its limits."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--json", action="store_true", help="Print the account as one JSON document.")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--hold", action="store_true", help="Send nothing new; accepted work goes on to saved.")
        what.add_argument("--resume", action="store_true", help="Let waiting documents go on; harmless when not held.")
        what.add_argument(
            "--set",
            nargs="+",
            metavar="key=value",
            help=f"Change settings: {', '.join(account_settings.SETTINGS)}.",
        )
        parser.add_argument(
            "--add",
            metavar="KIND",
            help="Make this account, with the values of --set, among them those that only its provider has. "
            f"KIND is one of {', '.join(accounts.adapters())}.",
        )
        parser.add_argument(
            "--base-url", default="", help="With --add: where the provider is reached, if not as usual."
        )
        parser.add_argument("--workspace", metavar="SLUG", help="With --add: whose it is; all may use it if not given.")
        parser.add_argument(
            "--same-account",
            action="store_true",
            help="With --set api_key: it opens the same account at the provider as the key of before.",
        )
        parser.add_argument("--reason", default="", help="Why; needed with --hold.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["add"]:
            self._add(options)
            return
        if options["base_url"] or options["workspace"]:
            raise choosing.refusal("--base-url and --workspace go with --add: they are fixed from then on.")
        account = choosing.account(options["slug"])
        if options["reason"].strip() and not (options["hold"] or options["resume"] or options["set"]):
            raise choosing.refusal("--reason goes with --hold, --resume or --set.")
        if options["same_account"] and not options["set"]:
            raise choosing.refusal("--same-account goes with --set api_key.")
        if options["hold"]:
            done = self._hold(account, options["reason"].strip())
        elif options["resume"]:
            done = self._resume(account, options["reason"].strip())
        elif options["set"]:
            facts = account_settings.apply(
                account, options["set"], reason=options["reason"], is_same_account=options["same_account"]
            )
            done = f"Set {', '.join(f'{key}={value}' for key, value in facts.items())}."
        else:
            done = ""
        account = choosing.account(account.slug)
        if options["json"]:
            self.stdout.write(json.dumps(_facts(account), ensure_ascii=False, indent=2))
            return
        if done:
            self.stdout.write(done)
        self._write(account)

    def _add(self, options: dict[str, Any]) -> None:
        if options["hold"] or options["resume"]:
            raise choosing.refusal("--add makes an open account; hold it afterwards.")
        account_settings.add(
            options["slug"],
            options["add"],
            options["set"] or [],
            base_url=options["base_url"],
            workspace=options["workspace"],
            reason=options["reason"],
        )
        account = choosing.account(options["slug"])
        if options["json"]:
            self.stdout.write(json.dumps(_facts(account), ensure_ascii=False, indent=2))
            return
        self.stdout.write(
            f"Added {account.slug} ({account.get_kind_display()}). Its webhooks go to /webhooks/{account.slug}."
        )
        self._write(account)

    def _hold(self, account: ProviderAccount, reason: str) -> str:
        if not reason:
            raise choosing.refusal("Say why with --reason; the words are shown to everybody who waits.")
        if not account_changes.hold(account, by=auditing.by(), words=reason, now=timezone.now()):
            return "It was held already; that hold stays."
        return "Held."

    def _resume(self, account: ProviderAccount, reason: str) -> str:
        if not account_changes.resume(account, by=auditing.by(), reason=reason, now=timezone.now()):
            return "It was not held."
        return "Resumed."

    def _write(self, account: ProviderAccount) -> None:
        facts = _facts(account)
        if account.health == AccountHealth.HELD:
            label = HoldReason(account.hold_reason).label
            self.stdout.write(
                f"{account.slug}: held since {facts['held_at']} ({label}). {wording.sentence(account.hold_words)}"
            )
            self.stdout.write(wording.HOLD_WHAT_TO_DO[account.hold_reason])
        else:
            self.stdout.write(f"{account.slug}: open, {figures.pace(sentences.interval_ms(account))}")
        self.stdout.write(f"Webhooks: {webhook_health.words(webhook_health.of(account.pk))}")
        if facts["asked_to_wait_until"]:
            self.stdout.write(
                f"The provider asked to wait: nothing new is sent until {facts['asked_to_wait_until']}. "
                "It goes on by itself."
            )
        for key, value in facts.items():
            self.stdout.write(f"  {key:<26}{value if value not in (None, '') else '-'}")


def _facts(account: ProviderAccount) -> dict[str, Any]:
    """The account without its secrets; whether they are there is said."""
    webhooks = webhook_health.of(account.pk)
    return {
        "slug": account.slug,
        "name": account.name,
        "kind": account.kind,
        "base_url": account.base_url,
        "workspace": account.workspace.slug if account.workspace else None,
        "health": account.health,
        "hold_reason": account.hold_reason or None,
        "hold_words": account.hold_words or None,
        "held_at": results.timestamp(account.held_at),
        "asked_to_wait_until": results.timestamp(selectors.asked_to_wait_until(account, now=timezone.now())),
        "waiting": selectors.waiting_count(account),
        "in_flight": selectors.in_flight_count(account),
        "max_in_flight": account.max_in_flight,
        "submit_interval_ms": account.submit_interval_ms,
        "submit_burst": account.submit_burst,
        "submit_windows": account.submit_windows,
        "poll_interval_ms": account.poll_interval_ms,
        "download_interval_ms": account.download_interval_ms,
        "poll_initial_ms": account.poll_initial_ms,
        "poll_max_ms": account.poll_max_ms,
        "deadline_seconds": account.deadline_seconds,
        "learned_deadline": account.learned_deadline,
        "suggested_deadlines": [each.words for each in deadlines.suggestions(account.pk).values()],
        "key_retention_seconds": account.key_retention_seconds,
        "key_retention_source": account.key_retention_source,
        "download_hosts": account.download_hosts,
        "renders_inside": account.renders_inside,
        "delete_remote_after_save": account.delete_remote_after_save,
        "price_per_job": str(account.price_per_job) if account.price_per_job is not None else None,
        "price_currency": account.price_currency,
        "processing_region": account.processing_region or None,
        "source_retention": account.source_retention or None,
        "output_retention": account.output_retention or None,
        "processor": account.processor or None,
        "data_notes": account.data_notes or None,
        "has_api_key": selectors.is_set(account, "api_key"),
        "has_webhook_secret": selectors.is_set(account, "webhook_secret"),
        "webhook_url": account.webhook_url or None,
        "webhook_last_received_at": results.timestamp(webhooks.last_received_at),
        "webhook_announced": f"{webhooks.told} of {webhooks.completions}",
        "webhooks_silent": webhooks.is_silent,
        "archived_at": results.timestamp(account.archived_at),
    }
