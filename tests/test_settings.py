"""Settings load in processes of their own: safe by default, and every nonsense value refused with a sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.checks import CheckMessage
from django.test import override_settings

from batches import checks
from batches.conf import ENGINE
from relaypdf_site import environment
from tests.stack_process import REPOSITORY

#: Prints chosen settings as JSON; what JSON does not know becomes its text.
SHOW = """
import json, sys
from relaypdf_site import settings
print(json.dumps({name: getattr(settings, name, None) for name in sys.argv[1:]}, default=str))
"""


def load(folder: Path, *names: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SHOW, *names],
        cwd=REPOSITORY,
        env=environment.without_ours(os.environ) | {"DATA_DIR": str(folder)} | env,
        capture_output=True,
        text=True,
        timeout=120,
    )


def settings_of(folder: Path, *names: str, **env: str) -> dict[str, Any]:
    done = load(folder, *names, **env)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("data_dir", "prefix", "command"),
    [
        ("/srv/batches/var", "/srv/batches/.venv", ".venv/bin/python manage.py"),
        ("/srv/batches/var/demo", "/srv/batches/.venv", "DATA_DIR=var/demo .venv/bin/python manage.py"),
        ("/srv/batches/my data", "/srv/batches/.venv", "DATA_DIR='my data' .venv/bin/python manage.py"),
        ("/var/lib/elsewhere", "/usr", "python manage.py"),
    ],
)
def test_a_command_is_said_as_it_is_typed_in_the_project_folder(
    data_dir: str, prefix: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    assert environment.command_line(Path("/srv/batches"), Path(data_dir)) == command


def test_defaults_are_safe(tmp_path: Path) -> None:
    found = settings_of(
        tmp_path,
        "DEBUG",
        "ALLOWED_HOSTS",
        "SECRET_KEY",
        "SESSION_COOKIE_HTTPONLY",
        "SESSION_COOKIE_SECURE",
        "SECURE_CONTENT_TYPE_NOSNIFF",
        "CONTENT_SECURITY_POLICY",
        "RELAYPDF_SUBMIT_INTERVAL",
        "RELAYPDF_DEADLINE",
        "RELAYPDF_POLL_INITIAL",
        "RELAYPDF_POLL_MAX",
        "RELAYPDF_MAX_IN_FLIGHT",
        "RELAYPDF_KEY_RETENTION",
        "STORAGE_URL",
        "GIVEN",
    )
    assert found["DEBUG"] is False
    assert found["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]
    assert len(found["SECRET_KEY"]) >= 50
    assert found["SESSION_COOKIE_HTTPONLY"] is True
    assert found["SESSION_COOKIE_SECURE"] is False, "on loopback there is no HTTPS to ask for"
    assert found["SECURE_CONTENT_TYPE_NOSNIFF"] is True
    directives = found["CONTENT_SECURITY_POLICY"]["DIRECTIVES"]
    assert directives["script-src"] == ["'self'"]
    assert directives["object-src"] == ["'none'"]
    assert not [value for values in directives.values() for value in values if "unsafe" in value]
    assert [found[f"RELAYPDF_{name}"] for name in ("SUBMIT_INTERVAL", "DEADLINE", "POLL_INITIAL", "POLL_MAX")] == [
        3,
        1800,
        1,
        15,
    ]
    assert found["RELAYPDF_MAX_IN_FLIGHT"] == 20
    assert found["RELAYPDF_KEY_RETENTION"] == 3600
    assert found["STORAGE_URL"] == f"file://{tmp_path}/artifacts"
    assert found["GIVEN"] == "frozenset()"


def test_sqlite_lies_in_the_data_folder_with_the_options_that_several_processes_need(tmp_path: Path) -> None:
    folder = tmp_path / "100% + more? data#1"
    database = settings_of(folder, "DATABASES")["DATABASES"]["default"]
    assert database["NAME"] == str(folder / "db.sqlite3")
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert database["OPTIONS"]["timeout"] >= 20
    assert "journal_mode=WAL" in database["OPTIONS"]["init_command"]


def test_the_options_reach_sqlite(tmp_path: Path) -> None:
    code = (
        "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'relaypdf_site.settings'; django.setup()\n"
        "from django.db import connection\n"
        "cursor = connection.cursor()\n"
        "print([cursor.execute(f'PRAGMA {name}').fetchone()[0] for name in ('journal_mode', 'foreign_keys')])"
    )
    env = environment.without_ours(os.environ) | {"DATA_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "['wal', 1]", done.stderr


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql://batches:p%40ss%2Fw%3Ard%25+x@db.example.com:6432/pdf",
            {"NAME": "pdf", "USER": "batches", "PASSWORD": "p@ss/w:rd%+x", "HOST": "db.example.com", "PORT": 6432},
        ),
        ("postgres://batches@/pdf?host=/run/postgresql", {"NAME": "pdf", "USER": "batches", "HOST": ""}),
        ("postgresql://u:p@[::1]:5432/pdf", {"HOST": "::1", "PORT": 5432}),
    ],
)
def test_a_postgresql_address_is_read_whole(tmp_path: Path, url: str, expected: dict[str, Any]) -> None:
    database = settings_of(tmp_path, "DATABASES", DATABASE_URL=url)["DATABASES"]["default"]
    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert {key: database[key] for key in expected} == expected
    assert database["OPTIONS"]["connect_timeout"] == 10
    if "host=" in url:
        assert database["OPTIONS"]["host"] == "/run/postgresql"


def test_a_sqlite_address_may_be_absolute_or_relative(tmp_path: Path) -> None:
    for url, name in (("sqlite:////srv/a%20b.db", "/srv/a b.db"), ("sqlite:///b.db", "b.db")):
        assert settings_of(tmp_path, "DATABASES", DATABASE_URL=url)["DATABASES"]["default"]["NAME"] == name


KEY = Fernet.generate_key().decode()
SENDER = {"DEFAULT_FROM_EMAIL": "batches@example.com", "SITE_URL": "https://batches.example.com"}
NONSENSE = [
    ({"DEBUG": "maybe"}, "neither true nor false"),
    ({"SECRET_KEY": "short"}, "shorter than 32"),
    ({"FIELD_KEYS": "not-a-key"}, "no Fernet key"),
    ({"FIELD_KEYS": f"{KEY},oops"}, "no Fernet key"),
    ({"CSRF_TRUSTED_ORIGINS": "batches.example.com"}, "https://batches.example.com"),
    ({"DATABASE_URL": "mysql://u@h/n"}, "sqlite:/// or postgresql://"),
    ({"DATABASE_URL": "db.sqlite3"}, "sqlite:/// or postgresql://"),
    ({"DATABASE_URL": "sqlite://:memory:"}, "needs a file"),
    ({"DATABASE_URL": "sqlite:///:memory:"}, "needs a file"),
    ({"DATABASE_URL": "postgresql://u@h"}, "names no database"),
    ({"DATABASE_URL": "postgresql://u@h:port/n"}, "is not an address"),
    ({"STORAGE_URL": "ftp://host/folder"}, "file:/// or s3://"),
    ({"STORAGE_URL": "file://relative/folder"}, "absolute folder"),
    ({"STORAGE_URL": "s3://"}, "s3://bucket"),
    ({"STORAGE_URL": "s3://bucket?acl=public"}, "not acl"),
    ({"QUEUE_BROKER": "redis://127.0.0.1"}, "only 'orm' is"),
    ({"QUEUE_BROKER": "sqs"}, "only 'orm' is"),
    ({"CLUSTER_WORKERS": "0"}, "between 1 and 64"),
    ({"CLUSTER_WORKERS": "2.5"}, "whole number"),
    ({"CLUSTER_DRAIN_SECONDS": "0"}, "between 1 and 600"),
    ({"RELAYPDF_BASE_URL": "api.relaypdf.com", "RELAYPDF_API_KEY": "k"}, "https://api.example.com"),
    ({"RELAYPDF_BASE_URL": "https://api.relaypdf.com:port", "RELAYPDF_API_KEY": "k"}, "https://api.example.com"),
    ({"RELAYPDF_BASE_URL": "https://me:secret@api.relaypdf.com", "RELAYPDF_API_KEY": "k"}, "user name or password"),
    ({"RELAYPDF_BASE_URL": "https://api.relaypdf.com"}, "without RELAYPDF_API_KEY"),
    ({"RELAYPDF_API_KEY": "pdf_live_a b"}, "no header may carry"),
    ({"RELAYPDF_API_KEY": "pdf_live_ä"}, "no header may carry"),
    ({"RELAYPDF_SUBMIT_INTERVAL": "0"}, "between 0.001 and 3600"),
    ({"RELAYPDF_SUBMIT_INTERVAL": "-1"}, "between 0.001 and 3600"),
    ({"RELAYPDF_SUBMIT_INTERVAL": "nan"}, "between 0.001 and 3600"),
    ({"RELAYPDF_SUBMIT_INTERVAL": "3s"}, "is not a number"),
    ({"RELAYPDF_MAX_IN_FLIGHT": "many"}, "is not a number"),
    ({"RELAYPDF_DEADLINE": "inf"}, "between 1 and"),
    ({"RELAYPDF_POLL_INITIAL": "20"}, "larger than RELAYPDF_POLL_MAX"),
    ({"RELAYPDF_KEY_RETENTION": "-5"}, "between 0 and"),
    ({"SANDBOX_PORT": "70000"}, "between 1 and 65535"),
    ({"MAX_UPLOAD_BYTES": "12"}, "between 1024 and"),
    ({"EMAIL_URL": "smtp://mail.example.com"}, "DEFAULT_FROM_EMAIL and SITE_URL"),
    ({"EMAIL_URL": "mail.example.com", **SENDER}, "smtp+tls://"),
    ({"EMAIL_URL": "smtp://", **SENDER}, "smtp+tls://"),
    ({"EMAIL_URL": "smtp://mail.example.com", **SENDER, "DEFAULT_FROM_EMAIL": "batches"}, "is no sender"),
    ({"LOG_LEVEL": "loud"}, "is not one of"),
    ({"LOG_LEVEL": "info"}, "is not one of"),
]


def test_mail_is_off_until_a_server_a_sender_and_a_site_are_named(tmp_path: Path) -> None:
    names = ("EMAIL_BACKEND", "EMAIL_HOST", "EMAIL_PORT", "EMAIL_USE_TLS", "DEFAULT_FROM_EMAIL")
    assert settings_of(tmp_path, *names)["EMAIL_BACKEND"].endswith("dummy.EmailBackend")
    found = settings_of(tmp_path, *names, EMAIL_URL="smtp+tls://me:p%40ss@mail.example.com:587", **SENDER)
    assert found["EMAIL_BACKEND"].endswith("smtp.EmailBackend")
    assert [found[name] for name in names[1:]] == ["mail.example.com", 587, True, "batches@example.com"]


@pytest.mark.parametrize(
    ("env", "words"), NONSENSE, ids=lambda value: "-".join(value) if isinstance(value, dict) else ""
)
def test_nonsense_is_refused_before_anything_happens(tmp_path: Path, env: dict[str, str], words: str) -> None:
    done = load(tmp_path, **env)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("django.core.exceptions.ImproperlyConfigured: ")
    assert words in last
    assert "secret@" not in done.stderr


@pytest.mark.parametrize("command", ["bootstrap", "runcluster", "check"])
def test_a_command_says_one_sentence_and_exits_2(tmp_path: Path, command: str) -> None:
    env = environment.without_ours(os.environ) | {"DATA_DIR": str(tmp_path), "CLUSTER_WORKERS": "lots"}
    done = subprocess.run(
        [sys.executable, "manage.py", command], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr == "The settings make no sense: CLUSTER_WORKERS='lots' is not a number.\n"


def test_a_data_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = load(tmp_path / "file")
    assert "cannot be made" in done.stderr.splitlines()[-1]


def test_a_variable_set_to_nothing_is_not_set(tmp_path: Path) -> None:
    names = ("DATABASE_URL", "STORAGE_URL", "QUEUE_BROKER", "RELAYPDF_API_KEY", "RELAYPDF_DEADLINE", "ALLOWED_HOSTS")
    found = settings_of(
        tmp_path, "QUEUE_BROKER", "RELAYPDF_DEADLINE", "DATABASES", "GIVEN", **dict.fromkeys(names, " ")
    )
    assert found["QUEUE_BROKER"] == "orm"
    assert found["RELAYPDF_DEADLINE"] == 1800
    assert found["DATABASES"]["default"]["NAME"] == str(tmp_path / "db.sqlite3")
    assert found["GIVEN"] == "frozenset()"


def test_the_account_of_the_environment_is_read(tmp_path: Path) -> None:
    given = {
        "RELAYPDF_BASE_URL": "http://127.0.0.1:8787/",
        "RELAYPDF_API_KEY": "pdf_live_x\n",
        "RELAYPDF_WEBHOOK_SECRET": "whsec_1",
        "RELAYPDF_SUBMIT_INTERVAL": "0.05",
        "RELAYPDF_MAX_IN_FLIGHT": "200",
        "RELAYPDF_DEADLINE": "60",
        "RELAYPDF_POLL_INITIAL": "0.3",
        "RELAYPDF_POLL_MAX": "3",
        "RELAYPDF_KEY_RETENTION": "86400",
    }
    found = settings_of(tmp_path, *given, **given)
    assert found == {
        "RELAYPDF_BASE_URL": "http://127.0.0.1:8787",
        "RELAYPDF_API_KEY": "pdf_live_x",
        "RELAYPDF_WEBHOOK_SECRET": "whsec_1",
        "RELAYPDF_SUBMIT_INTERVAL": 0.05,
        "RELAYPDF_MAX_IN_FLIGHT": 200,
        "RELAYPDF_DEADLINE": 60,
        "RELAYPDF_POLL_INITIAL": 0.3,
        "RELAYPDF_POLL_MAX": 3,
        "RELAYPDF_KEY_RETENTION": 86400,
    }


@pytest.mark.parametrize(
    ("env", "secure"),
    [
        ({}, False),
        ({"ALLOWED_HOSTS": "localhost"}, False),
        ({"ALLOWED_HOSTS": "batches.example.com"}, True),
        ({"ALLOWED_HOSTS": "localhost, batches.example.com"}, True),
        ({"ALLOWED_HOSTS": "*"}, True),
        ({"ALLOWED_HOSTS": "batches.example.com", "DEBUG": "1"}, False),
    ],
)
def test_cookies_need_https_as_soon_as_others_are_served(tmp_path: Path, env: dict[str, str], secure: bool) -> None:
    found = settings_of(tmp_path, "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", **env)
    assert found == {"SESSION_COOKIE_SECURE": secure, "CSRF_COOKIE_SECURE": secure}


def test_behind_a_proxy_https_is_asked_for(tmp_path: Path) -> None:
    plain = settings_of(tmp_path, "SECURE_SSL_REDIRECT", "SECURE_PROXY_SSL_HEADER")
    assert plain == {"SECURE_SSL_REDIRECT": None, "SECURE_PROXY_SSL_HEADER": None}
    behind = settings_of(tmp_path, "SECURE_SSL_REDIRECT", "SECURE_PROXY_SSL_HEADER", BEHIND_HTTPS_PROXY="yes")
    assert behind["SECURE_SSL_REDIRECT"] is True
    assert behind["SECURE_PROXY_SSL_HEADER"] == ["HTTP_X_FORWARDED_PROTO", "https"]


def test_secrets_are_kept_and_read_by_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = settings_of(folder, "SECRET_KEY", "FIELD_KEYS")
    for name in ("secret_key", "field_key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert settings_of(folder, "SECRET_KEY", "FIELD_KEYS") == first
    assert sorted(path.name for path in folder.iterdir()) == ["field_key", "secret_key"], "no temporary file is left"
    Fernet(first["FIELD_KEYS"][0])


def test_processes_that_start_at_once_agree_on_the_secrets(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SHOW, "SECRET_KEY", "FIELD_KEYS"],
            cwd=REPOSITORY,
            env=environment.without_ours(os.environ) | {"DATA_DIR": str(tmp_path / "data")},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    said = {process.communicate(timeout=120)[0] for process in started}
    assert len(said) == 1
    assert [process.returncode for process in started] == [0] * 6


def test_a_secret_that_is_cut_short_is_refused_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "field_key").write_text("abc")
    done = load(tmp_path)
    assert "cut short" in done.stderr.splitlines()[-1]
    assert (tmp_path / "field_key").read_text() == "abc"


def test_given_secrets_win_over_kept_ones(tmp_path: Path) -> None:
    second = Fernet.generate_key().decode()
    found = settings_of(tmp_path, "SECRET_KEY", "FIELD_KEYS", SECRET_KEY="s" * 50, FIELD_KEYS=f"{KEY}, {second}")
    assert found == {"SECRET_KEY": "s" * 50, "FIELD_KEYS": [KEY, second]}
    assert not (tmp_path / "secret_key").exists()


def test_a_deployment_passes_djangos_own_checks(tmp_path: Path) -> None:
    env = environment.without_ours(os.environ) | {
        "DATA_DIR": str(tmp_path),
        "ALLOWED_HOSTS": "batches.example.com",
        "BEHIND_HTTPS_PROXY": "1",
        "SECURE_HSTS_SECONDS": "31536000",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=REPOSITORY,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_variable_is_named_once_for_all() -> None:
    """`VARIABLES` is what a test run and the demonstration keep out, so none may be missing; README explains each."""
    source = (REPOSITORY / "relaypdf_site" / "settings.py").read_text() + Path(environment.__file__).read_text()
    read = set(re.findall(r'\b(?:text|flag|number|whole|words|choice|origins|http_url)\(\s*"([A-Z_]+)"', source))
    assert read <= set(environment.VARIABLES)
    assert set(environment.VARIABLES) - read == {"FIRST_PASSWORD", "SANDBOX_ENGINE"}, "read elsewhere"


# --- what fits together: system checks ------------------------------------------------------------------------------


def ids(messages: list[CheckMessage]) -> set[str]:
    return {str(message.id) for message in messages}


def shipped() -> dict[str, Any]:
    from relaypdf_site import settings

    return dict(settings.Q_CLUSTER)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, set()),
        ({"timeout": 60}, {"batches.E001"}),
        ({"timeout": None}, {"batches.E001"}),
        ({"retry": 150}, {"batches.E002"}),
        ({"retry": 60, "timeout": 60}, {"batches.E001", "batches.E002"}),
        ({"save_limit": 250}, {"batches.E003"}),
        ({"save_limit": 0}, {"batches.E003"}),
        ({"ack_failures": False}, {"batches.E004"}),
        ({"max_attempts": 0}, {"batches.E004"}),
        ({"catch_up": True}, {"batches.E004"}),
        ({"orm": "other"}, {"batches.E006"}),
    ],
)
def test_queue_settings_that_do_not_fit_are_errors(change: dict[str, Any], found: set[str]) -> None:
    with override_settings(Q_CLUSTER=shipped() | change):
        assert ids(checks.queue_settings()) == found


SQLITE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode = wal; PRAGMA foreign_keys=on;",
}


@pytest.mark.parametrize(
    ("engine", "options", "found"),
    [
        ("sqlite3", SQLITE, set()),
        ("sqlite3", {}, {"batches.E005"}),
        ("sqlite3", SQLITE | {"transaction_mode": "DEFERRED"}, {"batches.E005"}),
        ("sqlite3", SQLITE | {"timeout": 5}, {"batches.E005"}),
        ("sqlite3", SQLITE | {"init_command": "PRAGMA foreign_keys=ON;"}, {"batches.E005"}),
        ("sqlite3", SQLITE | {"init_command": "PRAGMA journal_mode=WAL;"}, {"batches.E005"}),
        ("postgresql", {"connect_timeout": 10}, set()),
        ("postgresql", {"pool": True}, {"batches.E009"}),
    ],
)
def test_database_settings_that_do_not_fit_are_errors(engine: str, options: dict[str, Any], found: set[str]) -> None:
    database = {"ENGINE": f"django.db.backends.{engine}", "OPTIONS": options}
    assert ids(list(checks._database_problems(database))) == found


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("", set()),
        ("https://api.relaypdf.com", set()),
        ("http://127.0.0.1:8787", set()),
        ("http://[::1]:8787", set()),
        ("http://localhost:8787", set()),
        ("http://renderer.example.com", {"batches.W001"}),
        ("http://10.0.0.7", {"batches.W001"}),
    ],
)
def test_a_key_in_clear_text_is_a_warning(url: str, found: set[str]) -> None:
    with override_settings(RELAYPDF_BASE_URL=url):
        assert ids(checks.key_on_the_wire()) == found


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.data_folder() == []
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with override_settings(DATA_DIR=tmp_path):
        assert ids(checks.data_folder()) == {"batches.E007"}


def test_leases_that_could_not_be_renewed_in_time_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.engine_limits() == []
    for name, value in (("renew_seconds", 6.0), ("lease_margin_seconds", 11.0)):
        changed = type(ENGINE)(**{name: value})
        monkeypatch.setattr(checks, "ENGINE", changed)
        assert ids(checks.engine_limits()) == {"batches.E008"}
