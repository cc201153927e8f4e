"""Rows that are written once: what proves who did what is neither changed nor deleted through its model."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models


class WrittenOnce(TypeError):
    """Somebody tried to change or delete a row that is only ever added."""


class AppendOnlyRows(models.QuerySet[Any]):
    def update(self, **_: Any) -> NoReturn:
        raise WrittenOnce(f"Rows of {self.model.__name__} are never changed.")

    def delete(self) -> NoReturn:
        raise WrittenOnce(f"Rows of {self.model.__name__} are never deleted.")


class AppendOnly(models.Model):
    objects = AppendOnlyRows.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise WrittenOnce(f"Rows of {type(self).__name__} are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise WrittenOnce(f"Rows of {type(self).__name__} are never deleted.")
