"""How accounts share what a pump has only so much of, so that none can take it all from the others.

An account may take whatever is free, but for a little that is kept for each account that has less than its least: it
begins at once, however many calls of another one hang. `room` is pure; `Lines` holds the steps that wait, and is for
one thread at a time. What runs them is in `threads`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping

#: Threads of a pool that an account finds free whatever the others do, as long as there are enough for that.
THREADS_LEAST = 2
#: The same of the jobs that a pump holds in memory.
HELD_LEAST = 100

Step = Callable[[], object]


def room(account_id: int, taken: Mapping[int, int], known: Collection[int], *, most: int, least: int) -> int:
    """How many more of `most` the account may take now; `taken` is what each has, `known` are all that may come.

    With one account that is all that is free. At most half is ever kept for others, so that many idle accounts do
    not slow a busy one down to nothing.
    """
    free = most - sum(taken.values())
    others = [other for other in known if other != account_id]
    if not others:
        return max(0, free)
    each = max(1, min(least, most // (len(others) + 1)))
    lacking = sum(max(0, each - taken.get(other, 0)) for other in others)
    kept = min(lacking, most // 2)
    return max(0, free - kept, min(free, each - taken.get(account_id, 0)))


class Lines:
    """One line of waiting steps for each account, before `most` threads that they share; that may change.

    Within a line the order holds; among the lines that may go on it goes round.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lines: dict[int, deque[Step]] = {}  # whose turn is next comes first
        self._under_way: Counter[int] = Counter()
        self.known: Collection[int] = ()

    def add(self, account_id: int, step: Step) -> None:
        self._lines.setdefault(account_id, deque()).append(step)

    def begin(self) -> tuple[int, Step] | None:
        """The next step that has a thread, and its account; tell of its end by `ended`."""
        for account_id in self._lines:
            if self._room(account_id):
                line = self._lines.pop(account_id)
                step = line.popleft()
                if line:
                    self._lines[account_id] = line
                self._under_way[account_id] += 1
                return account_id, step
        return None

    def ended(self, account_id: int) -> None:
        self._under_way[account_id] -= 1
        if not self._under_way[account_id]:
            del self._under_way[account_id]

    def free(self, account_id: int) -> int:
        """How many steps of the account would begin at once."""
        return 0 if account_id in self._lines else self._room(account_id)

    def _room(self, account_id: int) -> int:
        return room(account_id, self._under_way, self.known, most=self.most, least=THREADS_LEAST)
