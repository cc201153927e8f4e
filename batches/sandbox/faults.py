"""Rules that make the sandbox misbehave on purpose: `{"when": {…}, "do": "…", …}`.

Decides which rules apply at which point; what an action does is written where that point is served (submission,
jobs, files, deliveries). The README lists conditions and actions with examples.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batches.sandbox.store import Store
from batches.sandbox.switches import BadSwitch

# Every action, the point where it applies, and the parameters that it takes.
ACTIONS: dict[str, tuple[str, frozenset[str]]] = {
    "drop_before_acceptance": ("submit", frozenset()),
    "drop_after_acceptance": ("submit", frozenset()),
    "error_before_acceptance": ("submit", frozenset({"status", "code", "message", "retry_after", "form"})),
    "error_after_acceptance": ("submit", frozenset({"status", "code", "message", "retry_after", "form"})),
    "html_502_before_acceptance": ("submit", frozenset({"status"})),
    "html_502_after_acceptance": ("submit", frozenset({"status"})),
    "rate_limited": ("submit", frozenset({"retry_after", "form"})),
    "slow_before_acceptance": ("submit", frozenset({"seconds"})),
    "slow_after_acceptance": ("submit", frozenset({"seconds"})),
    "answer_after_acceptance": ("submit", frozenset({"status", "body", "content_type", "omit"})),
    "stuck": ("job", frozenset()),
    "fail": ("job", frozenset({"code", "message", "seconds"})),
    "take": ("job", frozenset({"seconds"})),
    "poll_drop": ("poll", frozenset()),
    "poll_slow": ("poll", frozenset({"seconds"})),
    "poll_error": ("poll", frozenset({"status", "code", "message", "retry_after", "form"})),
    "poll_answer": ("poll", frozenset({"status", "body", "content_type"})),
    "download_drop": ("download", frozenset()),
    "download_slow": ("download", frozenset({"seconds"})),
    "download_error": ("download", frozenset({"status", "code", "message", "retry_after", "form"})),
    "expired_file": ("download", frozenset({"answer"})),
    "truncated_file": ("download", frozenset({"share", "content_length"})),
    "error_page": ("download", frozenset({"status", "body", "content_type"})),
    "wrong_content_type": ("download", frozenset({"content_type"})),
    "delete_error": ("delete", frozenset({"status", "code", "message", "retry_after", "form"})),
    "webhook_lost": ("webhook", frozenset()),
    "webhook_late": ("webhook", frozenset({"seconds", "signed"})),
    "webhook_duplicate": ("webhook", frozenset({"copies", "seconds", "reserialised"})),
    "webhook_reordered": ("webhook", frozenset({"seconds"})),
    "webhook_reserialised": ("webhook", frozenset()),
    "webhook_bad_signature": ("webhook", frozenset()),
}

_CONDITIONS = frozenset(
    {"body_contains", "body_matches", "key_contains", "job_id", "event", "mode", "nth", "every", "probability", "times"}
)


# Parameters that are words, and the words there are.
_WORDS: dict[str, tuple[str, ...]] = {
    "form": ("seconds", "http_date", "missing"),
    "answer": ("404", "410", "403_xml"),
    "content_length": ("right", "wrong"),
    "signed": ("sent", "created"),
}


@dataclass(frozen=True)
class Facts:
    """What a rule may look at. `body` is the raw body of the submission, also for polls, files and webhooks."""

    body: bytes = b""
    key: str | None = None
    job_id: str | None = None
    event: str | None = None
    mode: str | None = None


@dataclass(frozen=True)
class Rule:
    """One checked rule. `name` identifies its counters: the same rule keeps them over restarts."""

    name: str
    when: dict[str, Any]
    action: str
    parameters: dict[str, Any]

    @property
    def point(self) -> str:
        return ACTIONS[self.action][0]

    def number(self, parameter: str, default: float) -> float:
        return float(self.parameters.get(parameter, default))

    def text(self, parameter: str, default: str) -> str:
        return str(self.parameters.get(parameter, default))


def parse_rules(raw: Sequence[dict[str, Any]]) -> tuple[Rule, ...]:
    """Check rules as they come from a switch. Raises BadSwitch with the position."""
    return tuple(_parse(rule, position) for position, rule in enumerate(raw))


def _parse(raw: Any, position: int) -> Rule:
    where = f"faults[{position}]"
    if not isinstance(raw, dict) or not isinstance(raw.get("when", {}), dict):
        raise BadSwitch(f'{where} must look like {{"when": {{…}}, "do": "…"}}')
    action = raw.get("do")
    if action not in ACTIONS:
        raise BadSwitch(f"{where}.do must be one of {', '.join(ACTIONS)}, not {action!r}")
    when = raw.get("when", {})
    parameters = {name: value for name, value in raw.items() if name not in ("when", "do", "name")}
    for name in sorted(set(when) - _CONDITIONS):
        raise BadSwitch(f"{where}.when has no condition {name!r}; there are {', '.join(sorted(_CONDITIONS))}")
    for name in sorted(set(parameters) - ACTIONS[action][1]):
        known = ", ".join(sorted(ACTIONS[action][1])) or "none"
        raise BadSwitch(f"{where}: {action} takes no {name!r}; it takes {known}")
    _check_values(when, parameters, where)
    name = str(raw.get("name") or f"{position}:{json.dumps(raw, sort_keys=True)}")
    return Rule(name, when, action, parameters)


def _check_values(when: dict[str, Any], parameters: dict[str, Any], where: str) -> None:
    try:
        re.compile(str(when.get("body_matches", "")))
    except re.error as error:
        raise BadSwitch(f"{where}.when.body_matches is not a regular expression: {error}") from error
    for name in ("every", "times"):
        if name in when and not (isinstance(when[name], int) and when[name] >= 1):
            raise BadSwitch(f"{where}.when.{name} must be a whole number from 1 up")
    nth = when.get("nth", [])
    if not all(isinstance(n, int) and n >= 1 for n in (nth if isinstance(nth, list) else [nth])):
        raise BadSwitch(f"{where}.when.nth must be a number from 1 up, or a list of them")
    probability = when.get("probability", 0)
    if not isinstance(probability, int | float) or not 0 <= probability <= 1:
        raise BadSwitch(f"{where}.when.probability must lie between 0 and 1")
    for name, words in _WORDS.items():
        if name in parameters and str(parameters[name]) not in words:
            raise BadSwitch(f"{where}.{name} must be one of {', '.join(words)}, not {parameters[name]!r}")
    for name in ("seconds", "share", "status", "copies", "retry_after"):
        value = parameters.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise BadSwitch(f"{where}.{name} must be a number from 0 up")


class Faults:
    """The rules in force and their counters. Thread-safe through the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: tuple[Rule, ...] = ()
        self._seed = 0

    def use(self, rules: tuple[Rule, ...], seed: int) -> None:
        self._rules, self._seed = rules, seed

    def forget(self) -> None:
        """Start all counters anew."""
        with self._store.write() as tx:
            tx.execute("DELETE FROM fault_marks")

    def watches(self, point: str) -> bool:
        """Whether any rule could apply at `point`; spares looking up the facts."""
        return any(rule.point == point for rule in self._rules)

    def at(self, point: str, facts: Facts) -> list[Rule]:
        """The rules that strike now, in their order. Counts matches, so call it once per event."""
        return [
            rule for rule in self._rules if rule.point == point and _matches(rule.when, facts) and self._strikes(rule)
        ]

    def _strikes(self, rule: Rule) -> bool:
        when = rule.when
        if not {"nth", "every", "probability", "times"} & when.keys():
            return True
        with self._store.write() as tx:
            row = tx.execute("SELECT matched, fired FROM fault_marks WHERE rule = ?", (rule.name,)).fetchone()
            matched, fired = (row["matched"] + 1, row["fired"]) if row else (1, 0)
            strikes = _is_due(when, matched, fired, f"{self._seed}/{rule.name}/{matched}")
            tx.execute("INSERT OR REPLACE INTO fault_marks VALUES (?, ?, ?)", (rule.name, matched, fired + strikes))
        return strikes


def _is_due(when: dict[str, Any], matched: int, fired: int, dice: str) -> bool:
    """Whether the `matched`-th match strikes. The dice depend on the seed and the count alone."""
    if fired >= when.get("times", fired + 1):
        return False
    if "nth" in when:
        nth = when["nth"]
        if matched not in (nth if isinstance(nth, list) else [nth]):
            return False
    if matched % when.get("every", 1):
        return False
    return "probability" not in when or random.Random(dice).random() < when["probability"]  # noqa: S311  # repeatable dice, not secrets


def _matches(when: dict[str, Any], facts: Facts) -> bool:
    return (
        ("body_contains" not in when or str(when["body_contains"]).encode() in facts.body)
        and ("body_matches" not in when or re.search(str(when["body_matches"]).encode(), facts.body) is not None)
        and ("key_contains" not in when or str(when["key_contains"]) in (facts.key or ""))
        and all(name not in when or when[name] == getattr(facts, name) for name in ("job_id", "event", "mode"))
    )
