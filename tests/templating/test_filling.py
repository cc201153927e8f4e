"""Filling a template: what comes out, what is refused when it is compiled, and what when a row is wrong."""

from __future__ import annotations

import csv
import html
import io
import json
from pathlib import Path
from typing import Any

import pytest

from batches import templating
from batches.templating import MissingValue, NotFilled, TemplateRefused

CASES = Path(__file__).resolve().parent.parent / "cases"


def filled(source: str, **data: Any) -> str:
    return templating.compiled(source).fill(data)


def problems(source: str) -> list[tuple[int | None, str]]:
    with pytest.raises(TemplateRefused) as refused:
        templating.compiled(source)
    return [(problem.line, problem.message) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("source", "data", "wanted"),
    [
        ("<p>{{ name }}</p>", {"name": "Una"}, "<p>Una</p>"),
        ("{{ name }}", {"name": "O'Neill & Sons <Ltd>"}, "O&#39;Neill &amp; Sons &lt;Ltd&gt;"),
        ("{{ name }}", {"name": "{{ 7|times:7 }}{% include 'x' %}"}, "{{ 7|times:7 }}{% include &#39;x&#39; %}"),
        ("{{ a.b.c }}", {"a": {"b": {"c": 1}}}, "1"),
        ("{{ a[1].b }}", {"a": [{}, {"b": "x"}]}, "x"),
        ("{{ a['b c'] }}{{ ['d e'] }}", {"a": {"b c": "x"}, "d e": "y"}, "xy"),
        ("{{ prices[currency] }}", {"prices": {"EUR": "7"}, "currency": "EUR"}, "7"),
        ("{{ a }} {{ b }} {{ c }}", {"a": True, "b": 1e16, "c": 0.0000001}, "true 10000000000000000 0.0000001"),
        ("a\r\nb\r{{ x }}\r\n", {"x": "1\r\n2\r3\n"}, "a\r\nb\r1\r\n2\r3\n\r\n"),
        ("{% if a %} {% endif %}|", {"a": "1"}, " |"),
        ("{% if note %}({{ note }}){% endif %}", {}, ""),
        ("{% if note %}({{ note }}){% endif %}", {"note": ""}, ""),
        ("{% if note %}({{ note }}){% endif %}", {"note": "x"}, "(x)"),
        ("{% unless note %}none{% else %}{{ note }}{% endunless %}", {"note": None}, "none"),
        ("{% if note != blank %}{{ note }}{% endif %}", {"note": "  "}, ""),
        ("{% if note == nil %}none{% endif %}", {}, "none"),
        ("{{ note | default: 'a & b' }}", {}, "a &amp; b"),
        ("{{ a.b.c | default: '-' }}", {"a": {}}, "-"),
        ("{% for l in lines %}{{ forloop.index }}{{ l.n }};{% else %}none{% endfor %}", {"lines": [{"n": "a"}]}, "1a;"),
        ("{% for l in lines %}{{ l }}{% else %}none{% endfor %}", {"lines": []}, "none"),
        ("{% for l in lines limit: 0 %}{{ l }}{% endfor %}", {"lines": ["a"]}, ""),
        ("{% for l in lines reversed offset: 1 %}{{ l }}{% endfor %}", {"lines": ["a", "b", "c"]}, "cb"),
        ("{% for i in (1..3) %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", {}, "13"),
        ("{{ lines.size }}{{ lines.first.n }}{{ lines.last.n }}", {"lines": [{"n": 1}, {"n": 2}]}, "212"),
        ("{{ shirt.size }}", {"shirt": {"size": "XL"}}, "XL"),
        ("{% assign t = a | times: 2 %}{{ t | plus: 1 }}", {"a": "2.5"}, "6.0"),
        ("{% assign c = customer %}{{ c.name }}", {"customer": {"name": "N"}}, "N"),
        ("{% case k %}{% when 'a', 'a' %}A{% when 1 %}one{% else %}other{% endcase %}", {"k": "a"}, "A"),
        ("{% case k %}{% when 'a' %}A{% when 1 %}one{% else %}other{% endcase %}", {"k": "1"}, "one"),
        ("{% if q > 9 %}big{% endif %}{% if p < q %}less{% endif %}", {"q": "10", "p": "9.5"}, "bigless"),
        ("{% if a < b %}before{% endif %}", {"a": "2026-09-30", "b": "2026-10-01"}, "before"),
        ("{% if s contains 'b' and l contains 2 %}both{% endif %}", {"s": "abc", "l": [1, "2"]}, "both"),
        ("{% raw %}{{ x }}{% endraw %}{% comment %}{{ y }}{% endcomment %}{% # z %}", {}, "{{ x }}"),
        ("{{ x | append: '<br>' }}", {"x": "a"}, "a&lt;br&gt;"),
    ],
)  # fmt: skip
def test_a_template_is_filled(source: str, data: dict[str, Any], wanted: str) -> None:
    assert templating.compiled(source).fill(data) == wanted


