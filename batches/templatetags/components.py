"""The components of pages that hold more than a word: one tag each, its markup in `templates/components/`, its rules in
`static/batches/components.css`. The design page of the admin shows every one of them in every state.

    {% empty_state "search" "Nothing matches" %}…{% endempty_state %}       nothing to list, and what makes something
    {% pager previous_url next_url %}Rows 1–50{% endpager %}                keyset pages; `[` and `]` on the keyboard
    {% filter_bar "Filter the batches" %}…fields…{% endfilter_bar %}        a GET form: filters live in the address
    {% text_field "reason" "Why" value=… hint=… error=… %}                  label, input, hint and error, tied together
    {% form_field form.account hint=… %}                                    the same of a field of a Django form
    {% stat "Saved" 812 url=… colour="saved" %}                             a number with its word, perhaps a link
    {% code_block text %}                                                   something to copy, with the button that does
    {% dialog "note" "Add a note" %}…{% enddialog %}                        `data-dialog="note"` opens it
    {% confirm "drop" "Discard it?" "Discard" action %}…{% endconfirm %}    a dialog that posts; `is_destructive=True`
    {% help_link %} {% help_for "batch" %}                                  the help of this page, or of a topic

A link with `data-drawer="Title"` shows the `data-panel` part of the page that it leads to in a drawer beside this one.
Badge and bar are in `batches_extras`. Here is no query and no decision.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.forms import BoundField
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from batches import help as texts

register = template.Library()


@register.simple_block_tag
def empty_state(content: str, icon: str, title: str, *, level: int = 2, is_small: bool = False) -> SafeString:
    context = {"content": content, "icon": icon, "title": title, "level": level, "is_small": is_small}
    return render_to_string("components/empty_state.html", context)


@register.simple_block_tag
def pager(content: str, previous: str, next: str, *, before: str = "Previous", after: str = "Next") -> SafeString:
    """Nothing where there is one page."""
    context = {"content": content, "previous": previous, "next": next, "before": before, "after": after}
    return render_to_string("components/pager.html", context) if previous or next else SafeString("")


@register.simple_block_tag
def filter_bar(content: str, label: str, is_filtered: bool = False) -> SafeString:
    """`is_filtered` only where no chips over the list take filters away one by one."""
    context = {"content": content, "label": label, "is_filtered": is_filtered}
    return render_to_string("components/filter_bar.html", context)


@register.inclusion_tag("components/text_field.html")
def text_field(
    name: str,
    label: str,
    *,
    value: Any = "",
    hint: str = "",
    error: str = "",
    type: str = "text",
    field_id: str = "",
    is_optional: bool = False,
    is_required: bool = False,
    **attributes: Any,
) -> dict[str, Any]:
    """An input, or with `type="textarea"` several lines; `attributes` are more of the input's (`max_length` as
    `maxlength`). Hint and error are read out with it."""
    field_id = field_id or f"id_{name}"
    return {
        "name": name,
        "label": label,
        "value": "" if value is None else value,
        "hint": hint,
        "error": error,
        "type": type,
        "id": field_id,
        "is_optional": is_optional,
        "is_required": is_required,
        "attributes": attributes,
        "described_by": _described_by(field_id, hint, error),
    }


@register.inclusion_tag("components/form_field.html")
def form_field(field: BoundField, *, hint: str = "", is_optional: bool = False) -> dict[str, Any]:
    field_id = field.auto_id or field.html_name
    error = " ".join(str(words) for words in field.errors)
    described_by = _described_by(field_id, hint or str(field.help_text), error)
    attributes: dict[str, str | bool] = {"aria-describedby": described_by} if described_by else {}
    return {
        "field": field,
        "control": field.as_widget(attrs=attributes),
        "hint": hint or field.help_text,
        "error": error,
        "id": field_id,
        "is_optional": is_optional,
    }


def _described_by(field_id: str, hint: str, error: str) -> str:
    return " ".join(f"{field_id}-{kind}" for kind, words in (("error", error), ("hint", hint)) if words)


@register.inclusion_tag("components/stat.html")
def stat(
    label: str, value: str | int, *, url: str = "", colour: str = "", meaning: str = "", is_current: bool = False
) -> dict[str, Any]:
    shown = f"{value:,}" if isinstance(value, int) else value
    return {
        "label": label,
        "value": shown,
        "url": url,
        "colour": colour,
        "meaning": meaning,
        "is_current": is_current,
    }


@register.inclusion_tag("components/code_block.html")
def code_block(text: str, *, label: str = "Copy") -> dict[str, Any]:
    return {"text": text, "label": label}


@register.simple_block_tag
def dialog(content: str, dialog_id: str, title: str) -> SafeString:
    return render_to_string("components/dialog.html", {"content": content, "id": dialog_id, "title": title})


@register.simple_block_tag(takes_context=True)
def confirm(
    context: template.Context,
    content: str,
    dialog_id: str,
    title: str,
    verb: str,
    action: str,
    *,
    is_destructive: bool = False,
    cancel: str = "Cancel",
) -> SafeString:
    """Ctrl+Enter confirms and Esc cancels; where something is given up for good, the focus begins on Cancel."""
    given = {
        "content": content,
        "id": dialog_id,
        "title": title,
        "verb": verb,
        "action": action,
        "is_destructive": is_destructive,
        "cancel": cancel,
        "csrf_token": context.get("csrf_token"),
    }
    return render_to_string("components/confirm.html", given)


@register.inclusion_tag("components/help_link.html", takes_context=True)
def help_link(context: template.Context) -> dict[str, Any]:
    """Help for the page at this address, or the list of topics where it has none of its own."""
    match = getattr(context.get("request"), "resolver_match", None)
    topic = texts.topic_of(match.url_name or "") if match else None
    return _link_to(topic)


@register.inclusion_tag("components/help_link.html")
def help_for(name: str) -> dict[str, Any]:
    return _link_to(texts.BY_NAME[name])


def _link_to(topic: texts.Topic | None) -> dict[str, Any]:
    if topic is None:
        return {"url": reverse("batches:help_index"), "title": ""}
    return {"url": reverse("batches:help_topic", args=[topic.name]), "title": topic.title}
