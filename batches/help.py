"""Which help there is, and to which page it belongs. The texts are `templates/batches/help/`, one file per topic, shown
alike in a drawer beside a page and on a page of its own; what states mean is taken from `wording.py` there.

A topic is a line of `TOPICS` and a file of its name; a test holds the two together and finds a page without help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """`pages` are names of addresses whose Help leads here."""

    name: str
    title: str
    pages: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        return f"batches/help/{self.name}.html"


TOPICS: tuple[Topic, ...] = (
    Topic("home", "Home: what needs somebody, and what is under way", ("home",)),
    Topic("failed", "What needs a person", ("failed_list",)),
    Topic("batches", "The list of batches", ("batch_list",)),
    Topic(
        "new_batch",
        "A new batch, from a file to the start",
        ("batch_new", "draft_list", "draft_detail", "draft_row", "draft_discard"),
    ),
    Topic("batch", "One batch", ("batch_detail", "batch_running", "batch_correct")),
    Topic(
        "document",
        "One document",
        ("document_detail", "document_regenerate", "document_reconcile", "document_diff"),
    ),
    Topic("bulk_actions", "Acting on many documents", ("action_list", "action_detail", "across_list", "across_detail")),
    Topic(
        "templates",
        "Templates",
        ("template_list", "template_new", "template_detail", "template_version", "template_publish"),
    ),
    Topic("downloads", "Downloads and exports", ("batch_download", "export_list", "export_detail")),
    Topic("notices", "Notices", ("notice_list",)),
    Topic(
        "accounts",
        "Provider accounts",
        ("account_list", "account_detail", "account_limits", "account_new", "account_add", "account_settings"),
    ),
    Topic("inbox", "The webhook inbox", ("inbox", "inbox_event", "inbox_replay")),
    Topic("vitals", "Health", ("vitals",)),
    Topic("audit", "The audit log", ("audit_list",)),
    Topic("retention", "Retention and deletion", ("retention_list", "retention_detail", "document_deletions")),
    Topic("rights", "Who may do what", ("rights_list",)),
    Topic("states", "What each state means, and what to do"),
    Topic("verbs", "What each verb does, and what it costs"),
    Topic("when", "What to do when …"),
)

BY_NAME: Mapping[str, Topic] = {topic.name: topic for topic in TOPICS}
_BY_PAGE: Mapping[str, Topic] = {page: topic for topic in TOPICS for page in topic.pages}


def topic_of(page: str) -> Topic | None:
    """The help that belongs to the page at the address of that name."""
    return _BY_PAGE.get(page)
