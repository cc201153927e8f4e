"""The child of `pdfcheck`: paths in, one JSON answer a line out. Imports nothing of `batches`; run as a file.

It ends when its parent does, for its input then ends; a file that hangs it is ended by its own alarm. (The kernel's
death signal would not do: it comes when the thread ends that had started the child, while others still use it.)
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys

MEGABYTE = 1024 * 1024


def limit() -> None:
    """Memory and open files, so that a bomb ends here. Not offered on every system."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1536 * MEGABYTE, 1536 * MEGABYTE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def look(path: str) -> dict[str, object]:
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
    except pypdfium2.PdfiumError as error:
        return {"pages": 0, "problem": f"Its pages cannot be read ({error})."}
    finally:
        document.close()
    return {"pages": pages, "problem": ""}


def main() -> None:
    limit()
    seconds = int(sys.argv[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it also inside the library; a handler would wait for it
    for line in sys.stdin.buffer:
        signal.alarm(seconds)
        answer = look(json.loads(line))
        signal.alarm(0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