@pytest.mark.parametrize(
    ("source", "fields", "optional"),
    [
        ("{{ a }}\n{{ a }}{{ b.c }}", {"a": (1, 2), "b.c": (2,)}, set()),
        ("{{ a | default: 1 }}", {"a": (1,)}, {"a"}),
        ("{{ a | default: 1 }}\n{{ a }}", {"a": (1, 2)}, set()),
        ("{{ a | default: b }}", {"a": (1,), "b": (1,)}, {"a"}),
        ("{% if a %}{{ a }}{{ a.b }}{% endif %}", {"a": (1,), "a.b": (1,)}, {"a", "a.b"}),
        ("{% if a and b %}{{ a }}{{ b }}{% endif %}", {"a": (1,), "b": (1,)}, {"a", "b"}),
        ("{% if a or b %}{{ a }}{% endif %}", {"a": (1,), "b": (1,)}, {"b"}),
        ("{% if a %}{% elsif b %}{{ b }}{% else %}{{ c }}{% endif %}", {"a": (1,), "b": (1,), "c": (1,)}, {"a", "b"}),
        ("{% unless a %}{% else %}{{ a }}{% endunless %}", {"a": (1,)}, {"a"}),
        ("{% if k == 'x' %}{{ a }}{% endif %}", {"k": (1,), "a": (1,)}, set()),
        ("{% for l in lines %}{{ l.sku }}{{ l.n | default: 1 }}{% endfor %}",
         {"lines": (1,), "lines[].sku": (1,), "lines[].n": (1,)}, {"lines[].n"}),
        ("{% for l in o.lines %}{% for p in l.parts %}{{ p }}{% endfor %}{% endfor %}",
         {"o.lines": (1,), "o.lines[].parts": (1,), "o.lines[].parts[]": (1,)}, set()),
        ("{% for l in lines %}{{ l }}{% endfor %}{{ lines.size }}", {"lines": (1,), "lines[]": (1,)}, set()),
        ("{% assign c = customer %}{{ c.name }}", {"customer": (1,), "customer.name": (1,)}, set()),
        ("{% assign t = a | times: 2 %}{{ t }}{{ forloop }}", {"a": (1,), "forloop": (1,)}, set()),
        ("{% if a %}{% assign x = 1 %}{% else %}{% assign x = 2 %}{% endif %}{{ x }}", {"a": (1,)}, {"a"}),
        ("{% if a %}{% assign x = 1 %}{% endif %}{{ x }}", {"a": (1,), "x": (1,)}, {"a"}),
        ("{{ a['b.c'] }}{{ p[k] }}", {'a["b.c"]': (1,), "p": (1,), "k": (1,)}, set()),
        ("{{ t | money: cur, lang }}", {"t": (1,), "cur": (1,), "lang": (1,)}, set()),
        ("{{ 'text' }}{{ 7 }}{% comment %}{{ a }}{% endcomment %}", {}, set()),
    ],
)  # fmt: skip
def test_the_fields_of_a_template_are_known(source: str, fields: dict[str, Any], optional: set[str]) -> None:
    template = templating.compiled(source)
    assert dict(template.fields) == fields
    assert template.optional == optional


