"""A database that ends a transaction for a deadlock, once, on any database."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import OperationalError


def ended_by(kind: type[psycopg.Error]) -> OperationalError:
    error = OperationalError("the database ended it")
    error.__cause__ = kind()
    return error


def end_once_by_deadlock(patch: pytest.MonkeyPatch, where: object, name: str) -> None:
    """The next call of `where.name` is ended by a deadlock after it has done its work; later ones go well."""
    real, ended = getattr(where, name), []

    def work(*given: Any, **named: Any) -> Any:
        done = real(*given, **named)
        if not ended:
            ended.append(1)
            raise ended_by(psycopg.errors.DeadlockDetected)
        return done

    patch.setattr(where, name, work)
