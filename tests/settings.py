"""Settings of a test run: the shipped ones, on a throw-away DATA_DIR and whatever database DATABASE_URL names.

Nothing of the caller's environment but DATABASE_URL gets through, so a run never meets real keys, stores or accounts.
Processes that tests start load `relaypdf_site.settings` itself (see `tests/stack_process.py`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

#: Set by the process that made the folder, so that pytest-xdist's workers share it and only its maker removes it.
_OWN_FOLDER = "RELAYPDF_TESTS_DATA_DIR"
OWN_VARIABLES = (
    "ALLOWED_HOSTS",
    "BEHIND_HTTPS_PROXY",
    "CLUSTER_WORKERS",
    "CSRF_TRUSTED_ORIGINS",
    "DEBUG",
    "FIELD_KEYS",
    "LOG_LEVEL",
    "MAX_UPLOAD_BYTES",
    "QUEUE_BROKER",
    "SANDBOX_PORT",
    "SECRET_KEY",
    "SECURE_HSTS_SECONDS",
    "STORAGE_URL",
)

for name in list(os.environ):
    if name in OWN_VARIABLES or (name.startswith("RELAYPDF_") and name != _OWN_FOLDER):
        del os.environ[name]
if _OWN_FOLDER not in os.environ:
    os.environ[_OWN_FOLDER] = tempfile.mkdtemp(prefix="relaypdf-tests-")
    atexit.register(shutil.rmtree, os.environ[_OWN_FOLDER], ignore_errors=True)
os.environ["DATA_DIR"] = os.environ[_OWN_FOLDER]

from relaypdf_site.settings import *  # noqa: E402, F403 - the environment above must be set first
from relaypdf_site.settings import DATABASES, STORAGES  # noqa: E402 - named again, since they are changed below

if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A file, as in production: an in-memory database has no WAL and no second connection.
    DATABASES["default"]["TEST"] = {"NAME": str(Path(os.environ["DATA_DIR"]) / "test.sqlite3")}

STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AXES_ENABLED = False