@pytest.mark.parametrize(
    ("source", "data", "path"),
    [
        ("{{ name }}", {}, "name"),
        ("{{ customer.name }}", {"customer": {}}, "customer.name"),
        ("{{ customer.name }}", {"customer": "text"}, "customer.name"),
        ("{{ name }}", {"name": None}, "name"),
        ("{{ name | upcase | default: 'x' }}", {}, "name"),
        ("{% for l in lines %}{{ l.sku }}{% endfor %}", {"lines": [{"sku": "a"}, {}]}, "lines[].sku"),
        ("{% for l in lines %}{% endfor %}", {}, "lines"),
        ("{% if kind == 'a' %}{% endif %}", {}, "kind"),
        ("{{ total | money: currency, 'de' }}", {"total": "1"}, "currency"),
        ("{% if a %}{% assign x = 1 %}{% endif %}{{ x }}", {}, "x"),
    ],
)
def test_a_row_that_lacks_a_field_is_told_its_path_and_line(source: str, data: dict[str, Any], path: str) -> None:
    with pytest.raises(MissingValue) as missing:
        templating.compiled("\n" + source).fill(data)
    assert missing.value.path == path
    assert missing.value.problem.line == 2
    assert path in missing.value.problem.message


@pytest.mark.parametrize(
    ("source", "data", "words"),
    [
        ("{{ a }}", {"a": [1]}, "a: This is a list"),
        ("{{ a }}", {"a": {"b": 1}}, "a: This is an object"),
        ("{% for x in a %}{% endfor %}", {"a": {"b": 1}}, "a list is wanted"),
        ("{% for x in a %}{% endfor %}", {"a": "text"}, "is text, and a list is wanted"),
        ("{% if a > 3 %}{% endif %}", {"a": "three"}, "cannot be compared by size"),
        ("{% if a > '2026-10-05' %}{% endif %}", {"a": "2026-10-06 or so"}, "cannot be compared by size"),
        ("{% if a > '2026-W41-1' %}{% endif %}", {"a": "2026-10-06"}, "cannot be compared by size"),
        ("{% if a > '2026-10-05T10:00' %}{% endif %}", {"a": "2026-10-05T09:00"}, "without the time of day"),
        ("{% if a == true %}{% endif %}", {"a": "true"}, "one is text, the other true or false"),
        ("{{ a | newline_to_br | upcase }}", {"a": "x"}, "Nothing may come behind newline_to_br"),
        ("{{ a | divided_by: 0 }}", {"a": "1"}, "divided by zero"),
        ("{{ a }}", {"a": "\ud800"}, "half of a character"),
        ("{% for i in (a..3) %}{% endfor %}", {"a": "1.5"}, "not a whole number"),
        ("{% for i in l limit: a %}{% endfor %}", {"l": [], "a": "-1"}, "no number of items"),
    ],
)
def test_a_row_that_does_not_fit_is_told_why(source: str, data: dict[str, Any], words: str) -> None:
    with pytest.raises(NotFilled, match=words):
        templating.compiled(source).fill(data)


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("\n{% include 'x' %}", 2, "The tag include is refused"),
        ("\n{% render 'x' %}", 2, "The tag render is refused"),
        ("{% capture x %}{% endcapture %}", 1, "There is no tag capture"),
        ("{% debug %}", 1, "There is no tag debug"),
        ("\n\n{{ a.__class__ }}", 3, '"__class__" is refused'),
        ("{{ a['__class__'] }}", 1, '"__class__" is refused'),
        ("{{ __builtins__ }}", 1, '"__builtins__" is refused'),
        ("{% assign __x = 1 %}", 1, '"__x" is refused'),
        ("{{ [a] }}", 1, "named, not computed"),
        ("{{ a.b() }}", 1, "cannot be read"),
        ("{{ a | rjust: 99999999 }}", 1, "no filter rjust"),
        ("{{ a | safe }}", 1, "no filter safe"),
        ("{{ a | raw }}", 1, "no filter raw"),
        ("{{ now }}", 1, "There is no now"),
        ("{{ 'now' | date: '%Y' }}", 1, "not a way to write a date"),
        ("{{ a | money: 'EURO', 'de' }}", 1, "not a currency"),
        ("{{ a | money: 'EUR', 'xx' }}", 1, "no locale"),
        ("{{ a | money }}", 1, "takes 1 to 2 values"),
        ("{{ a | upcase: 1 }}", 1, "takes 0 values"),
        ("{{ a | number: 'de', to: 'en' }}", 1, "takes no to"),
        ("{{ a | number: 'de', from: 'dd' }}", 1, "no locale"),
        ("{{ a | date: 'long', 'de', from: 'dd.MM' }}", 1, "does not say how dates"),
        ("{% break %}", 1, "stands in no loop"),
        ("{% if a %}", 1, "no endif"),
        ("{% endif %}", 1, "one endif too many"),
        ("{{ a", 1, "never closed"),
        ("{% if a", 1, "never closed"),
        ("\n{{ }}", 2, "A value is missing"),
        ("{% if a == %}{% endif %}", 1, "A value is missing"),
        ("\n{% raw %}", 2, "A raw is never closed"),
        ("{% endraw %}", 1, "endraw without its raw"),
        ("{% doc %}{% enddoc %}", 1, "no tag doc"),
        ("{% raw %}" * 50_000, 1, "A raw is never closed"),
        ("{% if a %}" * 40 + "{% endif %}" * 40, 1, "too deep"),
        ("{% if " + " and ".join(["a"] * 5000) + " %}{% endif %}", None, "too long"),
        ("{{ x }}\n" * 20_001, None, "20,001 tags and values"),
        ("".join(f"{{{{ f{n} }}}}" for n in range(2001)), 1, "more than 2,000 fields"),
        ("\n{{ " + ".".join(["a"] * 31) + " }}", 2, "goes too deep"),
        ("{{ " + "a" * 20_000 + " }}", 1, "goes too deep"),
        ("{{ a[1000] }}", 1, "too far down a list"),
        ("{{ a[99999999999999999999999].b }}", 1, "too far down a list"),
        ("{% for i in a %}{{ i[1000] }}{% endfor %}", 1, "too far down a list"),
        ("x" * 6_000_001, None, "6,000,001 characters long"),
    ],
)  # fmt: skip
def test_a_hostile_or_wrong_template_is_refused_with_its_line(source: str, line: int | None, words: str) -> None:
    found = problems(source)
    assert any(at == line and words in message for at, message in found), found
    assert len(found) <= 100


