"""Settings of a simulation: the tests' own, on a database in memory that belongs to the process."""

from __future__ import annotations

import os

os.environ.pop("DATABASE_URL", None)

from tests.settings import *  # noqa: F403 - the environment above must be set first

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA foreign_keys=ON;",
            "cached_statements": 1000,  # as many as the engine has; each is prepared once in thousands of runs
        },
    }
}
#: The tables are made from the models, which takes a tenth of the time; that migrations lead there is tested elsewhere.
MIGRATION_MODULES = dict.fromkeys(("batches", "admin", "auth", "contenttypes", "sessions", "django_q", "axes"))
