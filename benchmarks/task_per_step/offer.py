"""Offer documents to the running baseline cluster: `python -m benchmarks.task_per_step.offer RUN DOCUMENTS`.

Prints one JSON line with the moment of the commit (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import json
import sys

import django


def main() -> None:
    django.setup()
    from benchmarks.task_per_step import tasks

    print(json.dumps({"committed_at": tasks.offer(sys.argv[1], int(sys.argv[2]))}))


if __name__ == "__main__":
    main()
