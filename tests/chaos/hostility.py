"""What the other side does to each document: drawn from one seed, so that every document's end is known beforehand.

A lot is a few fault rules of the sandbox that hold for one document only and strike a bounded number of times, fewer
than the engine's tries. So whatever is drawn and whatever is killed meanwhile, a document ends as `Document.end` says.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SAVED, FAILED, DEADLINE_EXCEEDED = "saved", "failed", "deadline_exceeded"
Rule = Mapping[str, Any]

#: The point where a lot strikes, its name, its rules.
LOTS: Sequence[tuple[str, str, Sequence[Rule]]] = (
    ("submit", "answer lost after acceptance", [{"do": "drop_after_acceptance"}]),
    ("submit", "answer lost, twice", [{"do": "drop_before_acceptance"}, {"do": "drop_after_acceptance"}]),
    ("submit", "503 after acceptance", [{"do": "error_after_acceptance", "status": 503, "times": 2}]),
    ("submit", "500 before acceptance", [{"do": "error_before_acceptance", "status": 500}]),
    ("submit", "a proxy's page after acceptance", [{"do": "html_502_after_acceptance"}]),
    ("submit", "429, seconds", [{"do": "rate_limited", "retry_after": 1, "form": "seconds"}]),
    ("submit", "429, date", [{"do": "rate_limited", "retry_after": 2, "form": "http_date"}]),
    ("submit", "429 without a time", [{"do": "rate_limited", "form": "missing"}]),
    ("submit", "slow before acceptance", [{"do": "slow_before_acceptance", "seconds": 4}]),
    ("submit", "slow after acceptance", [{"do": "slow_after_acceptance", "seconds": 4}]),
    ("job", "a long job", [{"do": "take", "seconds": 8, "times": None}]),
    ("poll", "status read lost", [{"do": "poll_drop", "times": 2}]),
    ("poll", "status read 502", [{"do": "poll_error", "status": 502, "times": 2}]),
    ("poll", "slow status read", [{"do": "poll_slow", "seconds": 4}]),
    ("poll", "unknown word", [{"do": "poll_answer", "body": {"status": "reticulating"}, "times": 2}]),
    ("poll", "a page as status", [{"do": "poll_answer", "body": "<html>Busy</html>", "content_type": "text/html"}]),
    ("download", "cut short", [{"do": "truncated_file", "share": 0.6}]),
    ("download", "cut short, length agrees", [{"do": "truncated_file", "share": 0.9, "content_length": "wrong"}]),
    ("download", "a page instead of the PDF", [{"do": "error_page", "times": 2}]),
    ("download", "download lost", [{"do": "download_drop"}]),
    ("download", "download 500", [{"do": "download_error", "status": 500, "times": 2}]),
    ("download", "slow download", [{"do": "download_slow", "seconds": 3}]),
    ("download", "another content type", [{"do": "wrong_content_type", "content_type": "text/html"}]),
    ("download", "link expired once", [{"do": "expired_file", "answer": "403_xml"}]),
    ("webhook", "webhook lost", [{"do": "webhook_lost"}]),
    ("webhook", "webhook three times", [{"do": "webhook_duplicate", "copies": 2, "reserialised": True}]),
    ("webhook", "webhook late", [{"do": "webhook_late", "seconds": 10}]),
    ("webhook", "webhook out of order", [{"do": "webhook_reordered", "seconds": 5}]),
    ("webhook", "webhook forged", [{"do": "webhook_bad_signature"}]),
)
FAILS: Rule = {"do": "fail", "code": "render_failed", "message": "The page cannot be laid out.", "times": None}
STUCK: Rule = {"do": "stuck", "times": None}
#: Shares of the documents.
CALM_SHARE, TWO_LOTS_SHARE, FAILING_SHARE, STUCK_SHARE = 0.35, 0.25, 0.02, 0.01


@dataclass(frozen=True)
class Document:
    """One document: what it is called, what will be done to it, and the state it has to end in."""

    business_id: str
    html: str
    lots: tuple[str, ...]
    rules: tuple[Rule, ...]
    end: str


def documents(count: int, rng: random.Random, *, with_stuck: bool) -> list[Document]:
    """`count` documents with their lots. `with_stuck`: some jobs never end, so the run lasts until their deadline."""
    return [_document(f"CHAOS-{number:05}", rng, with_stuck=with_stuck) for number in range(1, count + 1)]


def _document(business_id: str, rng: random.Random, *, with_stuck: bool) -> Document:
    html = f"<h1>Invoice {business_id}</h1><p>Amount due: {rng.randrange(100, 99_999) / 100:.2f} EUR</p>"
    lots: dict[str, tuple[str, Sequence[Rule]]] = {}
    if rng.random() >= CALM_SHARE:
        for _ in range(2 if rng.random() < TWO_LOTS_SHARE else 1):
            point, name, rules = rng.choice(LOTS)
            lots.setdefault(point, (name, rules))
    end, dice = SAVED, rng.random()
    if dice < FAILING_SHARE:
        lots["job"], end = ("the job fails", [FAILS]), FAILED
    elif with_stuck and dice < FAILING_SHARE + STUCK_SHARE:
        lots["job"], end = ("the job never ends", [STUCK]), DEADLINE_EXCEEDED
    rules = tuple(_for(business_id, rule) for _, group in lots.values() for rule in group)
    return Document(business_id, html, tuple(name for name, _ in lots.values()), rules, end)


def _for(business_id: str, rule: Rule) -> Rule:
    """The rule for this document alone; it strikes once where it does not say how often (None: always)."""
    times = rule.get("times", 1)
    when = {"body_contains": business_id} | ({} if times is None else {"times": times})
    return {"when": when} | {name: value for name, value in rule.items() if name != "times"}


def switches(planned: Sequence[Document], rng: random.Random) -> dict[str, Any]:
    """The sandbox's switches: every document's rules, and ways in which providers differ, drawn too."""
    return {
        "faults": [dict(rule) for document in planned for rule in document.rules],
        "jobs": {
            "min_seconds": 0.5,
            "max_seconds": 4,
            "concurrency": 8,
            "accepted_word": rng.choice(["processing", "queued", "pending"]),
        },
        "idempotency": {
            "replay": rng.choice(["same_id", "completed_body"]),
            "in_flight": rng.choice(["same_id", "refused"]),
            "after_file_gone": "replay",
        },
        "webhooks": {"retry_seconds": [2, 10, 30], "event_id": rng.random() < 0.5},
        "seed": rng.randrange(1_000_000),
    }
