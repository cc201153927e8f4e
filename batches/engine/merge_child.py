"""The child of `merging`: gathers PDFs into one file. Imports nothing of `batches`; run as a file.

Questions: `{"add": path, "odd": bool}`, answered by where its pages begin and how many it has; `{"save": path}`. With
`odd` each document begins on an odd page: a blank one, as large as the last, goes before it where it needs one.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from typing import Any

MEGABYTE = 1024 * 1024


def limit() -> None:
    """Memory and open files, so that a bomb ends here. Not offered on every system."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1536 * MEGABYTE, 1536 * MEGABYTE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


class Gathering:
    def __init__(self) -> None:
        import pypdfium2

        self._library = pypdfium2
        self._whole = pypdfium2.PdfDocument.new()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if "save" in question:
            self._whole.save(question["save"], version=17)
            return {"pages": len(self._whole)}
        return self._add(question["add"], odd=question["odd"])

    def _add(self, path: str, *, odd: bool) -> dict[str, Any]:
        whole = self._whole
        try:
            document = self._library.PdfDocument(path)
        except self._library.PdfiumError as error:
            return {"problem": f"It cannot be opened as a PDF ({error})."}
        try:
            count = len(document)
            if count < 1:
                return {"problem": "It has no pages."}
            if odd and len(whole) % 2:
                whole.new_page(*whole[len(whole) - 1].get_size()).close()
            first = len(whole) + 1
            whole.import_pages(document)
        except self._library.PdfiumError as error:
            return {"problem": f"Its pages cannot be taken over ({error})."}
        finally:
            document.close()
        return {"first": first, "pages": count}


def main() -> None:
    limit()
    seconds = int(sys.argv[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it also inside the library; a handler would wait for it
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever asked was killed: it ends without a word
    gathering = Gathering()
    for line in sys.stdin.buffer:
        signal.alarm(seconds)
        answer = gathering.answer(json.loads(line))
        signal.alarm(0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