@pytest.mark.parametrize(
    ("source", "data", "words"),
    [
        ("{% for i in (1..1000000000) reversed %}{% endfor %}", {}, "A range may hold"),
        ("{% for i in (1..n) %}{% endfor %}", {"n": 10**18}, "A range may hold"),
        ("{% for i in (1..1000) %}{% for j in (1..1000) %}{% endfor %}{% endfor %}", {}, "Its loops would run"),
        ("{% for i in (1..99999) %}{% endfor %}" * 2, {}, "Its loops would run"),
        ("{% assign a = '0123' %}{% for i in (1..99) %}{% assign a = a | append: a %}{% endfor %}", {}, "1,000,000"),
        ("{{ a | replace: 'a', a }}", {"a": "a" * 2000}, "4,000,000"),
        ("{{ a | split: 'a' | join: a }}", {"a": "a" * 2000}, "The text would be"),
        ("{{ a | times: a | times: a }}", {"a": "9" * 40}, "too large to calculate with"),
        ("{{ a | plus: 1 }}", {"a": "1e400000"}, "is not a number"),
        ("{% for i in (1..90000) %}" + "x" * 1000 + "{% endfor %}", {}, "larger than 5,000,000 bytes"),
        ("{% for i in (1..9000) %}{% assign b = a | remove: 'b' %}{% endfor %}", {"a": "a" * 99_000}, "too many steps"),
        ("{% for i in (1..90000) %}" + "{% assign x = i %}" * 6 + "{% endfor %}", {}, "too many steps"),
        ("{% for i in l %}{% if l contains i %}{% endif %}{% endfor %}", {"l": ["a"] * 9000}, "too many steps"),
        ("{% for i in (1..9000) %}{% if a contains 'b' %}{% endif %}{% endfor %}", {"a": "a" * 99_000}, "many steps"),
        ("{% for i in l %}{% assign b = l | sum %}{% endfor %}", {"l": [1] * 9000}, "too many steps"),
        ("{% for i in (1..9000) %}{% case a %}{% when 1 %}{% endcase %}{% endfor %}", {"a": "a" * 99_000}, "steps"),
        ("{% for i in (1..9000) %}{% if a " + "or a " * 90 + "%}{% endif %}{% endfor %}", {"a": ""}, "too many steps"),
    ],
)  # fmt: skip
def test_a_template_that_would_run_away_ends(source: str, data: dict[str, Any], words: str) -> None:
    with pytest.raises(NotFilled, match=words):
        templating.compiled(source).fill(data)


