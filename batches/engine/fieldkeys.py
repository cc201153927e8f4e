"""Which key of FIELD_KEYS opens each stored secret, and encrypting all under the first, so that an older one can go.

Every column of `EncryptedTextField` is looked at, in slices by primary key, as the row has it and without its model
trying to open it. A token is replaced only where the row still holds it: what a writer set meanwhile is newer, and was
encrypted under that writer's first key. Doing it again, or after a kill, starts over and finds less to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cryptography.fernet import Fernet, InvalidToken
from django.apps import apps
from django.db import models
from django.db.models import F, TextField, Value
from django.db.models.functions import Cast

from batches.models import EncryptedTextField

SLICE = 500


@dataclass
class ColumnReport:
    """Secrets of one column by the place of the key that opens them, 0 for the first of FIELD_KEYS.

    `unreadable` are rows, in words, that no key opens. `encrypted_anew` were moved to the first key, and count there.
    """

    name: str
    by_key: Counter[int] = field(default_factory=Counter)
    encrypted_anew: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def older(self) -> int:
        """How many need a key that is not the first."""
        return sum(count for place, count in self.by_key.items() if place)


def columns() -> Iterator[tuple[type[models.Model], str]]:
    """Every encrypted column there is."""
    for model in apps.get_models():
        for each in model._meta.concrete_fields:
            if isinstance(each, EncryptedTextField):
                yield model, each.name


def look(keys: Sequence[str]) -> list[ColumnReport]:
    """How each column stands; changes nothing."""
    return [_column(model, name, keys, writes=False) for model, name in columns()]


def encrypt_anew(keys: Sequence[str]) -> list[ColumnReport]:
    """Encrypt every secret under the first of `keys` that another one of them opens, and say how each column stands."""
    return [_column(model, name, keys, writes=True) for model, name in columns()]


def _column(model: type[models.Model], name: str, keys: Sequence[str], *, writes: bool) -> ColumnReport:
    report = ColumnReport(f"{model.__name__}.{name}")
    fernets = [Fernet(key) for key in keys]
    for pk, token in _tokens(model, name):
        place, text = _opened(token, fernets)
        if place is None:
            report.unreadable.append(f"{model._meta.verbose_name} {pk}")
            continue
        if place and writes:
            # The time stays: pages say since when a secret is set.
            made_at = fernets[place].extract_timestamp(token)
            if not _replace(model, pk, name, token, fernets[0].encrypt_at_time(text, made_at)):
                continue  # set anew meanwhile: the next look counts it
            place = 0
            report.encrypted_anew += 1
        report.by_key[place] += 1
    return report


def _tokens(model: type[models.Model], name: str) -> Iterator[tuple[int, bytes]]:
    """The tokens of one column as they are stored, slice by slice; empty ones hold no secret."""
    raw = model._default_manager.annotate(raw=Cast(F(name), TextField())).exclude(raw="").exclude(raw=None)
    last = 0
    while found := list(raw.filter(pk__gt=last).order_by("pk").values_list("pk", "raw")[:SLICE]):
        yield from ((pk, token.encode()) for pk, token in found)
        last = found[-1][0]


def _opened(token: bytes, fernets: Sequence[Fernet]) -> tuple[int | None, bytes]:
    for place, fernet in enumerate(fernets):
        try:
            return place, fernet.decrypt(token)
        except InvalidToken:
            continue
    return None, b""


def _replace(model: type[models.Model], pk: int, name: str, before: bytes, after: bytes) -> bool:
    rows = model._default_manager.annotate(raw=Cast(F(name), TextField())).filter(pk=pk, raw=before.decode())
    # As a value of plain text: the column would encrypt it once more.
    return bool(rows.update(**{name: Value(after.decode(), output_field=TextField())}))
