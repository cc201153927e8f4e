"""What a template names is put inside it: pictures, fonts and style sheets; lines stay what they were."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches.templating import Fault, inlined

PNG = b"\x89PNG\r\n\x1a\n" + b"invented"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
WOFF = b"wOF2invented"


def data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


P, S, W = data("image/png", PNG), data("image/svg+xml", SVG), data("font/woff2", WOFF)
B = f"i{{background:url({P})}}"
FILES: dict[str, bytes] = {
    "logo.png": PNG,
    "img/a b.svg": SVG,
    "fonts/x.woff2": WOFF,
    "css/a.css": b'@charset "UTF-8";\n@import "b.css" print;\n@font-face{src:url(../fonts/x.woff2)}\nb{color:red}',
    "css/b.css": b"i{background:url('../logo.png')}",
    "loop.css": b'@import "loop.css";',
    "braces.css": b"a::after{content:'{{ x }}'}",
    "evil.css": b"</style><script>",
    "endraw.css": b"a{}{%-endraw-%}{{ x }}",
    "latin.css": b"/* \xe4 */",
    "note.txt": b"just text",
}


class Beside:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def read(self, path: str) -> bytes:
        if path not in self._files:
            raise Fault(f"The file {path} is not in the ZIP.", "Put it there.")
        return self._files[path]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('<img src="logo.png" alt="x">', f'<img src="{P}" alt="x">'),
        ("<img src='./logo.png'>", f"<img src='{P}'>"),
        ("<img src=logo.png>", f'<img src="{P}">'),
        ('<img src="img/a%20b.svg#x">', f'<img src="{S}">'),
        ('<img src="data:image/png;base64,xx">', '<img src="data:image/png;base64,xx">'),
        ('<img src="{{ logo }}" title="{{ a }}">', '<img src="{{ logo }}" title="{{ a }}">'),
        ('<img srcset="logo.png 1x, img/a%20b.svg 2x">', f'<img srcset="{P} 1x, {S} 2x">'),
        ('<td style="background:url(logo.png);color:{{ c }}">', f'<td style="background:url({P});color:{{{{ c }}}}">'),
        ("<style>a{b:url( 'logo.png' )}{{ c }}</style>", f"<style>a{{b:url({P})}}{{{{ c }}}}</style>"),
        ("<style>/* url(x) */ a{content:'url(y)'}</style>", "<style>/* url(x) */ a{content:'url(y)'}</style>"),
        ("<!-- <img src='gone.png'> -->", "<!-- <img src='gone.png'> -->"),
        ("{% comment %}<img src='gone.png'>{% endcomment %}", "{% comment %}<img src='gone.png'>{% endcomment %}"),
        ("{% raw %}<script>{{ x }}</script>{% endraw %}", "{% raw %}<script>{{ x }}</script>{% endraw %}"),
        ("{% raw %}<img src='logo.png'>{{{% endraw %}", f"{{% raw %}}<img src='{P}'>{{{{{{% endraw %}}"),
        ("<script>'<img src=\"gone.png\">'</script>", "<script>'<img src=\"gone.png\">'</script>"),
        ('<a href="other.html">x</a>', '<a href="other.html">x</a>'),
        ('<link rel="icon" href="gone.ico">', '<link rel="icon" href="gone.ico">'),
        ('<link rel="stylesheet" href="css/b.css" media="print">',
         f'<style media="print">i{{background:url({P})}}</style>'),
        ('<link\nrel=stylesheet\nhref=css/a.css>{{ x }}',
         f"<style> @media print {{ {B} }} @font-face{{src:url({W})}} b{{color:red}}</style>\n\n{{{{ x }}}}"),
        ('<style>@import url("css/b.css");</style>', f"<style>i{{background:url({P})}}</style>"),
        ('<link rel=stylesheet href=braces.css>', "<style>{% raw %}a::after{content:'{{ x }}'}{% endraw %}</style>"),
    ],
)  # fmt: skip
def test_files_are_put_inside(source: str, wanted: str) -> None:
    found = inlined(source, Beside(FILES))
    assert found.problems == []
    assert found.text == wanted


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ('\n<img src="gone.png">', 2, "gone.png is not in the ZIP"),
        ("<style>\na{background:url(gone.png)}</style>", 2, "gone.png is not in the ZIP"),
        ("<style>a{background:url(logo(1).png)}</style>", 1, "logo(1 is not in the ZIP"),
        ('<img src="../gone.png">', 1, "../gone.png is not"),
        ('<img src="note.txt">', 1, "no picture and no font"),
        ('<img src="file:///etc/passwd">', 1, "cannot be put inside"),
        ('<img src="img-{{ id }}.png">', 1, "cannot come from the row"),
        ('<link rel=stylesheet href="loop.css">', 1, "imports itself"),
        ('<link rel=stylesheet href="evil.css">', 1, "holds the end of a style"),
        ('<link rel=stylesheet href="endraw.css">', 1, "holds the end of a style"),
        ('<link rel=stylesheet href="latin.css">', 1, "not UTF-8: byte 3"),
        ('<script src="x.js"></script>', 1, "<script> cannot be put inside"),
        ('<iframe src="x.html"></iframe>', 1, "<iframe> cannot be put inside"),
        ('<base href="x/">', 1, "changes what the names"),
        ("\n<td width={{ w }}>", 2, "without quotes"),
        ("<td {{ attributes }}>", 1, "the name of an attribute"),
        ("<{{ tag }}>", 1, "the name of a tag"),
        ('<td onclick="f({{ x }})">', 1, "in the script onclick"),
        ("<script>var x = '{{ x }}'</script>", 1, "in a script"),
        ("{% raw %} {{ {% endraw %}\n<script>{{ x }}</script>", 2, "in a script"),
        ("{% comment %}<!-- {% endcomment %}\n<script>{{ x }}</script>", 2, "in a script"),
        ("<!-->\n<script>{{ x }}</script> -->", 2, "in a script"),
        ("<script>a</scriptx>{{ x }}</script>", 1, "in a script"),
        ("<xmp>{{ x }}</xmp>", 1, "in <xmp>"),
        ('<iframe srcdoc="{{ x }}"></iframe>', 1, "the page of a srcdoc"),
        ('<p title=a"{{ x }}">', 1, "without quotes"),
        ("<p title=`{{ x }}`>", 1, "without quotes"),
        ('<p "a" class={{ x }}>', 1, "without quotes"),
        ("<noscript><p class={{ x }}></noscript>", 1, "without quotes"),
        ("<p ={{ x }}>", 1, "the name of an attribute"),
    ],
)
def test_what_cannot_be_put_inside_is_told_with_its_line(source: str, line: int, words: str) -> None:
    found = inlined(source, Beside(FILES))
    assert [(problem.line, words in problem.message) for problem in found.problems] == [(line, True)], found.problems


def test_a_problem_of_a_style_sheet_names_it() -> None:
    files = {"css/a.css": b"a{}\nb{background:url(gone.png)}"}
    (problem,) = inlined('<link rel=stylesheet href="css/a.css">', Beside(files)).problems
    assert (problem.file, problem.line) == ("css/a.css", 2)
    assert "css/gone.png" in str(problem)


def test_what_is_on_the_web_stays_and_is_told_once() -> None:
    source = '<img src="https://example.com/a.png"><img src="https://example.com/a.png"><img src="//example.com/b.png">'
    found = inlined(source, Beside({}))
    assert found.text == source
    assert found.problems == []
    assert len(found.warnings) == 2
    assert "https://example.com/a.png" in found.warnings[0].message


def test_large_files_are_told_and_too_large_ones_refused() -> None:
    large = inlined('<img src="a.png">', Beside({"a.png": PNG + b"x" * 600_000}))
    assert "600 kB, and each document carries it" in large.warnings[0].message
    huge = inlined('<img src="a.png"><img src="a.png">', Beside({"a.png": PNG + b"x" * 2_500_000}))
    assert "more than 4 MB" in huge.problems[0].message


def test_lines_stay_what_they_were() -> None:
    source = '<link rel=stylesheet\n href="css/a.css">\n<style>\n@import "css/b.css";\n</style>\n{{ x }}'
    found = inlined(source, Beside(FILES))
    assert found.text.splitlines()[5] == "{{ x }}"


PIECES = [
    *("<", ">", "<img src=", '"', "'", "logo.png", "{{", "}}", "{%", "%}", "<style>", "</style>", "url(", ")", "<!--"),
    *("{% raw %}", "{% endraw %}", "{% comment %}", "{% endcomment %}", "<script>", "</script"),
    *("-->", "@import ", ";", "/*", "*/", " ", "=", "<link rel=stylesheet href=", "css/a.css", "\n", "style=", "\\"),
]
AGAIN = [
    "{{",
    "{% raw %}",
    "{% comment %}",
    "{% comment %}{% endcomment %}",
    "<a ",
    '<a b="',
    "<!--",
    "/*",
    "<style>",
    "<style>/*",
    "url(",
    "<img src=logo.png ",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_can_be_read_and_without_files_stays_as_it_is(source: str) -> None:
    assert inlined(source, Beside({})).text == source
    inlined(source, Beside(FILES))


@pytest.mark.parametrize("piece", AGAIN)
def test_a_text_of_one_thing_again_and_again_is_read_in_bounded_steps(piece: str) -> None:
    assert inlined(piece * 20_000, Beside({})).text == piece * 20_000


@pytest.mark.parametrize(
    "piece", ["url(", "url( ", "url(a-", "@import url(", "@import ", "url('", 'url("', "/*", "url(()"]
)
def test_a_style_sheet_of_one_thing_again_and_again_is_read_in_bounded_steps(piece: str) -> None:
    source = f"<style>{piece * 300_000}</style>"
    assert inlined(source, Beside({})).text == source