def test_too_many_fields_are_told_once() -> None:
    source = "".join(f"{{{{ f{n} }}}}" for n in range(2500)) + "{{ a[1000] }}{{ b[1000] }}{{ b[1000] }}"
    assert [message for _, message in problems(source)] == ["It reads more than 2,000 fields."]
    assert len(problems("{{ a[1000] }}{{ b[1000] }}{{ b[1000] }}")) == 2


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = problems("{% include 'x' %}\n{{ a | safe }}\n{{ a.__class__ }}\n{% if b %}")
    assert [line for line, _ in found] == [1, 2, 3, 4]


def test_no_value_of_one_row_is_seen_by_another() -> None:
    template = templating.compiled((CASES / "037-template.html").read_text())
    rows = [json.loads(line) for line in (CASES / "037-rows.jsonl").read_text().splitlines()]
    signed_in = {"user": "Una", "request": "7"}
    assert "REF-AAA-111" in template.fill(rows[0] | signed_in)
    with pytest.raises(MissingValue) as missing:
        template.fill(rows[1] | signed_in)
    assert missing.value.path == "bank_ref"
    with pytest.raises(MissingValue) as missing:
        template.fill(rows[2])
    assert missing.value.path == "user"
    assert {"user", "request", "bank_ref"} <= set(template.fields)


def test_hostile_rows_are_text() -> None:
    template = templating.compiled((CASES / "038-template.html").read_text())
    for row in csv.DictReader(io.StringIO((CASES / "038-hostile-rows.csv").read_text())):
        text = template.fill(row)
        assert text.count("<") == template.fill({"id": "", "name": "", "note": ""}).count("<")
        assert html.unescape(text) == template.fill({}.fromkeys(row, "\0")).replace("\0", "{}").format(
            row["id"], row["id"], row["name"], row["note"]
        )


def test_the_hostile_template_is_refused_line_by_line() -> None:
    found = [message for _, message in problems((CASES / "131-template.html").read_text())]
    wanted = ("__class__", "__globals__", "tag debug", "tag load", "tag include", "tag csrf_token", "filter rjust")
    for words in wanted:
        assert any(words in message for message in found), words


STYLED = "<style>p { color: {{ c }} }</style>"


@pytest.mark.parametrize("value", ["red", "#1a2b3c", "12.5px", "rgb(1, 2, 3)", "hsla(120 60% 50% / .3)", "Größe 2", 7])
def test_a_style_sheet_takes_words_numbers_and_colours_from_a_row(value: Any) -> None:
    assert templating.compiled(STYLED).fill({"c": value}) == f"<style>p {{ color: {value} }}</style>"


@pytest.mark.parametrize(
    "value",
    [
        "red}",
        "red; background: url(http://10.0.0.1/x)",
        "url(x)",
        "</style>",
        'a"b',
        "a'b",
        "a\\b",
        "@import",
        "a&b",
        "/*",
    ],
)
def test_a_style_sheet_takes_no_rule_from_a_row_and_no_character_that_would_be_printed_as_its_escape(
    value: str,
) -> None:
    with pytest.raises(NotFilled, match="cannot stand in a style sheet"):
        templating.compiled(STYLED).fill({"c": value})
    assert html.unescape(templating.compiled("<style></style>{{ c }}").fill({"c": value})).endswith(value)
