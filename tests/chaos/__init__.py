"""Chaos on the true stack: real processes, a hostile sandbox, kill -9 of a random one of ours every few seconds.

python -m tests.chaos --database sqlite --documents 500 --seed 7
"""

from __future__ import annotations
