"""`python -m benchmarks TABLE`; `benchmarks/README.md` says what each table is."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType
from typing import NoReturn

from benchmarks import causes, intake, pacing, provider_requests, scale, statements, throughput
from benchmarks import zip as archive

DATABASES = ("sqlite", "postgres")


def _end_in_order(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    tables = parser.add_subparsers(dest="table", required=True)
    one = tables.add_parser("throughput", help="documents per second against the three baselines")
    one.add_argument("--rounds", type=int, default=5)
    one.add_argument("--documents", type=int, default=2000)
    one.add_argument("--delays", type=float, nargs="+", default=[0.0, 1.0, 5.0])
    one.add_argument("--only", default="", help="only contenders whose name holds this, for development")
    one = tables.add_parser("scale", help="10,000 documents of 5 s in flight")
    one.add_argument("--documents", type=int, default=10_000)
    one.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    one = tables.add_parser("causes", help="the batch page with 10,000 failures of six causes")
    one.add_argument("--documents", type=int, default=10_000)
    one.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    one = tables.add_parser("statements", help="database statements a document, and memory of a worker")
    one.add_argument("--documents", type=int, nargs="+", default=[2000, 50_000])
    one.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    one = tables.add_parser("pacing", help="the pace as the peer saw it")
    one.add_argument("--rates", type=float, nargs="+", default=[1, 20, 100])
    one.add_argument("--database", choices=DATABASES, default="sqlite")
    one.add_argument("--clusters", type=int, default=1)
    one.add_argument("--seconds", type=float, default=60)
    one = tables.add_parser("requests", help="provider requests a document, and how soon it is saved")
    one.add_argument("--database", choices=DATABASES, default="postgres")
    one.add_argument("--webhooks", action="store_true")
    one = tables.add_parser("intake", help="100,000 rows checked and started, and what others wait for meanwhile")
    one.add_argument("--rows", type=int, default=100_000)
    one.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    shapes = [shape.name for shape in intake.SHAPES]
    one.add_argument("--shapes", nargs="+", choices=shapes, default=shapes)
    one = tables.add_parser("zip", help="the ZIP of 10,000 stored PDFs against a plain copy of them")
    one.add_argument("--documents", type=int, default=10_000)
    one.add_argument("--size", type=int, default=20_000)
    one.add_argument("--rounds", type=int, default=3)
    return parser


def main() -> int:
    options = vars(_parser().parse_args())
    signal.signal(signal.SIGTERM, _end_in_order)
    measure = {
        "throughput": lambda **given: throughput.run(**given),
        "scale": lambda **given: scale.run(**given),
        "causes": lambda **given: causes.run(**given),
        "statements": lambda documents, databases: statements.run(sizes=documents, databases=databases),
        "pacing": lambda **given: pacing.run(**given),
        "intake": lambda **given: intake.run(**given),
        "zip": lambda **given: archive.run(**given),
        "requests": lambda **given: provider_requests.run(**given),
    }[options.pop("table")]
    try:
        measure(**options)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing was written\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
