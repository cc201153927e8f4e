"""A valid one-page PDF of a chosen size: what the peer hands out for every document."""

from __future__ import annotations

PDF_BYTES = 20_000


def one_page_pdf(size: int = PDF_BYTES) -> bytes:
    """One A4 page with a line of text, padded to `size` bytes by a stream that no page uses."""
    text = b"BT /F1 24 Tf 72 720 Td (A document of the benchmark) Tj ET"
    short = _pdf(text, b"")
    # The padding's own length shows up in a number and in the offsets; two rounds settle both.
    padding = b"x" * (size - len(short))
    padded = _pdf(text, padding)
    return _pdf(text, padding[: len(padding) - (len(padded) - size)])


def _pdf(text: bytes, padding: bytes) -> bytes:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 %s >> >> >>"
        % b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        _stream(text),
        _stream(padding),
    ]
    made = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table_at = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    made += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table_at)
    return bytes(made)


def _stream(content: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)
