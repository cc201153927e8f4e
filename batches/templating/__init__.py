"""Templates in Liquid: checked whole when they are uploaded, filled from the data of a row. No Django, no clock, no
network, no other file; see README.md."""

from __future__ import annotations

from batches.templating.assets import Files, Inlined, inlined
from batches.templating.compiling import Compiled, compiled
from batches.templating.limits import LIMITS, Limits
from batches.templating.problems import Fault, MissingValue, NotFilled, Problem, TemplateRefused
from batches.templating.reads import Need, Read, of_fields
from batches.templating.samples import columns, example

__all__ = [
    "LIMITS",
    "Compiled",
    "Fault",
    "Files",
    "Inlined",
    "Limits",
    "MissingValue",
    "Need",
    "NotFilled",
    "Problem",
    "Read",
    "TemplateRefused",
    "columns",
    "compiled",
    "example",
    "inlined",
    "of_fields",
]
