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
