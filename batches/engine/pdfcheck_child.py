"""The child of `pdfcheck`: paths in, alone or with a text to find, one JSON answer a line out.

Imports nothing of `batches`; run as a file.
It ends when its parent does, for its input then ends; a file that hangs it is ended by its own alarm. (The kernel's
death signal would not do: it comes when the thread ends that had started the child, while others still use it.)
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import unicodedata
from typing import Any

MEGABYTE = 1024 * 1024
#: A business id stands on the first pages, if anywhere.
PAGES_READ = 20


def limit() -> None:
    """Memory and open files, so that a bomb ends here. Not offered on every system."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1536 * MEGABYTE, 1536 * MEGABYTE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def look(path: str, find: str = "") -> dict[str, object]:
    """Opens the file; with `find`, says too whether its text holds that as a word of its own."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        return {"pages": 0, "problem": f"It cannot be opened as a PDF ({error})."}
    except OSError as error:
        return {"pages": 0, "problem": f"It cannot be read ({error.strerror or type(error).__name__})."}
    try:
        pages = len(document)
        if pages < 1:
            return {"pages": 0, "problem": "It has no pages."}
        for index in sorted({0, pages - 1}):
            document[index].get_size()
        found = any(holds(document[index], find) for index in range(min(pages, PAGES_READ))) if find else None
    except pypdfium2.PdfiumError as error:
        return {"pages": 0, "problem": f"Its pages cannot be read ({error})."}
    finally:
        document.close()
    return {"pages": pages, "problem": "", "found": found}


def holds(page: Any, find: str) -> bool:
    """Whether the page's text shows it, and not as a part of a longer one: INV-1 is not in INV-10."""
    text = page.get_textpage().get_text_bounded()
    wanted, shown = (" ".join(unicodedata.normalize("NFKC", each).casefold().split()) for each in (find, text))
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", shown) is not None


def main() -> None:
    limit()
    seconds = int(sys.argv[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it also inside the library; a handler would wait for it
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever asked was killed: it ends without a word
    for line in sys.stdin.buffer:
        signal.alarm(seconds)
        question = json.loads(line)
        answer = look(question) if isinstance(question, str) else look(question["path"], question["find"])
        signal.alarm(0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
