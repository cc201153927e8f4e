"""Small builders of database constraints, so that every table says the same thing in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models


def known_values(field: str, choices: type[models.TextChoices], *, name: str) -> models.CheckConstraint:
    """The database refuses a word that `choices` does not hold (choices alone constrain only forms)."""
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": list(choices.values)}), name=name)


def set_together(first: str, second: str, *, name: str) -> models.CheckConstraint:
    """Both columns are null or both are set."""
    both = models.Q(**{f"{first}__isnull": False, f"{second}__isnull": False})
    neither = models.Q(**{f"{first}__isnull": True, f"{second}__isnull": True})
    return models.CheckConstraint(condition=both | neither, name=name)


def one_open(fields: Sequence[str], *, until: str, name: str) -> models.UniqueConstraint:
    """Of rows that are equal in `fields` at most one is open: its `until`, the time that ends it, is null."""
    still_open = models.Q(**{f"{until}__isnull": True})
    return models.UniqueConstraint(fields=list(fields), condition=still_open, name=name)


def one_unless(first: str, second: str, gone: str, *, name: str) -> models.CheckConstraint:
    """Exactly one of two columns is set, or neither once the time `gone` is."""
    only_first = models.Q(**{f"{first}__isnull": False, f"{second}__isnull": True})
    only_second = models.Q(**{f"{first}__isnull": True, f"{second}__isnull": False})
    neither = models.Q(**{f"{first}__isnull": True, f"{second}__isnull": True, f"{gone}__isnull": False})
    return models.CheckConstraint(condition=only_first | only_second | neither, name=name)
