"""Measurements of the whole product against a local peer that renders nothing (`benchmarks/README.md`).

Not part of the product: nothing in `batches/` imports this, and no test run or CI job starts it.
"""

from __future__ import annotations
