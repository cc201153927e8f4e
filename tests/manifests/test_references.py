"""What a document would load from elsewhere: found where it counts, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches.manifests import Limits, addresses, references
from tests.manifests.samples import CASES, error_codes, listed, row, uploaded, warning_codes, zipped


def kinds(html: str, *, is_markdown: bool = False) -> list[str]:
    return [each.kind.value for each in references.of_document(html.encode(), is_markdown=is_markdown).found]


@pytest.mark.parametrize(
    "html",
    [
        '<img src="file:///C:/logo.png">',
        "<img src=file:/etc/passwd>",
        '<IMG SRC = "FILE:///x">',
        '<img alt="a > b" src="file:///x">',
        '<img alt=">" src="&#102;ile:///x">',
        '<img src="f\nile:///x">',
        '<img src="  file:///x">',
        r'<img src="C:\pictures\logo.png">',
        "<img src='d:/pictures/logo.png'>",
        r"<img src='\\server\share\logo.png'>",
        '<img srcset="https://example.com/a.png 1x, file:///b.png 2x">',
        '<svg><image xlink:href="file:///x"/></svg>',
        '<svg><use href="file:///x#a"/></svg>',
        '<link rel="stylesheet" href="file:///x.css">',
        '<link href="file:///x.css">',
        '<iframe src="file:///etc/passwd"></iframe>',
        '<object data="file:///x"></object>',
        '<embed src="file:///x">',
        '<video poster="file:///x"></video>',
        '<body background="file:///x">',
        '<base href="file:///home/">',
        '<input type="image" src="file:///x">',
        '<style>td { background: url( "file:///x" ) }</style>',
        '<td style="background:URL(file:///x)">',
        r'<td style="background:url(\66 ile:///x)">',
        '<style>@import "file:///x.css";</style>',
        "<style>@IMPORT url('file:///x.css');</style>",
        '<meta http-equiv="refresh" content="0; url=file:///etc/passwd">',
        "<script>fetch('file:///etc/passwd')</script>",
        "<p><!-- a comment --><img src=file:///x>",
        "<img src=x.png><img/src=file:///x>",
        "<!--><img src=file:///x>-->",
        "<!-- a comment --!><img src=file:///x>",
        "<!-- one that never ends <img src=file:///x>",
        '<iframe srcdoc="&lt;img src=&quot;file:///x&quot;&gt;"></iframe>',
        '<td background="file:///x">',
        "<TABLE BACKGROUND=file:///x>",
    ],
)
def test_a_file_on_somebodys_computer_is_found(html: str) -> None:
    assert "local_file" in kinds(html)


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost/x.png",
        "http://LOCALHOST:8000/x.png",
        "https://127.0.0.1/x.png",
        "//127.0.0.1/x.png",
        "http://127.1/x.png",
        "http://2130706433/x.png",
        "http://0x7f.0.0.1/x.png",
        "http://0177.0.0.1/x.png",
        "http:\\\\127.0.0.1\\x.png",
        "http:/127.0.0.1/x.png",
        "https://user:pass@10.0.0.5:8443/x",
        "http://192.168.1.7/x",
        "http://172.31.0.1?x",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://[::1]/x",
        "http://[::ffff:10.0.0.1]/x",
        "http://[fe80::1%25eth0]/x",
        "http://[fd00::7]:80/x",
        "http://intranet/logo.png",
        "http://files.corp/logo.png",
        "http://printer.local./x",
        "http://0.0.0.0/x",
        "ftp://10.1.2.3/x",
        "http://a@b@127.0.0.1/x",
        "http://127.0.0.%31/x",
        "http://\uff11\uff12\uff17.0.0.1/x",
        "http://127\u30020\u30020\u30021/x",
        "http://[64:ff9b::a00:1]/x",
        "http://[2002:a00:1::]/x",
    ],
)
def test_an_address_in_a_private_network_is_found_in_every_spelling(address: str) -> None:
    assert kinds(f'<img src="{address}">') == ["private"]
    assert kinds(f'<style>a{{background:url("{address}")}}</style>'.replace("\\", "\\\\")) == ["private"]


@pytest.mark.parametrize(
    "html",
    [
        '<img src="logo.png">',
        "<img src='/static/logo.png'>",
        '<link rel="stylesheet" href="style.css">',
        "<style>@import 'style.css';</style>",
        "<p style='background: url(paper.png)'>",
        '<script src="app.js"></script>',
        '<img src="../logo.png" alt="">',
    ],
)
def test_a_file_that_is_not_sent_is_found(html: str) -> None:
    assert kinds(html) == ["not_sent"]


@pytest.mark.parametrize(
    "html",
    [
        "<p>nothing</p>",
        '<img src="data:image/png;base64,AAAA"><img src="">',
        '<img src="https://example.com/logo.png"><img src="http://93.184.216.34/x">',
        '<a href="file:///x">a link is only followed by its reader</a><a href="http://localhost/">x</a>',
        '<form action="/batches/1/delete" method="post"></form>',
        '<svg><use href="#a"/><path fill="url(#gradient)"/></svg>',
        "<style>a{background:url(data:image/png;base64,AAAA)}</style>",
        '<link rel="icon" href="favicon.ico"><link rel="canonical" href="/invoice">',
        "<p>&lt;img src=x onerror=alert(1)&gt; src=file:///x url = http://localhost/</p>",
        '<!-- <img src="file:///x"> --><p>',
        '<base href="https://example.com/"><img src="logo.png">',
        '<img src="{{ logo }}">',
        '<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="5">',
        '<meta http-equiv="refresh" content="0;url=next.html">',
        "<script>var s = 'http://example.com/' + x;</script>",
        "<imgs src=x><image-list src=x><strong src=x>",
        "write to maria@import-export.example (by url) or call",
    ],
)
def test_what_is_sent_public_or_no_reference_is_left_alone(html: str) -> None:
    assert kinds(html) == []


def test_a_script_that_names_a_private_address_is_found() -> None:
    assert kinds("<script>fetch(`http://169.254.169.254/latest`)</script><p>") == ["private"]
    assert kinds("<script>x('</p>'); y(\"http://localhost/\")</SCRIPT>") == ["private"]


def test_pictures_of_markdown_are_looked_at_and_its_links_are_not() -> None:
    assert kinds("![Logo](logo.png) ![x](http://10.0.0.1/x.png 'title')", is_markdown=True) == ["not_sent", "private"]
    assert kinds("[Logo](file:///logo.png)", is_markdown=True) == []
    assert kinds("![Logo](logo.png)") == []


def test_the_first_of_each_kind_is_shown_as_it_is_written() -> None:
    found = references.of_document(b'<img src="Logo.PNG"><img src="b.png"><img src="file:///C:/Zo\xc3\xab.png">').found
    assert [each.value for each in found] == ["Logo.PNG", "file:///C:/Zoë.png"]


def test_what_is_looked_at_is_bounded_and_said_to_be() -> None:
    found = references.of_document(b"<img src=https://example.com/a>" * (references.MOST + 1))
    assert (found.found, found.is_cut) == ((), True)


@settings(max_examples=300, deadline=None, database=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<img",
                "<script",
                "</",
                "script>",
                "<!--",
                "-->",
                " src",
                "=",
                '"',
                "'",
                ">",
                "url(",
                ")",
                "@import",
                "\\",
            ]
        )
        | st.text(max_size=5),
        max_size=60,
    ).map("".join)
)
def test_any_text_is_looked_at(text: str) -> None:
    sent = text.encode("utf-8", "replace")
    found = references.of_document(sent, is_markdown=True)
    assert len(found.found) <= len(references.ReferenceKind)


@pytest.mark.parametrize("host", ["", "[", "1.2.3.4.5", "999.1.1.1", "example.com", "0x", "a" * 500 + ".com", "[v7.x]"])
def test_what_is_no_private_host(host: str) -> None:
    assert not addresses.is_private(host)


def test_rows_are_warned_with_their_lines_or_refused_where_the_renderer_could_reach_it() -> None:
    rows = [
        row(id="A", html='<p><img src="logo.png">'),
        row(id="B"),
        row(id="C", html='<p><img src="http://10.0.0.1/x.png"><img src="file:///x">'),
    ]
    found = [("local_asset", "html", (0, 2)), ("remote_asset", "html", (2,))]
    assert warning_codes(listed(rows)) == found
    with listed(rows, Limits(blocks_private=True)) as manifest:
        assert [(each.code, each.rows) for each in manifest.errors] == [("remote_asset", (2,)), ("local_asset", (2,))]
        assert [(each.code, each.rows) for each in manifest.warnings] == [("local_asset", (0,))]
        assert [each.business_id for each in manifest.rows] == ["A", "B"]


def test_the_header_and_the_footer_of_the_pages_are_looked_at_too() -> None:
    rows = [
        row(id=name, options={f"{name}Template": '<img src="http://10.0.0.1/x.png">'}) for name in ("header", "footer")
    ]
    found = [("remote_asset", f"options.{name}Template", (at,)) for at, name in enumerate(("header", "footer"))]
    assert warning_codes(listed(rows)) == found
    assert error_codes(listed(rows, Limits(blocks_private=True))) == found


@pytest.mark.parametrize(
    "piece", ["<!--", "<!-->", '<iframe srcdoc="&lt;iframe srcdoc=', '<iframe srcdoc="&lt;b>">', "background="]
)
def test_a_text_of_one_thing_again_and_again_is_looked_at_in_bounded_steps(piece: str) -> None:
    references.of_document(piece.encode() * 50_000)


def test_more_references_than_are_looked_at_are_refused_where_the_renderer_could_reach_them() -> None:
    rows = [row(html="<p>" + "<img src=https://e.example/>" * (references.MOST + 1))]
    assert warning_codes(listed(rows)) == []
    assert error_codes(listed(rows, Limits(blocks_private=True))) == [("remote_asset", "html", (0,))]


def test_a_picture_beside_the_page_in_the_zip_is_not_sent_either() -> None:
    files = {"a.html": '<p><img src="logo.png">', "logo.png": b"\x89PNG\r\n\x1a\n"}
    found = warning_codes(uploaded(zipped(files, rows=[row(html="a.html")])))
    assert found == [("unreferenced_file", None, ()), ("local_asset", "html", (0,))]


def test_case_125_markup_in_ids_and_harmless_scripts_are_no_references() -> None:
    assert warning_codes(uploaded((CASES / "125-markup-ids.json").read_bytes())) == []
