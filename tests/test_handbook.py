"""What staff read of states, prices and ways out is what the code does, and quotes the words that pages show."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.template.loader import render_to_string

from batches import help as texts
from batches import wording
from batches.engine.verbs import PRICES
from batches.models import FailureClass, JobState, TakeRows, Verb
from batches.models.batches import ConflictPolicy
from batches.urls import pages
from batches.views.help import facts

TEMPLATES = Path(__file__).parent.parent / "templates"
TAG = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}|<[^>]*>", re.DOTALL)
#: What a page calls by a name: controls, headings, and the words in bold before a choice.
NAMED = re.compile(
    r"<(a|button|summary|label|legend|h1|h2|h3|strong|th|dt|option)\b(?:[^<>]|{%.*?%})*>(.*?)</\1>", re.DOTALL
)


def words_on_pages() -> set[str]:
    """All that a control or a heading says in the templates of the pages, help aside; and the words of choices."""
    found = {str(label) for kind in (Verb, ConflictPolicy, TakeRows) for label in kind.labels}
    for file in TEMPLATES.rglob("*.html"):
        if "help" not in file.parts:
            source = file.read_text("utf-8")
            for named in NAMED.finditer(source):
                found |= {" ".join(piece.split()) for piece in TAG.split(html.unescape(named[2]))}
    navigation = (TEMPLATES.parent / "batches" / "navigation.py").read_text("utf-8")
    return found | set(re.findall(r'"([A-Z][a-z ]+)"', navigation))


def in_bold(topic: str) -> set[str]:
    return set(re.findall(r"<strong>(.*?)</strong>", (TEMPLATES / texts.BY_NAME[topic].template).read_text("utf-8")))


def test_each_topic_has_its_text_and_each_text_its_topic_and_pages_exist() -> None:
    files = {file.stem for file in (TEMPLATES / "batches" / "help").iterdir()}
    assert files == set(texts.BY_NAME)
    names = {page.name for page in pages if hasattr(page, "name")}
    assert {page for topic in texts.TOPICS for page in topic.pages} <= names


@pytest.mark.parametrize("state", JobState)
def test_each_state_of_a_document_is_explained(state: JobState) -> None:
    badge = wording.JOB_BADGES[state]
    shown = render_to_string("batches/help/states.html", facts())
    assert badge.label in shown
    assert html.escape(badge.meaning) in shown


def test_each_state_of_a_batch_and_each_failure_is_explained() -> None:
    shown = html.unescape(render_to_string("batches/help/states.html", facts()))
    for badge in (*wording.GROUP_BADGES.values(), *wording.BATCH_BADGES.values()):
        assert badge.meaning in shown
    for failure in FailureClass:
        assert f"<dt>{failure.label}</dt><dd>{wording.WHAT_TO_DO[failure]}</dd>" in shown


@pytest.mark.parametrize("verb", Verb)
def test_each_verb_is_told_with_its_price(verb: Verb) -> None:
    shown = html.unescape(render_to_string("batches/help/verbs.html", facts()))
    price = PRICES[verb].value.capitalize()
    assert f"<dt>{verb.label}</dt><dd><strong>{price}</strong>. {wording.VERB_MEANINGS[verb]}" in shown


def test_what_the_help_quotes_is_on_the_pages_in_these_words() -> None:
    assert len(in_bold("when")) > 25
    assert in_bold("when") - words_on_pages() == set()


def test_a_price_in_the_help_is_that_of_its_verb() -> None:
    source = (TEMPLATES / texts.BY_NAME["when"].template).read_text("utf-8")
    told = re.findall(r"<strong>([^<]*)</strong> \((free|bills [^)]*)\)", source)
    assert len(told) > 3
    assert {(label, price) for label, price in told} <= {(verb.label, PRICES[verb].value) for verb in Verb}
