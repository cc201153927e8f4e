"""The child of `thumbnails`: the first page of a PDF as a small PNG. Imports nothing of `batches`; run as a file.

The question is `{"path": …, "width": …}`, the answer the picture in base 64, or a problem in words. The PNG is written
here, since that takes ten lines and a picture library would be a dependency more that foreign bytes could reach.
"""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import struct
import sys
import zlib
from typing import Any

MEGABYTE = 1024 * 1024
#: A page that is much higher than wide would be a picture of any height.
HIGHEST = 2


def limit() -> None:
    """Memory and open files, so that a bomb ends here. Not offered on every system."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1024 * MEGABYTE, 1024 * MEGABYTE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def picture(path: str, width: int) -> dict[str, Any]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
        page = document[0]
        page_width, page_height = page.get_size()
        if page_width <= 0 or page_height <= 0:
            return {"problem": "Its first page has no size."}
        scale = min(width / page_width, width * HIGHEST / page_height)
        bitmap = page.render(scale=scale, may_draw_forms=False, rev_byteorder=True, prefer_bgrx=False)
    except (pypdfium2.PdfiumError, IndexError) as error:
        return {"problem": f"Its first page cannot be drawn ({error})."}
    return {"png": base64.b64encode(png(bitmap)).decode()}


def png(bitmap: Any) -> bytes:
    """RGB of 8 bits, one filter for all lines."""
    rows, depth = bytes(bitmap.buffer), bitmap.n_channels
    lines = bytearray()
    for y in range(bitmap.height):
        line = rows[y * bitmap.stride : y * bitmap.stride + bitmap.width * depth]
        lines.append(0)
        lines += line
    kind = {1: 0, 3: 2, 4: 6}[depth]
    head = struct.pack(">LLBBBBB", bitmap.width, bitmap.height, 8, kind, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(lines), 9)), (b"IEND", b""))
    told = b"".join(
        struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + told


def main() -> None:
    limit()
    seconds = int(sys.argv[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it also inside the library; a handler would wait for it
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever asked was killed: it ends without a word
    for line in sys.stdin.buffer:
        signal.alarm(seconds)
        question = json.loads(line)
        answer = picture(question["path"], question["width"])
        signal.alarm(0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
