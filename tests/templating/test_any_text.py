"""Whatever text a template or a row holds: it is printed escaped once, or it is refused in words, each time alike."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batches import templating
from batches.templating import NotFilled, TemplateRefused


@settings(max_examples=150, deadline=None)
@given(st.text(), st.text())
def test_any_text_appears_escaped_once_and_nothing_else_changes(one: str, other: str) -> None:
    before, between, after = '<p title="', '">\r\n{% x %}</p>', "<!-- }} -->"
    template = templating.compiled(before + "{{ a }}{% raw %}" + between + "{% endraw %}{{ b.c[0] }}" + after)
    text = template.fill({"a": one, "b": {"c": [other]}})
    assert text.startswith(before)
    assert text.endswith(after)
    first, found, second = text[len(before) : -len(after)].partition(between)
    assert found
    for given_text, printed in ((one, first), (other, second)):
        assert not set(printed) & set("<>\"'")
        assert _unescaped_once(printed) == given_text


def _unescaped_once(printed: str) -> str:
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&#34;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        printed = printed.replace(entity, character)
    return printed


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
EVERYTHING = [
    "{{ a }}",
    "{{ b.c | default: 'x' }}",
    "{% for x in a %}{{ x | upcase }}{% endfor %}",
    "{% if a > b %}y{% endif %}{% if a == c %}z{% endif %}",
    "{{ a | money: b }}",
    "{{ a | number: 'de', from: 'de' }}",
    "{{ a | date: 'long', b }}",
    "{{ a | plus: b | round: a }}",
    "{{ a | sum: b }}",
    "{{ a | split: b | join: a }}",
    "{% if a contains b %}{% endif %}{{ a[b] }}",
    "{% for i in (a..b) limit: c %}{% endfor %}",
    "{{ a | truncate: b, c }}",
]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), json_values), st.sampled_from(EVERYTHING))
def test_filling_raises_nothing_but_its_own_refusal_and_is_the_same_each_time(
    data: dict[str, Any], source: str
) -> None:
    template = templating.compiled(source)
    answers = []
    for _ in range(2):
        try:
            answers.append(template.fill(data))
        except NotFilled as reason:
            answers.append(str(reason))
    assert answers[0] == answers[1]


PIECES = [
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        " a ",
        "|",
        "if",
        "endif",
        "for x in",
        "endfor",
        "raw",
        "'",
        "assign",
        ":",
        "\n",
        "-",
        "..",
    ),
    *("(", "[", "case", "when", "comment", "else", "{% if a %}", "{% endif %}", "{% for x in a %}", "{% endfor %}"),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_compiling_any_text_gives_a_template_or_its_problems(source: str) -> None:
    found: tuple[templating.Problem, ...] = ()
    try:
        templating.compiled(source)
        is_refused = False
    except TemplateRefused as refused:
        is_refused = True
        found = refused.problems
    assert is_refused == bool(found)
