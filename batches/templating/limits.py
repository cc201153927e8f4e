"""How much one template, and filling it once, may take. The same data always meets the same limit: no clock decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of compiling and filling."""

    source_characters: int = 6_000_000
    """Of a template with its assets inside."""
    output_bytes: int = 5_000_000
    """Of a filled document, as UTF-8; what manifests take."""
    tags: int = 20_000
    """Of a template, values that are printed counted as well."""
    fields: int = 2_000
    """Paths that a template may read."""
    path_steps: int = 30
    """Names and places of one path, loops counted as places."""
    place: int = 999
    """The last place of a list that a template may name; as in the columns of a table."""
    lines_kept: int = 100
    """Of the lines that name one field."""
    loop_iterations: int = 100_000
    """Of all loops of one fill together, inner ones counted each time."""
    nesting: int = 30
    """Blocks within blocks."""
    context_depth: int = 30
    """Loops within loops."""
    local_bytes: int = 2_000_000
    """What `assign` may keep, by the library's measure."""
    value_characters: int = 1_000_000
    """Of one text that a filter gives."""
    work: int = 500_000
    """Steps of one fill: a part of the template printed is one, and so are 64 characters that a filter reads or gives.
    On one core about a second."""
    problems: int = 100
    """Told of one template."""


LIMITS = Limits()
