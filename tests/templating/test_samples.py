"""Invented data fills the template that it was invented for, and its columns say the same in a table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import templating

TEMPLATE = (
    "{{ customer.name }}{{ total | money: 'EUR', 'de', from: 'de' }}{{ due | date: 'long', 'de', from: 'dd.MM.yyyy' }}"
    "{% for line in lines %}{{ line.sku }}{{ line.qty | times: line.price | money: currency, 'de' }}"
    "{% for tag in line.tags %}{{ tag }}{% endfor %}{% endfor %}{{ vat | percent }}{% if note %}{{ note }}{% endif %}"
    "{% if count > 3 %}x{% endif %}{% case kind %}{% when 'paid' %}y{% endcase %}{{ a['b.c'] }}{{ first[1].x }}{{ id }}"
)


def test_the_example_fills_its_template() -> None:
    template = templating.compiled(TEMPLATE)
    data = templating.example(template.reads.values())
    assert data["customer"] == {"name": "Una Park"}
    assert (data["total"], data["due"], data["kind"], data["count"]) == (
        "1,234.50".translate({44: 46, 46: 44}),
        "05.10.2026",
        "paid",
        "3",
    )
    assert [line["sku"] for line in data["lines"]] == ["A-1001", "A-1001"]
    assert "Una Park" in template.fill(data)


def test_the_columns_are_the_fields_with_numbered_items() -> None:
    reads = templating.compiled("{{ id }}{{ a.b }}{% for l in lines %}{{ l.n }}{% endfor %}").reads.values()
    assert list(templating.columns(reads)) == ["a.b", "lines[0].n", "lines[1].n"]


names = st.sampled_from(["a", "b.c", "b.d", "lines", "total"])


@pytest.mark.parametrize("wrap", ["{{ X }}", "{{ X | default: 'x' }}", "{% for i in X %}{{ i.n }}{% endfor %}"])
@settings(max_examples=60, deadline=None)
@given(st.lists(names, max_size=4, unique=True))
def test_any_template_is_filled_by_its_example(wrap: str, chosen: list[str]) -> None:
    template = templating.compiled("".join(wrap.replace("X", name) for name in chosen))
    assert template.fill(templating.example(template.reads.values())) is not None


@pytest.mark.parametrize(
    "source",
    [
        "{{ a[999] }}{{ b[999][999][999].c }}{{ b[999][999][999].d }}",
        "".join(f"{{% for x{n + 1} in x{n} %}}" for n in range(25)) + "{{ x25.name }}" + "{% endfor %}" * 25,
        "".join(f"{{{{ f{n}[999].x }}}}" for n in range(100)),
        "".join(f"{{{{ f{n}.a.b.c }}}}{{{{ f{n}.a.x }}}}" for n in range(1000)),
        "{{ " + ".".join(["a"] * 30) + " }}",
    ],
)
def test_lists_within_lists_do_not_multiply_what_is_invented(source: str) -> None:
    """Whoever looks at a template waits in the request, and its memory is that of everybody."""
    reads = templating.compiled(source).reads.values()
    assert places_of(templating.example(reads)) < 250_000
    assert len(templating.columns(reads)) <= 2 * len(reads)


def places_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(places_of, inner))


def test_a_field_that_holds_others_has_no_column_of_its_own() -> None:
    reads = templating.compiled("{% if a %}{{ a.b }}{% endif %}{{ ab }}{% if c.d %}{{ c.d[1].e }}{% endif %}").reads
    assert sorted(templating.columns(reads.values())) == ["a.b", "ab", "c.d[1].e"]


def test_of_a_field_that_is_read_again_and_again_the_first_lines_are_kept() -> None:
    read = templating.compiled("{{ a }}\n" * 5000).reads["a"]
    assert read.lines == tuple(range(1, 101))
