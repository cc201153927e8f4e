"""`python -m benchmarks TABLE`; `benchmarks/README.md` says what each table is."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType
from typing import NoReturn

from benchmarks import throughput


def _end_in_order(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    tables = parser.add_subparsers(dest="table", required=True)
    one = tables.add_parser("throughput", help="documents per second against the three baselines")
    one.add_argument("--rounds", type=int, default=5)
    one.add_argument("--documents", type=int, default=2000)
    one.add_argument("--delays", type=float, nargs="+", default=[0.0, 1.0, 5.0])
    one.add_argument("--only", default="", help="only contenders whose name holds this, for development")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end_in_order)
    try:
        if options.table == "throughput":
            throughput.run(rounds=options.rounds, documents=options.documents, delays=options.delays, only=options.only)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing was written\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
