"""`python -m batches.sandbox`: the sandbox without Django."""

from __future__ import annotations

import sys

from batches.sandbox.cli import main

sys.exit(main())
