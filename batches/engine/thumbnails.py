"""The first page of a stored PDF as a small picture, drawn by a child process under limits, on demand."""

from __future__ import annotations

import base64
import shutil
import threading

from batches.engine.pdfchild import ChildFailed, PdfChild
from batches.storage import ArtifactStore

WIDTH = 320
SECONDS = 10.0
#: Children at the same time in one process; whoever comes then is asked to come again.
AT_ONCE = 2
_places = threading.BoundedSemaphore(AT_ONCE)
#: How long a request waits for its place.
PATIENCE = 15.0


class NoPicture(Exception):
    """None can be drawn of it; the reason stands in it."""


class Busy(Exception):
    """Others are being drawn."""


def draw(key: str, store: ArtifactStore) -> bytes:
    """A PNG of the first page. Raises `NoPicture`, `Busy`, and `storage.StoreError` where the file cannot be had."""
    if not _places.acquire(timeout=PATIENCE):
        raise Busy
    try:
        with store.staging() as path:
            with store.open(key) as source, path.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            with PdfChild("thumbnail_child.py", seconds=SECONDS) as child:
                answer = child.ask({"path": str(path), "width": WIDTH})
    except ChildFailed as error:
        raise NoPicture(f"Opening it {error}.") from error
    finally:
        _places.release()
    if "png" not in answer:
        raise NoPicture(str(answer.get("problem", "")))
    return base64.b64decode(answer["png"])
