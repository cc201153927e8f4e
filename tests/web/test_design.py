"""The design system: its colours can be read, its components are whole, each state is drawn, the policy holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.template import Context, Template

from batches import help as texts
from batches import navigation, palette

TEMPLATES = Path(settings.BASE_DIR) / "templates"
BATCHES = Path(settings.BASE_DIR) / "batches"
STATIC = BATCHES / "static" / "batches"
CSS = {path.name: path.read_text("utf-8") for path in sorted(STATIC.glob("*.css"))}
INLINE = re.compile(r"""\sstyle=|<style|\son[a-z]+="|<script(?![^>]*\ssrc=)|(?:src|href)="(?:https?:)?//""")
COLOURS = palette.colours(CSS["tokens.css"])


def rendered(source: str, **context: object) -> str:
    return Template("{% load components batches_extras %}" + source).render(Context(context))


# --- colours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", palette.pairs(COLOURS), ids=lambda pair: f"{pair.front} on {pair.ground}")
def test_every_text_can_be_read_on_its_ground_in_light_and_in_dark(pair: palette.Pair) -> None:
    assert pair.is_enough, pair


def test_contrast_is_what_the_standard_says() -> None:
    assert palette.contrast("#000", "#ffffff") == 21
    assert palette.contrast("#777777", "#fff") == 4.48  # the well-known grey that just fails
    assert palette.contrast("#abc", "#aabbcc") == 1


def test_every_colour_of_a_rule_is_a_token_and_every_token_exists() -> None:
    tokens = set(re.findall(r"--([\w-]+):", CSS["tokens.css"]))
    for name in ("base.css", "components.css", "pages.css"):
        assert set(re.findall(r"var\(--([\w-]+)", CSS[name])) <= tokens, name
        literal = set(re.findall(r"#[0-9a-f]{3,8}\b(?=[^{}]*[;}])", CSS[name])) - {"#fff"}  # paper and print are white
        assert not literal, f"{name}: {literal}"


# --- states -----------------------------------------------------------------------------------------------------------


def test_a_state_is_drawn_in_every_colour_that_it_can_have() -> None:
    for state in palette.STATES:
        assert {f"{state}", f"{state}-solid", f"{state}-tint"} <= set(COLOURS)
        assert f".badge.{state}" in CSS["components.css"]
        assert f".bar .{state}" in CSS["components.css"]
        assert f'id="{state}"' in (STATIC / "icons.svg").read_text()


def test_badges_are_made_where_words_are_kept_and_drawn_in_one_way() -> None:
    makers = {
        path.name for path in BATCHES.rglob("*.py") if re.search(r"(?<!class )\bBadge\(", path.read_text("utf-8"))
    }
    assert makers == {"wording.py"}
    drawers = {
        path.name
        for path in (*TEMPLATES.rglob("*.html"), *BATCHES.rglob("*.py"))
        if re.search(r'class="badge[ "]', path.read_text("utf-8"))
    }
    assert drawers == {"batches_extras.py"}


# --- components -------------------------------------------------------------------------------------------------------


def test_a_field_is_read_out_with_its_error_and_its_hint() -> None:
    page = rendered(
        '{% text_field "reason" "Why" hint="Kept." error="Say why." is_required=True maxlength=5 value=v %}', v='"<'
    )
    assert '<label for="id_reason">Why</label>' in page
    assert 'aria-describedby="id_reason-error id_reason-hint" aria-invalid="true"' in page
    assert 'id="id_reason-error" role="alert">Say why.' in page
    assert 'id="id_reason-hint">Kept.' in page
    assert 'maxlength="5" required' in page
    assert 'value="&quot;&lt;"' in page
    plain = rendered('{% text_field "reason" "Why" %}')
    assert "aria-" not in plain
    assert "required" not in plain


def test_what_destroys_begins_on_cancel_and_nothing_else_does() -> None:
    drop = rendered(
        '{% confirm "drop" "Discard?" "Discard" "/x/" is_destructive=True %}Gone.{% endconfirm %}', csrf_token="t"
    )
    assert re.search(r"data-close autofocus>Cancel", drop)
    assert "autofocus>Discard" not in drop
    assert 'name="csrfmiddlewaretoken" value="t"' in drop
    save = rendered('{% confirm "save" "Save?" "Save" "/x/" %}{% endconfirm %}')
    assert "autofocus>Save" in save
    assert "data-close>Cancel" in save


def test_a_pager_is_there_only_where_there_is_another_page() -> None:
    assert rendered('{% pager "" "" %}Rows{% endpager %}') == ""
    both = rendered('{% pager "?b" "?a" %}Rows 1–50{% endpager %}')
    assert 'rel="prev" href="?b"' in both
    assert 'rel="next" href="?a"' in both
    assert "Rows 1–50" in both


# --- keyboard and help ------------------------------------------------------------------------------------------------


def test_no_two_entries_wait_for_the_same_letter() -> None:
    letters = [entry.jump for entry in navigation.ENTRIES]
    assert len(letters) == len(set(letters)), letters


def test_every_topic_has_its_text_and_every_text_its_topic() -> None:
    written = {path.stem for path in (TEMPLATES / "batches" / "help").glob("*.html")}
    assert written == set(texts.BY_NAME)


# --- the policy -------------------------------------------------------------------------------------------------------


def test_no_template_carries_styles_or_scripts_of_its_own_or_from_elsewhere() -> None:
    for path in sorted(TEMPLATES.rglob("*.html")):
        source = path.read_text("utf-8")
        found = re.findall(
            r"""\sstyle=|<style|\son[a-z]+="|<script(?![^>]*\ssrc=)|(?:src|href)="(?:https?:)?//""", source
        )
        assert not found, f"{path.relative_to(TEMPLATES)}: {found}"
    for name, rules in CSS.items():
        assert not re.findall(r"@import|url\(", rules), name


def test_the_policy_of_the_site_allows_nothing_inline() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    assert not [word for words in directives.values() for word in words if "unsafe" in word or "http" in word]
