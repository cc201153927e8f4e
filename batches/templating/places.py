"""Where something stands in a text."""

from __future__ import annotations

import re
from bisect import bisect_right


class Places:
    """Lines and columns of a text, by offset; both count from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer(r"\n", text))]

    def of(self, offset: int) -> tuple[int | None, int | None]:
        if offset < 0:
            return None, None
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
