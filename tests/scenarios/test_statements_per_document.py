"""What a document costs the database: counted, not timed, with everything on and the pump working at full load."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from batches.models import Exchange, JobEvent
from tests.engine.simulated import Complete, Word
from tests.scenarios.world import World

COUNT = 400
VERB_AND_TABLE = re.compile(r'\b(UPDATE|INSERT INTO|FROM) "(\w+)"')


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """The statements of this thread, the beginnings of transactions among them, by what they do to which table."""
    seen: Counter[str] = Counter()

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        found = VERB_AND_TABLE.search(sql)
        seen[" ".join(found.groups()) if found else sql.split(maxsplit=1)[0]] += 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        yield seen


def test_a_document_costs_at_most_one_statement_in_steady_state(make_world: Callable[..., World]) -> None:
    world = make_world(submit_interval_ms=0, poll_interval_ms=0, max_in_flight=10_000)
    names = [f"INV-{number}" for number in range(COUNT)]
    world.hand_over(*names)
    with counting() as statements:
        tally = world.pump().run()
    assert tally.saved == COUNT
    assert set(world.states().values()) == {"saved"}
    assert Exchange.objects.count() == 4 * COUNT, "a submission, two status reads and a download, each recorded"
    assert JobEvent.objects.count() == 4 * COUNT, "each change of a state is recorded"
    assert statements.total() <= COUNT, f"{statements.total() / COUNT:.2f} a document: {statements.most_common()}"


def test_status_reads_that_change_nothing_cost_none(make_world: Callable[..., World]) -> None:
    """Twenty reads a document, paced and not: their exchanges are written with what the reads lead to."""
    world = make_world(submit_interval_ms=0, poll_interval_ms=10, poll_initial_ms=200, poll_max_ms=400)
    names = [f"INV-{number}" for number in range(20)]
    for name in names:
        world.provider.script(name, status=[Word("processing")] * 20 + [Complete()])
    world.hand_over(*names)
    with counting() as statements:
        tally = world.pump().run()
    assert tally.saved == len(names)
    assert tally.polls == 21 * len(names)
    lane = sum(count for what, count in statements.items() if "pacinglane" in what)
    assert lane < tally.polls / 3, f"{lane} for {tally.polls} reads: {statements.most_common()}"
