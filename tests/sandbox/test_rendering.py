"""The renderer itself: documents, fonts, options, and that every document gets the text it should have."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
import pytest

from batches.sandbox.rendering import RendererPool, RenderRefused, Work, coverage, document, fonts, text_check
from batches.sandbox.rendering.coverage import Coverage

pytestmark = pytest.mark.processes

SCRIPTS = {
    "latin": "Öffnung Łódź ﬁne office",
    "greek": "Ελληνικά",
    "cyrillic": "Счёт-фактура",
    "arabic": "فاتورة رقم ١٢٣ لا إله",
    "hebrew": "חשבונית מס",
    "han": "請求書 发票",
    "kana": "せいきゅう カタカナ",
    "hangul": "한국어 송장",
    "devanagari": "हिन्दी क्षत्रिय प्रश्न",
    "tamil": "தமிழ் விலைப்பட்டியல்",
    "thai": "ใบแจ้งหนี้ น้ำ",
    "georgian": "ანგარიში",
    "armenian": "Հաշիվ",
    "ethiopic": "ደረሰኝ",
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RendererPool]:
    pool = RendererPool(tmp_path_factory.mktemp("renderer"))
    pool.start()
    yield pool
    pool.stop()


def text_of(pdf: bytes) -> str:
    with pypdfium2.PdfDocument(pdf) as document:
        return "\n".join(page.get_textpage().get_text_range() for page in document)


def sizes_of(pdf: bytes) -> list[tuple[int, int]]:
    with pypdfium2.PdfDocument(pdf) as document:
        return [(round(page.get_width()), round(page.get_height())) for page in document]


def fonts_of(pdf: bytes) -> set[str]:
    """Names of the fonts in a PDF. An instance of a variable font (bold) has no name but `CairoFont-…`."""
    return {name.decode() for name in re.findall(rb"/FontName /[A-Z]{6}\+([\w-]+)", pdf)}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_rendered_with_the_fonts_that_come_along(pool: RendererPool, script: str) -> None:
    made = pool.render(Work("html", f"<h1>{SCRIPTS[script]}</h1><p>{SCRIPTS[script]}</p>"))
    assert made.pages == 1
    assert fonts_of(made.pdf)
    assert all(font.startswith(("Noto", "CairoFont-")) for font in fonts_of(made.pdf))


def test_families_of_the_machine_are_not_used(pool: RendererPool) -> None:
    families = ("DejaVu Sans", "Arial", "Times New Roman", "monospace", "serif", "Nowhere Grotesk", "cursive")
    html = "".join(f"<p style=\"font-family:'{name}',{name}\">Text in {name}</p>" for name in families)
    made = pool.render(Work("html", f"{html}<p><b>bold</b> <i>italic</i></p>"))
    assert all(font.startswith(("NotoSans", "CairoFont-")) for font in fonts_of(made.pdf))
    assert "Nowhere Grotesk" in text_of(made.pdf)


def test_the_same_document_gives_the_same_bytes(pool: RendererPool) -> None:
    html = "".join(f"<p>{text}</p>" for text in SCRIPTS.values()) + "<svg><text y='9'>Svg</text></svg>"
    first = pool.render(Work("html", html))
    assert pool.render(Work("html", html)).pdf == first.pdf
    cut = [pool.render(Work("html", html, {"scale": 0.8})).pdf for _ in range(2)]
    assert cut[0] == cut[1]


def test_evidence_names_the_engine(pool: RendererPool) -> None:
    made = pool.render(Work("html", "<p>x</p>"))
    assert re.fullmatch(r"plutoprint \d+\.\d+\.\d+ \(plutobook \d+\.\d+\.\d+\)", made.engine)
    assert made.seconds > 0


# What text must be there


@pytest.mark.parametrize(
    "html",
    [
        "<p style='text-transform:uppercase'>straße ﬁn</p>",
        "<p hidden>ᚠᚢᚦ</p>ok",
        "<p style='display: none'>ᚠᚢᚦ</p>ok",
        "<style>.x, .y .z:hover { color: red } .a .quiet { display:none }</style><p class='big quiet'>ᚠᚢᚦ</p>ok",
        "<style>* > * { visibility: hidden }</style><p>ᚠᚢᚦ</p><div style='visibility: visible'>ok</div>",
        "<style>p::before { display:none; content: 'q' }</style><p>ok</p>",
        "<script>var ᚠ = 1</script><title>ᚠᚢᚦ</title><noscript>ᚠᚢᚦ</noscript>ok",
        "<head><title>ᚠᚢᚦ<body>ok</title>",
        "<head><title>ᚠᚢᚦ</title><body>ok",
        "<details><summary>ᚠ</summary>ᚢᚦ</details>ok",
        "<select><option>ᚠᚢᚦ</select>ok",
        "<dialog>ᚠᚢᚦ</dialog>ok",
        "<svg><text y='20' fill='none'>ᚠᚢᚦ</text><text y='20'>ok</text></svg>",
        "<p style='color:transparent'>ᚠᚢᚦ</p><p style='position:absolute;left:-9999px'>ᚠᚢᚦ</p>ok",
        "<style>.sr{position:absolute;width:1px;height:1px;overflow:hidden}</style><p class=sr>ᚠᚢᚦ</p>ok",
        "<p style='transform: scale(0)'>ᚠᚢᚦ</p><p style='clip-path: inset(100%)'>ᚠᚢᚦ</p>ok",
        "<svg><title>ᚠᚢᚦ</title><desc>ᚠᚢᚦ</desc><defs><text>ᚠᚢᚦ</text></defs><text y='20'>ok</text></svg>",
        "<!-- ᚠᚢᚦ --><p title='ᚠᚢᚦ'>ok<input value='ᚠᚢᚦ'>",
        "<p>Zero width\u200b and soft\u00adhyphen, NUL \0 and half of a pair</p>",
        "<p style='font-size:0.8em; opacity:0.5'>small</p>",
        "<p>\U0001f600 ok \u2713</p>",
        "<p>x\u0301 combining \u0e19\u0e49\u0e33</p>",
        "<img alt='ᚠᚢᚦ' src='data:image/png;base64,iVBORw0KGgo='>",
        "<p>" + "word " * 20000,
        "   ",
        "<div style='width:10px;height:10px;background:red'></div>",
    ],
)
def test_documents_that_hide_or_change_text_are_not_refused(pool: RendererPool, html: str) -> None:
    assert pool.render(Work("html", html)).pdf.startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("html", "character"),
    [
        ("<p>Invoice ᚠᚢᚦᚨᚱᚲ</p>", "U+16A0"),
        ("<svg><text y='20'>ᚠᚢᚦᚨᚱᚲ</text></svg>", "U+16A0"),
        ("<table><tr><td>ᚠᚢᚦ<td>12</table>", "U+16A0"),
        ("<p hidden>secret</p><p>𓀀𓀁𓀂</p>", "U+13000"),
        ("<p style='font-size:0.9em'>ᚠᚢᚦ</p>", "U+16A0"),
        ("<head><title>x</title><style>p{color:red}</style><body>ᚠᚢᚦ", "U+16A0"),
        ("<p>one letter among many, as in a name: ᚠ</p>" + "<p>text</p>" * 100, "U+16A0"),
    ],
)
def test_a_character_without_a_font_is_a_failed_render(pool: RendererPool, html: str, character: str) -> None:
    with pytest.raises(RenderRefused, match=re.escape(character)):
        pool.render(Work("html", html))


def test_a_document_may_bring_the_font_itself(pool: RendererPool) -> None:
    face = "<style>@font-face { font-family: R; src: url(data:font/woff;base64,AAAA) }</style>"
    with pytest.raises(RenderRefused, match="lacks text of the document: of its runic characters 0%"):
        pool.render(Work("html", f"{face}<p style='font-family:R'>ᚠᚢᚦ</p>"))


@pytest.fixture(scope="module")
def covered() -> Coverage:
    return coverage.of_folders(fonts.font_directories())


SHOWN = "<h1>Invoice 4711</h1><p>Grüße, حساب, 請求書, हिन्दी</p>"


@pytest.mark.parametrize(
    ("expected", "script"),
    [
        ("<h1>Invoice 4711</h1><p>Счёт</p>", "cyrillic"),
        ("<p>Invoice ไทย 4711</p>", "thai"),
        ("<p>Invoice 4711 송장</p>", "hangul"),
        ("<p>" + "Invoice 4711 " * 20 + "</p>", "latin"),
        ("<p>The quick brown fox jumps over the lazy dog, 0123456789</p>", "latin"),
    ],
)
def test_text_that_the_engine_did_not_draw_is_noticed(
    pool: RendererPool, covered: Coverage, expected: str, script: str
) -> None:
    pdf = pool.render(Work("html", SHOWN)).pdf
    text_check.require_text(SHOWN, pdf, covered)
    with pytest.raises(text_check.TextMissing, match=f"of its {script} characters"):
        text_check.require_text(expected, pdf, covered)


def test_a_pdf_without_any_text_is_noticed(pool: RendererPool, covered: Coverage) -> None:
    pdf = pool.render(Work("html", "<svg width='9' height='9'><rect width='9' height='9'/></svg>")).pdf
    with pytest.raises(text_check.TextMissing):
        text_check.require_text("<p>Hi</p>", pdf, covered)
    with pytest.raises(text_check.TextMissing, match="no text although"):
        text_check.require_text("<style>* { display:none }</style><p>Hi</p>", pdf, covered)
    with pytest.raises(text_check.TextMissing, match="can't be opened"):
        text_check.require_text("<p>Hi</p>", b"%PDF-1.7 nonsense", covered)


def test_coverage_knows_what_the_fonts_have(covered: Coverage) -> None:
    assert all(character in covered for character in "Aßẞ€₿ع中직𠮷✓😀ԱაሀतไS")
    assert not any(character in covered for character in "ᚠ𓀀\ue000")
    assert len(covered) > 50_000


# Options


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, (595, 842)),
        ({"format": "letter"}, (612, 792)),
        ({"format": "A5", "landscape": True}, (595, 420)),
        ({"width": "100mm", "height": "2in"}, (283, 144)),
        ({"width": 400, "height": "300px"}, (300, 225)),
        ({"format": "A4", "scale": 0.5}, (595, 842)),
        ({"format": "tabloid", "scale": 2}, (792, 1224)),
    ],
)
def test_page_sizes(pool: RendererPool, options: dict, size: tuple[int, int]) -> None:
    assert sizes_of(pool.render(Work("html", "<p>x</p>", options)).pdf) == [size]


def test_css_page_size_wins_over_the_options(pool: RendererPool) -> None:
    html = "<style>@page { size: 200pt 100pt }</style><p>x</p>"
    assert sizes_of(pool.render(Work("html", html, {"format": "A4"})).pdf) == [(200, 100)]


def test_page_ranges_keep_the_chosen_pages_and_their_order(pool: RendererPool) -> None:
    html = "".join(f"<p style='break-after:page'>Page-{n}</p>" for n in "ABCDE") + "<p>Page-F</p>"
    made = pool.render(Work("html", html, {"pageRanges": "5-,2"}))
    assert re.findall(r"Page-.", text_of(made.pdf)) == ["Page-B", "Page-E", "Page-F"]
    assert made.pages == 3
    with pytest.raises(RenderRefused, match="names no page of the 6"):
        pool.render(Work("html", html, {"pageRanges": "9"}))


def test_margins_and_scale_move_and_size_the_text(pool: RendererPool) -> None:
    def edge_and_height(options: dict) -> tuple[float, float]:
        with pypdfium2.PdfDocument(pool.render(Work("html", "<body style='margin:0'>Edge", options)).pdf) as document:
            left, bottom, _, top = document[0].get_textpage().get_charbox(0)
            return float(left), float(top - bottom)

    none = {"top": "0", "right": "0", "bottom": "0", "left": "0"}
    flush, height = edge_and_height({"margin": none})
    assert edge_and_height({"margin": {**none, "left": "50pt"}}) == pytest.approx((flush + 50, height), abs=0.1)
    half = edge_and_height({"margin": {**none, "left": "50pt"}, "scale": 0.5})
    assert half == pytest.approx((flush / 2 + 50, height / 2), abs=0.1)
    # The same drawing whether the engine writes all pages or we pick some.
    assert edge_and_height({"margin": none, "pageRanges": "1"}) == pytest.approx((flush, height), abs=0.1)


def test_backgrounds_can_be_left_out(pool: RendererPool) -> None:
    html = "<div style='background:rgb(200,10,20);height:50px'>x</div>"

    def red_pixels(options: dict) -> int:
        with pypdfium2.PdfDocument(pool.render(Work("html", html, options)).pdf) as document:
            image = document[0].render(scale=0.2).to_pil().convert("RGB")
            return sum(count for count, color in image.getcolors(1 << 16) if color[0] > 150 and color[1] < 80)

    assert red_pixels({}) > 0
    assert red_pixels({"printBackground": False}) == 0


@pytest.mark.parametrize(
    ("html", "prepared"),
    [
        ("src: url(x) format('woff2')", 'src: url(x) format("woff")'),
        ('src: url(x) FORMAT( "WOFF2" ), url(y) format(woff2)', 'src: url(x) format("woff"), url(y) format("woff")'),
        ("format('woff') tech(variations)", "format('woff') tech(variations)"),
        ("a\0b", "a\ufffdb"),
        ("<p>format woff2</p>", "<p>format woff2</p>"),
    ],
)
def test_stumbling_blocks_of_the_engine_are_cleared_away(html: str, prepared: str) -> None:
    assert document.prepared(html) == prepared


def links_of(pdf: bytes) -> set[str]:
    """Targets of the links in a PDF, from its compressed objects."""
    found: set[str] = set()
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            content = zlib.decompress(stream)
        except zlib.error:
            continue
        found |= {target.decode() for target in re.findall(rb"/URI \((.*?)\)\n", content)}
    return found


def test_links_to_scripts_and_files_do_not_get_into_the_pdf(pool: RendererPool) -> None:
    html = """<a href='javascript:alert(1)'>one</a> <a href="file:///etc/passwd">two</a>
        <a HREF=' java&#115;cript:alert(2)'>three</a> <a title=x href=javascript:alert(3)>four</a>
        <a href="&#10;vbscript:x">five</a> <a href="data:text/html,x">six</a>
        <a href='https://example.com/ok?a=1&amp;b=javascript:'>seven</a> <p>href="javascript:kept as text"</p>"""
    made = pool.render(Work("html", html))
    assert links_of(made.pdf) == {"https://example.com/ok?a=1&b=javascript:"}
    assert "javascript:kept as text" in text_of(made.pdf)


def test_markdown_with_a_table(pool: RendererPool) -> None:
    text = text_of(pool.render(Work("markdown", "# Title\n\n| a | b |\n|---|---|\n| 1 | ~~2~~ |\n")).pdf)
    assert "Title" in text
    assert "|" not in text


def test_the_folder_of_the_renderer_holds_no_more_than_its_font_setting(tmp_path: Path) -> None:
    pool = RendererPool(tmp_path / "r")
    pool.start()
    pool.render(Work("html", "<p>x</p>"))
    pool.stop()
    assert {path.name for path in (tmp_path / "r").iterdir()} <= {"fonts.conf", "fontconfig"}
