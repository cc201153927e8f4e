"""The tables of docs/providers.md, made from what the adapters declare: `python -m tests.provider_table` writes them.

What stands around them in the file is written by hand; a test compares the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from batches import figures
from batches.providers import PROVIDERS
from batches.providers.base import Capabilities, Delivery, Provider

FILE = Path(__file__).resolve().parent.parent / "docs" / "providers.md"
BEGIN, END = "<!-- made by tests.provider_table -->", "<!-- end -->"
DELIVERIES = {
    Delivery.DOWNLOAD: "by link or id",
    Delivery.ANSWER: "in the answer, or by link",
    Delivery.CALLBACK: "by a call to us, once",
}


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _seconds(value: int | None) -> str:
    return "not known" if value is None else figures.length(value)


def _lost(capabilities: Capabilities) -> str:
    from batches import comparing  # which reads models: once Django is set up

    return comparing.lost_answer(capabilities)


ROWS: tuple[tuple[str, Callable[[Capabilities], str]], ...] = (
    ("takes", lambda each: ", ".join(sorted(each.sources))),
    ("billed", lambda each: each.billed_unit),
    ("key of ours", lambda each: _yes(each.client_key)),
    ("a lost answer", _lost),
    ("draft, then start", lambda each: _yes(each.drafts)),
    ("most at once", lambda each: str(each.most_at_once or "not known")),
    ("status read", lambda each: _yes(each.status_poll)),
    ("told of success", lambda each: _yes(each.webhook_success)),
    ("told of failure", lambda each: _yes(each.webhook_failure)),
    ("webhooks signed", lambda each: _yes(each.webhook_signature)),
    ("the PDF comes", lambda each: DELIVERIES[each.delivery]),
    ("link lives", lambda each: _seconds(each.link_lifetime_seconds)),
    ("link renewed", lambda each: _yes(each.link_refresh)),
    ("look-up by key", lambda each: _yes(each.look_up)),
    ("price ceiling", lambda each: _yes(each.ceiling)),
    ("receipts", lambda each: _yes(each.receipts)),
    ("deletes on request", lambda each: _yes(each.remote_delete)),
    ("cancels", lambda each: _yes(each.cancel)),
    ("free test jobs", lambda each: _yes(each.test_mode)),
    ("region promised", lambda each: each.data_region or "no"),
)


def tables() -> str:
    """What each kind can do with its default options, then the options of each."""
    adapters = list(PROVIDERS.values())
    lines = [_row("", *(each.label for each in adapters)), _row("---", *("---" for _ in adapters))]
    lines += [_row(name, *(said(each.capabilities) for each in adapters)) for name, said in ROWS]
    for adapter in adapters:
        lines += _options(adapter)
    return "\n".join(lines)


def _options(adapter: type[Provider]) -> list[str]:
    if not adapter.options:
        return []
    lines = ["", f"Options of {adapter.label}:", "", _row("option", "means", "values"), _row("---", "---", "---")]
    for option in adapter.options:
        values = " or ".join(f"`{value}`" for value, _words in option.choices) or "text"
        default = f"; `{option.default}` if not set" if option.default else ", required" if option.required else ""
        lines.append(_row(f"`{option.name}`", f"{option.label}. {option.help}", f"{values}{default}"))
    return lines


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def written(text: str) -> str:
    """`text` of the file with its tables made anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    import django

    django.setup()
    FILE.write_text(written(FILE.read_text("utf-8")), "utf-8")
