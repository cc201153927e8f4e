"""`python -m tests.chaos --database sqlite|postgres --documents N --seed N`: one run; exit 0 when all was kept, else 1.

For PostgreSQL it starts a server of its own, unless DATABASE_URL names one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn
from urllib.parse import urlsplit

from tests import postgres
from tests.chaos.run import Plan, run


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    has_server = urlsplit(os.environ.get("DATABASE_URL", "")).scheme in ("postgres", "postgresql")
    if options.database == "postgres" and not has_server:
        return postgres.main(["--", sys.executable, "-m", "tests.chaos", *arguments])
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="chaos-")).resolve()
    plan = Plan(
        database=options.database,
        documents=options.documents,
        seed=options.seed,
        blows_seconds=options.seconds_most,
        folder=folder,
        store=options.store,
        workers=options.workers,
        kill_sandbox=options.kill_sandbox,
        say=_say,
    )
    plan.say(f"seed {plan.seed}, everything lies in {folder}")
    signal.signal(signal.SIGTERM, _stop)  # so that nothing is left running
    report = run(plan)
    text = json.dumps(report.as_json(), indent=2)
    (folder / "report.json").write_text(text, encoding="utf-8")
    sys.stdout.write((text if options.json else "\n".join(report.lines())) + "\n")
    plan.say(f"the report as JSON: {folder / 'report.json'}")
    return 1 if report.breaches else 0


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--seed", type=int, help="Documents, faults and blows follow from it; random if not given.")
    parser.add_argument(
        "--seconds-most", type=float, default=600.0, help="Blows fall no longer than this; then all has to end."
    )
    parser.add_argument("--store", choices=("disk", "s3"), default="disk")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kill-sandbox", action="store_true", help="Kill the sandbox too; its state is durable.")
    parser.add_argument("--folder", help="Where everything lies; a new one if not given.")
    parser.add_argument("--json", action="store_true", help="Print the report as JSON.")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
