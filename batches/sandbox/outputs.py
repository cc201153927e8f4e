"""The bytes of rendered PDFs and uploads on disk, under names that give nothing away.

No name ends in `.pdf`: a search for PDFs must find what a client stored, not what the provider still holds.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


class Outputs:
    """Files by id in `folder`. Ids are ours (`pdf_…`, `upload_…`), never a client's text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, file_id: str, content: bytes) -> None:
        """Store whole or not at all; storing again replaces."""
        path = self._path(file_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_bytes(content)
        partial.replace(path)

    def get(self, file_id: str) -> bytes | None:
        try:
            return self._path(file_id).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, file_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(file_id).unlink()

    def _path(self, file_id: str) -> Path:
        return self._folder / file_id[-2:] / f"{file_id}.bin"
