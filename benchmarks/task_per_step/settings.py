"""Settings of the baseline: django-q2 tuned as far as it goes, on the database that DATABASE_URL names."""

from __future__ import annotations

import os
from pathlib import Path

from relaypdf_site import environment

SECRET_KEY = "of-the-benchmark-only-" + "x" * 40
DATA_DIR = Path(os.environ["BENCH_DATA_DIR"])
INSTALLED_APPS = ["django_q", "benchmarks.task_per_step.apps.TaskPerStepConfig"]
DATABASES = {"default": environment.database(DATA_DIR / "db.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
Q_CLUSTER = {
    "name": "baseline",
    "orm": "default",
    "workers": 2,
    "bulk": 50,
    "poll": 0.02,
    "queue_limit": 100,
    "save_limit": -1,
    "ack_failures": True,
    "max_attempts": 1,
    "timeout": 60,
    "retry": 120,
    "catch_up": False,
    "log_level": "WARNING",
}
LOGGING = {"version": 1, "root": {"level": "WARNING"}}
