"""What one seed means: how large the run is, how the account is set, and which kinds of trouble it meets.

Each kind is switched on for some seeds only ("swarm testing"): a run with every trouble at once seldom gets far enough
to meet the rare ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

#: Every kind of trouble, and the share of seeds that meet it.
KINDS: dict[str, float] = {
    # answers of the provider
    "lost_answers": 0.45,
    "server_faults": 0.3,
    "not_sent": 0.25,
    "rate_limits": 0.3,
    "slow_network": 0.3,
    "finished_at_once": 0.15,
    "double_jobs": 0.08,
    "stored_refusals": 0.2,
    "marks_replays": 0.5,
    "invalid_documents": 0.2,
    "not_found_at_first": 0.2,
    "unknown_words": 0.15,
    "failed_jobs": 0.25,
    "slow_jobs": 0.25,
    "link_expiry": 0.2,
    "bad_downloads": 0.25,
    "download_errors": 0.25,
    "outages": 0.35,
    "credit": 0.2,
    "topups": 0.5,
    "key_refused": 0.15,
    # the store
    "store_full": 0.15,
    "store_errors": 0.2,
    "store_slow": 0.15,
    "lost_objects": 0.15,
    # our processes
    "commit_kills": 0.4,
    "kills": 0.3,
    "suspensions": 0.35,
    "cluster_off": 0.25,
    "double_rings": 0.3,
    "graceful_stops": 0.2,
    "clock_jumps": 0.2,
    "database_away": 0.2,
    # what comes from outside
    "webhooks": 0.5,
    "people": 0.35,
    "changed_limits": 0.12,
    "stop_rules": 0.2,
}

#: The share of seeds in which people apply verbs to documents.
VERBS_SHARE = 0.35

#: Of seeds whose batches wait, now and then, for somebody who looks at a sample; and of those with a spend cap.
SAMPLES_SHARE = 0.25
CAPS_SHARE = 0.25

#: The share of seeds whose vendor reckons a key's age from its first sight, whatever it answered then, and of those in
#: which outages may hit submissions alone.
SIGHT_SHARE = 0.5
POST_ONLY_SHARE = 0.5
#: Of seeds whose vendor takes no idempotency key, so that nothing that may have arrived can be repeated; and of those
#: whose vendor can be asked what it has under a key.
KEYLESS_SHARE = 0.1
LOOK_UP_SHARE = 0.15
#: Of the others, whose vendor takes no key and makes drafts, which a second call begins and bills.
DRAFTS_SHARE = 0.1
#: What a vendor does with keys, and one that takes none cannot.
OF_KEYS = frozenset({"double_jobs", "stored_refusals", "marks_replays"})

#: Documents of a batch: what matters is how many faults each of them meets, so most runs are small and quick.
SIZES = (1, 1, 2, 2, 3, 5)
#: Limits show only where there is something to limit.
MANY = (6, 9, 12)


@dataclass(frozen=True)
class Plan:
    """One run. Seconds are the world's. `share` is how often a single call meets each of its troubles."""

    seed: int
    kinds: frozenset[str]
    documents: tuple[int, ...]
    trouble_seconds: float
    render_seconds: tuple[float, float]
    share: float
    retention_seconds: float
    account: dict[str, Any]
    claim_seconds: float
    refresh_seconds: float
    events_seconds: float
    pump_slots: int

    def has(self, kind: str) -> bool:
        return kind in self.kinds


def limits_of(rng: random.Random) -> dict[str, Any]:
    """Limits of an account, as a person might set them."""
    return {
        "submit_interval_ms": rng.choice((20, 100, 500, 2000)),
        "submit_burst": rng.choice((1, 1, 3)),
        "submit_windows": rng.choice(([], [], [[3, 2]], [[5, 10], [2, 1]])),
        "max_in_flight": rng.choice((1, 2, 5, 20, 20, 20)),
    }


def plan_of(seed: int) -> Plan:
    rng = random.Random(f"plan {seed}")
    kinds = frozenset(kind for kind, share in KINDS.items() if rng.random() < share)
    if random.Random(f"verbs {seed}").random() < VERBS_SHARE:  # by dice of its own: every other choice stays the seed's
        kinds |= {"verbs"}
    if random.Random(f"samples {seed}").random() < SAMPLES_SHARE:
        kinds |= {"samples"}
    if random.Random(f"caps {seed}").random() < CAPS_SHARE:
        kinds |= {"caps"}
    if random.Random(f"sight {seed}").random() < SIGHT_SHARE:
        kinds |= {"keys_age_from_sight"}
    if random.Random(f"post only {seed}").random() < POST_ONLY_SHARE:
        kinds |= {"post_only_outages"}
    if random.Random(f"keyless {seed}").random() < KEYLESS_SHARE:
        kinds = (kinds | {"keyless"}) - OF_KEYS
    elif random.Random(f"look-up {seed}").random() < LOOK_UP_SHARE:
        kinds |= {"look_up"}
    elif random.Random(f"drafts {seed}").random() < DRAFTS_SHARE:
        kinds = (kinds | {"drafts"}) - OF_KEYS
    retention = rng.choice((90, 90, 120, 180, 3600))
    if "stored_refusals" in kinds:
        retention = min(
            retention, 1800
        )  # alone, a document gives a refused key up at half of it: within the quiet time
    if "double_jobs" in kinds:
        retention = max(retention, 180)  # a second holder comes only after a lease, and must still be allowed to send
    fast, slow = rng.choice(((0.2, 2), (1, 6), (5, 30)))
    return Plan(
        seed=seed,
        kinds=kinds,
        documents=tuple(
            rng.choice(MANY if "changed_limits" in kinds else SIZES) for _ in range(rng.choice((1, 1, 1, 2, 3)))
        ),
        trouble_seconds=rng.choice((20.0, 60.0, 150.0, 400.0)),
        render_seconds=(fast, slow),
        share=rng.choice((0.05, 0.15, 0.4)),
        retention_seconds=float(retention),
        account={
            **limits_of(rng),
            "poll_initial_ms": rng.choice((500, 1000, 3000)),
            "poll_max_ms": rng.choice((2000, 5000, 15000)),
            "deadline_seconds": rng.choice((20, 45, 90))
            * (5 if "drafts" in kinds else 1),  # a lost start has to settle
            "key_retention_seconds": retention,
        },
        claim_seconds=rng.choice((1.0, 3.0, 6.0)),
        refresh_seconds=rng.choice((1.0, 3.0, 6.0)),
        events_seconds=rng.choice((0.5, 2.0)) if "webhooks" in kinds else 5.0,
        pump_slots=rng.choice((1, 2, 3)),
    )
