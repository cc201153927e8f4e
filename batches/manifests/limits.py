"""The limits an upload is read under; owns the numbers' defaults and never reads settings itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one upload may hold. Sizes are bytes; a "MB" shown to people is 1,000,000 bytes.

    Every limit is checked before the thing is read, or while it is inflated (bytes that really came
    out are counted, never the sizes an archive claims).
    """

    max_rows: int = 100_000
    max_manifest_bytes: int = 1_000_000_000
    """The manifest itself, wherever it stands: 100,000 rows that hold their documents of some 8 kB."""
    max_row_bytes: int = 32_000_000
    """One row of a manifest as JSON; bounds what is parsed at once. A document of the most bytes takes up to 30 MB,
    where each of them is written as an escape of six."""
    max_upload_bytes: int = 2_000_000_000
    """The uploaded file as it came (a ZIP still packed)."""
    max_unpacked_bytes: int = 2_000_000_000
    """All entries of a ZIP together, unpacked."""
    max_document_bytes: int = 5_000_000
    """One document: its bytes as given, and its text as UTF-8, which is what leaves."""
    max_entries: int = 250_000
    """Entries of a ZIP, or files met below a folder."""
    max_ratio: int = 200
    """Unpacked : packed of one ZIP entry; small entries are let off (see `ratio_floor_bytes`)."""
    ratio_floor_bytes: int = 25_000_000
    """Entries up to this size may have any ratio: a page with thousands of equal rows is no bomb. A
    document above `max_document_bytes` is an error of its row, found without unpacking it."""
    max_depth: int = 64
    """Nesting of the JSON: list, row, options, margin is 4."""
    max_places: int = 1_000
    """Rows described one by one per kind of problem; further ones are counted and listed by number."""
    blocks_private: bool = False
    """Whether a reference to a private address or a local file is an error of its row: for a provider that renders
    inside our network, where such an address may be reached. Else it is a warning."""
    sources: frozenset[str] | None = None
    """The kinds of document that the account takes to which the upload goes; a row with another is an error. None: not
    asked."""
    account: str = ""
    """The account's slug, for the words of that."""
