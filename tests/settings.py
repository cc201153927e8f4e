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

from relaypdf_site.environment import VARIABLES

#: Set by the process that made the folder, so that pytest-xdist's workers share it and only its maker removes it.
_OWN_FOLDER = "TESTS_DATA_DIR"

for name in VARIABLES:
    if name != "DATABASE_URL":
        os.environ.pop(name, None)
if _OWN_FOLDER not in os.environ:
    os.environ[_OWN_FOLDER] = tempfile.mkdtemp(prefix="relaypdf-tests-")
    atexit.register(shutil.rmtree, os.environ[_OWN_FOLDER], ignore_errors=True)
os.environ["DATA_DIR"] = os.environ[_OWN_FOLDER]

from relaypdf_site.settings import *  # noqa: E402, F403 - the environment above must be set first
from relaypdf_site.settings import DATABASES, STATIC_ROOT, STORAGES  # noqa: E402 - named again: changed below

if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A file, as in production: an in-memory database has no WAL and no second connection.
    DATABASES["default"]["TEST"] = {"NAME": str(Path(os.environ["DATA_DIR"]) / "test.sqlite3")}
    # What a test writes need not outlive a power cut.
    DATABASES["default"]["OPTIONS"]["init_command"] += " PRAGMA synchronous=OFF;"

STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AXES_ENABLED = False
STATIC_ROOT.mkdir(exist_ok=True)  # whitenoise warns of a folder that is missing; tests collect no files
