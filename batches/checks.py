"""Django system checks: settings that each look right and do not fit together. Every command runs them first.

batches.E001   a task may outlast django-q2's `timeout`
batches.E002   `retry` is not longer than `timeout`: a task would run beside itself
batches.E003   `save_limit` is not -1: each success would scan and lock the results table
batches.E004   failed tasks would be delivered again: retries are the engine's
batches.E005   SQLite without WAL, IMMEDIATE, a busy timeout or foreign keys
batches.E006   the queue is not on the database of the jobs: ringing would not be transactional
batches.E007   DATA_DIR cannot be written
batches.E008   leases, renewals and margins do not fit each other
batches.E009   a PostgreSQL connection pool: its threads would be missing after the cluster forks
batches.W001   an API key would travel over plain HTTP to another machine
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from batches.conf import ENGINE

#: A writer must outlast any grouped write of another process.
LEAST_BUSY_TIMEOUT_SECONDS = 20


@register
def queue_settings(**_: Any) -> list[CheckMessage]:
    return list(_queue_problems(settings.Q_CLUSTER))


def _queue_problems(queue: dict[str, Any]) -> Iterator[CheckMessage]:
    longest_call = max(ENGINE.connect_timeout + ENGINE.read_timeout, ENGINE.download_timeout)
    longest = ENGINE.pump_budget_seconds + longest_call + ENGINE.pdf_check_seconds
    timeout, retry = queue.get("timeout") or 0, queue.get("retry") or 0
    if timeout <= longest:
        yield Error(
            f"Q_CLUSTER['timeout'] is {timeout}; a pump may need {longest:g} s (budget, download, check).",
            hint="Raise it: django-q2 kills a task at its timeout at any bytecode.",
            id="batches.E001",
        )
    if retry <= timeout:
        yield Error(
            f"Q_CLUSTER['retry'] ({retry}) must be longer than Q_CLUSTER['timeout'] ({timeout}).",
            hint="django-q2 delivers a task again after `retry`, whether it still runs or not.",
            id="batches.E002",
        )
    if queue.get("save_limit") != -1:
        yield Error(
            "Q_CLUSTER['save_limit'] must be -1.",
            hint="Any other value makes each finished task read and lock stored results; jobs have their own history.",
            id="batches.E003",
        )
    if queue.get("ack_failures") is not True or queue.get("max_attempts") != 1 or queue.get("catch_up") is not False:
        yield Error(
            "Q_CLUSTER needs ack_failures=True, max_attempts=1 and catch_up=False.",
            hint="Retries belong to the engine's rows; a message is only a wake-up.",
            id="batches.E004",
        )
    if queue.get("orm") != "default":
        yield Error(
            "Q_CLUSTER['orm'] must be 'default', the database of the jobs.",
            hint="Only then is a wake-up stored in the same transaction as the work that it announces.",
            id="batches.E006",
        )


@register
def database_settings(**_: Any) -> list[CheckMessage]:
    return list(_database_problems(settings.DATABASES["default"]))


def _database_problems(database: dict[str, Any]) -> Iterator[CheckMessage]:
    options = database.get("OPTIONS") or {}
    if database["ENGINE"] == "django.db.backends.sqlite3":
        commands = options.get("init_command", "").replace(" ", "").lower()
        fits = (
            options.get("transaction_mode") == "IMMEDIATE"
            and options.get("timeout", 0) >= LEAST_BUSY_TIMEOUT_SECONDS
            and "journal_mode=wal" in commands
            and "foreign_keys=on" in commands
        )
        if not fits:
            yield Error(
                "SQLite needs transaction_mode IMMEDIATE, WAL, foreign_keys=ON and a timeout of at least "
                f"{LEAST_BUSY_TIMEOUT_SECONDS} s in its OPTIONS.",
                hint="Without them several processes meet 'database is locked' half way through a transaction.",
                id="batches.E005",
            )
    elif options.get("pool"):
        yield Error(
            "DATABASES['default']['OPTIONS']['pool'] must be off.",
            hint="The pool's threads do not exist in the worker processes that the cluster forks.",
            id="batches.E009",
        )


@register
def data_folder(**_: Any) -> list[CheckMessage]:
    if os.access(settings.DATA_DIR, os.W_OK | os.X_OK):
        return []
    return [
        Error(
            f"DATA_DIR ({settings.DATA_DIR}) cannot be written by this user.",
            hint="Give the folder to this user, or set DATA_DIR to another one.",
            id="batches.E007",
        )
    ]


@register
def engine_limits(**_: Any) -> list[CheckMessage]:
    fits = 3 * ENGINE.renew_seconds <= ENGINE.lease_seconds and ENGINE.lease_margin_seconds < (
        ENGINE.lease_seconds - ENGINE.renew_seconds
    )
    if fits:
        return []
    return [
        Error(
            "A lease must last three renewals, and more than its margin must be left between two of them.",
            hint="See lease_seconds, renew_seconds and lease_margin_seconds in batches/conf.py.",
            id="batches.E008",
        )
    ]


@register
def key_on_the_wire(**_: Any) -> list[CheckMessage]:
    parts = urlsplit(settings.RELAYPDF_BASE_URL)
    if parts.scheme != "http" or _is_this_machine(parts.hostname or ""):
        return []
    return [
        Warning(
            f"RELAYPDF_BASE_URL is {settings.RELAYPDF_BASE_URL}: the API key and every document travel unencrypted.",
            hint="Use https://, unless the network in between is yours alone.",
            id="batches.W001",
        )
    ]


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
