"""Every constant of the engine and its limits, typed, with the reason for its value. Imports nothing of `batches`.

What an owner may change comes from the environment through `relaypdf_site/settings.py`; what an account may change
lies on its row. The rest stands here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineConf:
    """Durations are seconds. `batches/checks.py` proves that they fit each other and django-q2's settings."""

    #: A killed pump's jobs are claimed again after this long; renewed three times within it.
    lease_seconds: float = 15.0
    renew_seconds: float = 5.0
    #: A pump ends by itself long before django-q2's `timeout`, which would kill it at any bytecode.
    pump_budget_seconds: float = 40.0
    #: A pump without work gives its worker back.
    pump_idle_seconds: float = 2.0
    #: With one worker, a pump makes room this soon when another task waits.
    pump_yield_seconds: float = 5.0
    claim_interval_seconds: float = 0.25
    account_refresh_seconds: float = 1.0
    #: Outcomes are written together when this many wait, or the oldest has waited this long.
    flush_rows: int = 300
    flush_seconds: float = 0.03
    #: The same while so many outcomes a second arrive (three a document): fewer and larger writes.
    flush_busy_seconds: float = 0.15
    flush_busy_rate: float = 80.0
    #: Most jobs that one pump holds in memory, most of them at the provider: rate x job time x 2, so that two pumps can
    #: have 10,000 documents of 5 s there at once. One costs about 2 KB.
    held_most: int = 6000
    submit_threads: int = 16
    #: Without a pace, so many more intents are committed than threads are free, in fewer and larger writes.
    submit_line: int = 32
    poll_threads: int = 16
    fetch_threads: int = 6
    #: Finished PDFs of an account that may wait for a download before it sends nothing new: minutes of work for the
    #: fetch threads, so that no pace is lost, and few enough that a store without room costs no more renders.
    fetch_backlog_most: int = 500
    #: Making and reading back request bytes; apart from downloads, so that a slow backlog of them stops no submission.
    prepare_threads: int = 2
    #: How often a pump looks how busy its process is; above the first share of one core it uses half as many threads of
    #: its pools, below the second twice as many.
    breadth_look_seconds: float = 0.25
    breadth_busy_share: float = 0.55
    breadth_idle_share: float = 0.35

    connect_timeout: float = 5.0
    #: Budget + the longest call stays under django-q2's `timeout` (batches.E001).
    read_timeout: float = 20.0
    #: Longest download; it may begin with a pump's last breath.
    download_timeout: float = 60.0
    #: Time that must be left of a lease when bytes leave.
    lease_margin_seconds: float = 3.0

    #: Slots are given out at most this far ahead: what a killed pump can waste.
    slot_horizon_seconds: float = 0.5
    #: A slot missed by more than the larger of these is given up, never caught up with.
    slot_late_seconds: float = 0.008
    slot_late_share: float = 0.04
    #: Added to every window so that two slots exactly one window apart cannot arrive closer than that.
    window_margin_seconds: float = 0.25

    submit_tries_most: int = 6
    #: So many 429 for one key, while others of its account are accepted since, speak of the key and not of the pace.
    limited_tries_most: int = 3
    #: Documents in a row, with no acceptance between, that are refused in words that are not the service's: with the
    #: last of them it is the account's trouble and no longer the documents'.
    strange_documents_most: int = 3
    backoff_first_seconds: float = 1.0
    backoff_most_seconds: float = 60.0
    #: Transport failures in a row that hold an account as unreachable, and the pace of its probes.
    unreachable_after: int = 3
    probe_first_seconds: float = 2.0
    probe_most_seconds: float = 30.0
    #: While an account is held for credit its balance is read: first soon, to know what there was, then slowly.
    credit_check_first_seconds: float = 2.0
    credit_check_seconds: float = 60.0
    #: Skew that is added to a provider's Retry-After, and up to so much jitter; the longest that is believed at once.
    retry_after_skew_seconds: float = 0.5
    retry_after_spread_seconds: float = 1.0
    retry_after_most_seconds: float = 300.0
    #: From the third resend of what may have arrived: 30, 120, 240 s at most, so that an outage of a minute or two
    #: does not use up all six tries.
    doubt_first_seconds: float = 30.0
    doubt_growth: float = 4.0
    doubt_most_seconds: float = 240.0
    #: A 409 on our own bytes means that the first request is still in flight: the tries that are left are spread over
    #: the minutes that a slow render may take (6, 18, 54, 162, 240 s, each less up to a half).
    conflict_first_seconds: float = 2.0
    conflict_growth: float = 3.0
    conflict_most_seconds: float = 240.0

    poll_growth: float = 1.6
    #: Two status reads of one job are never closer, however short its kind; an answer itself takes about as long.
    poll_step_least_seconds: float = 0.1
    #: Where webhooks prove reliable, the first read waits so many times the slowest that is expected, and this longer.
    woken_patience: float = 1.5
    woken_patience_seconds: float = 1.0
    #: While nothing is known, so many jobs of an account are read from early on; what they show times the others.
    pioneers_most: int = 12
    #: How often a pump looks for webhook events, how many it takes at once, and how far behind the newest it begins.
    events_seconds: float = 0.25
    events_most: int = 2000
    events_behind: int = 200
    #: The late watch: first read, then after this share of the time since acceptance, at most an hour. A day costs
    #: some thirty reads; a job that is only a little late is found within minutes.
    watch_first_seconds: float = 300.0
    watch_share: float = 0.25
    watch_most_seconds: float = 3600.0
    #: How often a submission that is said to be finished late is fetched anew, before it is left to a person.
    rescues_most: int = 2
    #: How often a pump looks for due watches, and how many it makes of one account at a time: they give way to others.
    watch_look_seconds: float = 5.0
    watch_reads_most: int = 2
    #: A learned deadline moves slowly; so many seconds old it is as good as new.
    deadline_learn_seconds: float = 60.0
    #: How often a pump reads the durations that the others have recorded; its own it knows at once.
    learn_seconds: float = 5.0
    #: How often a submission that is in doubt is looked at while its account is held.
    poll_held_seconds: float = 10.0
    #: resend_until = first send + key retention - the larger of these.
    resend_margin_seconds: float = 60.0
    resend_margin_share: float = 0.10
    #: How long a submission may be repeated where the provider takes no key and a second render does no harm.
    harmless_resend_seconds: float = 3600.0
    #: The retry budget of an account: each first submission earns a share of a repeat, and an accepted repeat, which
    #: ends its document's trouble, gives its token back. So repeats in vain stay under a sixth of all requests, and all
    #: repeats under three eighths: where a share p of requests is lost they are min(p, 0.2 / (p + 0.2)) of all. On top
    #: of that come a bucket that holds what a sudden outage leaves in doubt (3 pumps x 16 threads), and a little with
    #: time, so that the last documents of a batch are not left without: at one first submission in three seconds it is
    #: more than they earn, and repeats in vain stay under a third.
    retry_share: float = 0.2
    retry_tokens_most: float = 50.0
    retry_tokens_per_second: float = 0.1
    #: A repeat goes without budget when its key's window would close this soon: never unknown for want of budget.
    resend_urgent_seconds: float = 60.0
    #: Further submissions of a document after renders that failed and were not billed.
    render_again_most: int = 2

    #: Downloads that gave no usable PDF before the job fails as bad_output.
    bad_output_fetches: int = 3
    #: A download that is cut off each time: so many tries, and so long at least, while other files come whole.
    cut_off_tries: int = 12
    cut_off_seconds: float = 15 * 60.0
    #: How long a finished job's file is believed to live where the provider names no end.
    link_lifetime_seconds: float = 24 * 3600
    download_bytes_most: int = 256 * 1024**2
    pdf_check_seconds: float = 20.0

    #: An export waits for a store that does not answer. It is tried again after half of the time that it has waited so
    #: far, within these two, so that a short outage costs seconds and a long one few tries.
    export_wait_first_seconds: float = 5.0
    export_wait_most_seconds: float = 300.0
    #: Then it fails in words: longer than a night, so that what is ordered in the evening is there when the store is
    #: repaired in the morning, and no longer, since what it would hold then is of another day.
    export_wait_hours: float = 14.0
    #: From its first turn on, with all its waits, however slow the store is.
    export_built_within_hours: float = 24.0

    #: Inputs and request bodies up to this size lie in the row, larger ones in the store.
    inline_bytes_most: int = 64 * 1024


ENGINE = EngineConf()
