"""Reading the environment: typed, bounded, and refused with a sentence when it makes no sense.

`ImproperlyConfigured` is raised while settings load, so a wrong value stops every process before it does anything.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Mapping
from email.utils import parseaddr
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import environ
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

#: Every variable that means something to this project; beside them only boto3's own are read.
VARIABLES = (
    "ALLOWED_HOSTS",
    "BEHIND_HTTPS_PROXY",
    "CLUSTER_DRAIN_SECONDS",
    "CLUSTER_HEARTBEAT_SECONDS",
    "CLUSTER_WORKERS",
    "CSRF_TRUSTED_ORIGINS",
    "DATABASE_URL",
    "DATA_DIR",
    "DEBUG",
    "DEFAULT_FROM_EMAIL",
    "EMAIL_URL",
    "FIELD_KEYS",
    "FIRST_PASSWORD",
    "LOG_LEVEL",
    "MAX_UPLOAD_BYTES",
    "OIDC_CLIENT_ID",
    "OIDC_CLIENT_SECRET",
    "OIDC_ISSUER",
    "OIDC_NAME",
    "PASSWORD_SIGN_IN",
    "PUBLIC_URL",
    "QUEUE_BROKER",
    "RELAYPDF_API_KEY",
    "RELAYPDF_BASE_URL",
    "RELAYPDF_DEADLINE",
    "RELAYPDF_KEY_RETENTION",
    "RELAYPDF_MAX_IN_FLIGHT",
    "RELAYPDF_POLL_INITIAL",
    "RELAYPDF_POLL_MAX",
    "RELAYPDF_SUBMIT_INTERVAL",
    "RELAYPDF_WEBHOOK_SECRET",
    "SANDBOX_ENGINE",
    "SANDBOX_PORT",
    "SECRET_KEY",
    "SECURE_HSTS_SECONDS",
    "SESSION_HOURS",
    "SESSION_IDLE_MINUTES",
    "SITE_URL",
    "STORAGE_URL",
)


#: Of the mail servers that django-environ knows those that send something somewhere, or print it.
MAIL_SCHEMES = ("smtp", "smtps", "smtp+tls", "smtp+ssl", "consolemail", "filemail")


def without_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without anything that would point this project at the caller's accounts, data or
    settings module."""
    ours = {*VARIABLES, "DJANGO_SETTINGS_MODULE"}
    return {name: value for name, value in variables.items() if name not in ours}


def text(name: str, default: str = "") -> str:
    """The variable without white space around it (a stray newline after a pasted key is a common accident). Set to
    nothing is the same as not set."""
    return os.environ.get(name, "").strip() or default


def given(*names: str) -> frozenset[str]:
    """Those of `names` that the environment sets, and so overrule what was stored before."""
    return frozenset(name for name in names if text(name))


def choice(name: str, default: str, known: tuple[str, ...]) -> str:
    value = text(name, default)
    if value not in known:
        raise ImproperlyConfigured(f"{name}={value!r} is not one of {', '.join(known)}.")
    return value


def flag(name: str, default: bool) -> bool:
    value = text(name).lower()
    if value == "":
        return default
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise ImproperlyConfigured(f"{name}={value!r} is neither true nor false; use 1 or 0.")


def number(name: str, default: float, *, least: float, most: float) -> float:
    value = text(name)
    if value == "":
        return default
    try:
        parsed = float(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={value!r} is not a number.") from None
    if not least <= parsed <= most:  # also false for nan
        raise ImproperlyConfigured(f"{name}={value} is out of range; it must lie between {least:g} and {most:g}.")
    return parsed


def whole(name: str, default: int, *, least: int, most: int) -> int:
    parsed = number(name, default, least=least, most=most)
    if parsed != int(parsed):
        raise ImproperlyConfigured(f"{name}={parsed:g} must be a whole number.")
    return int(parsed)


def words(name: str, default: list[str]) -> list[str]:
    value = text(name)
    return [word.strip() for word in value.split(",") if word.strip()] if value else default


def origins(name: str) -> list[str]:
    """Origins with their scheme, as Django wants them: https://batches.example.com."""
    values = words(name, [])
    for value in values:
        if not value.startswith(("http://", "https://")):
            raise ImproperlyConfigured(f"{name} needs whole origins such as https://{value}, with commas between.")
    return values


def http_url(name: str) -> str:
    """A base URL without trailing slash, or the empty string."""
    value = text(name).rstrip("/")
    if value == "":
        return ""
    wrong = ImproperlyConfigured(f"{name}={value!r} is not an address such as https://api.example.com.")
    try:
        parts = urlsplit(value)
        _ = parts.port  # raises for a port that is none
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise wrong
    if parts.username or parts.password:
        raise ImproperlyConfigured(f"{name} must not hold a user name or password.")
    return value


def oidc() -> dict[str, Any] | None:
    """The issuer that people may sign in through, as django-allauth takes it (`app`) and under its `name`; None where
    none is set."""
    issuer, client, secret = http_url("OIDC_ISSUER"), text("OIDC_CLIENT_ID"), text("OIDC_CLIENT_SECRET")
    if not (issuer or client or secret):
        return None
    if not (issuer and client and secret):
        raise ImproperlyConfigured("OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET are set together.")
    parts = urlsplit(issuer)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ImproperlyConfigured(f"OIDC_ISSUER={issuer} must begin with https://: who signs in is read from there.")
    if importlib.util.find_spec("allauth") is None:
        raise ImproperlyConfigured(
            "OIDC_ISSUER is set, and django-allauth is not installed: pip install -r requirements-oidc.txt"
        )
    name = text("OIDC_NAME", parts.hostname or "")
    server = {"server_url": issuer}
    app = {"provider_id": "oidc", "name": name, "client_id": client, "secret": secret, "settings": server}
    return {"name": name, "app": app}


def password_sign_in(*, has_other: bool) -> bool:
    """Whether a password opens a session."""
    on = flag("PASSWORD_SIGN_IN", default=True)
    if not on and not has_other:
        raise ImproperlyConfigured("PASSWORD_SIGN_IN=0 without OIDC_ISSUER leaves nobody a way to sign in.")
    return on


def command_line(base: Path, data_dir: Path) -> str:
    """What runs one of our commands in a shell in the project folder, as far as it is known: interpreter and DATA_DIR.

    A DATA_DIR elsewhere is not told: pages show this to people who may not know the machine, and whoever runs such an
    installation has set its environment.
    """
    python = Path(sys.prefix) / "bin" / "python"
    words = [shlex.quote(str(python.relative_to(base))) if python.is_relative_to(base) else "python", "manage.py"]
    if data_dir.is_relative_to(base) and data_dir != base / "var":
        words.insert(0, f"DATA_DIR={shlex.quote(str(data_dir.relative_to(base)))}")
    return " ".join(words)


def data_dir(base: Path) -> Path:
    """DATA_DIR, made if it is missing and then readable by its owner alone: it holds documents and keys."""
    folder = base / text("DATA_DIR", "var")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"DATA_DIR={folder} cannot be made ({error.strerror}); choose another.") from None
    return folder


def database(default: Path) -> dict[str, Any]:
    """Django's description of the database that DATABASE_URL names, a SQLite file at `default` if it names none."""
    url = text("DATABASE_URL")
    scheme = urlsplit(url).scheme if url else "sqlite"
    if scheme == "sqlite":
        path = unquote(urlsplit(url).path[1:]) if url else str(default)
        if path in ("", ":memory:"):
            raise ImproperlyConfigured(
                "DATABASE_URL=sqlite:///… needs a file, since several processes share the database."
            )
        # A reader never waits for the writer (WAL), a transaction takes its write lock when it begins (IMMEDIATE, so
        # that it cannot die half way with "database is locked"), and a writer waits for its turn (timeout, seconds).
        options = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 60,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
        }
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options}
    if scheme not in ("postgres", "postgresql"):
        raise ImproperlyConfigured("DATABASE_URL must start with sqlite:/// or postgresql://.")
    try:
        parsed: dict[str, Any] = environ.Env.db_url_config(url)
    except ValueError:
        raise ImproperlyConfigured(
            "DATABASE_URL is not an address such as postgresql://user:password@host/name."
        ) from None
    if not parsed["NAME"]:
        raise ImproperlyConfigured("DATABASE_URL names no database; it ends with /name.")
    parsed.setdefault("OPTIONS", {}).setdefault("connect_timeout", 10)
    return parsed


def mail_server(url: str, sender: str, site: str) -> dict[str, Any]:
    """Django's settings of the mail server that EMAIL_URL names; without one, of none.

    A mail needs all three: who sends it, and under which address the page that it leads to is reached.
    """
    settings: dict[str, Any] = {
        "EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend",
        "EMAIL_HOST": "",
        "EMAIL_PORT": 25,
        "EMAIL_HOST_USER": "",
        "EMAIL_HOST_PASSWORD": "",
        "EMAIL_USE_TLS": False,
        "EMAIL_USE_SSL": False,
        "EMAIL_FILE_PATH": None,
    }
    if not url:
        return settings
    if not sender or not site:
        raise ImproperlyConfigured("EMAIL_URL needs DEFAULT_FROM_EMAIL and SITE_URL beside it; set all three, or none.")
    address = parseaddr(sender)[1]
    if "@" not in address or any(ord(character) < 32 for character in sender):
        raise ImproperlyConfigured(f"DEFAULT_FROM_EMAIL={sender!r} is no sender such as Batches <batches@example.com>.")
    wrong = ImproperlyConfigured(
        "EMAIL_URL is not an address such as smtp+tls://user:password@mail.example.com:587 or consolemail://."
    )
    if urlsplit(url).scheme not in MAIL_SCHEMES:
        raise wrong
    try:
        parsed: dict[str, Any] = environ.Env.email_url_config(url)
    except (KeyError, ValueError):
        raise wrong from None
    if urlsplit(url).scheme.startswith("smtp") and not parsed.get("EMAIL_HOST"):
        raise wrong
    return settings | {name: value for name, value in parsed.items() if name in settings and value is not None}


def kept_secret(path: Path, *, make: str = "random") -> str:
    """A secret that is made once and kept in `path`, readable by its owner alone.

    Safe when several processes start at once: whoever links first wins and all read the winner's.
    """
    try:
        return _kept_secret(path, make)
    except OSError as error:
        raise ImproperlyConfigured(f"{path} cannot be read or made ({error.strerror}); is DATA_DIR yours?") from None


def _kept_secret(path: Path, make: str) -> str:
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(Fernet.generate_key().decode() if make == "fernet" else secrets.token_urlsafe(50))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process was first; its secret is the one
                os.link(temporary, path)
        finally:
            Path(temporary).unlink()
    value = path.read_text(encoding="ascii").strip()
    if len(value) < 40:
        raise ImproperlyConfigured(f"{path} is cut short; remove it only if nothing is encrypted with it yet.")
    return value


def field_keys(path: Path) -> list[str]:
    """FIELD_KEYS (newest first, comma separated), else one key kept in `path`."""
    keys = words("FIELD_KEYS", [])
    if not keys:
        return [kept_secret(path, make="fernet")]
    for key in keys:
        try:
            Fernet(key)
        except ValueError:
            raise ImproperlyConfigured(
                "FIELD_KEYS holds something that is no Fernet key (32 random bytes in URL-safe base64)."
            ) from None
    return keys


def storage_url(data_dir: Path) -> str:
    """STORAGE_URL, checked: file:///folder or s3://bucket/prefix?endpoint_url=…&region=…"""
    value = text("STORAGE_URL") or f"file://{data_dir / 'artifacts'}"
    parts = urlsplit(value)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ImproperlyConfigured("STORAGE_URL=file://… needs an absolute folder: file:///var/lib/artifacts.")
        return value
    if parts.scheme == "s3":
        unknown = set(parse_qs(parts.query)) - {"endpoint_url", "region"}
        if not parts.netloc or unknown:
            raise ImproperlyConfigured(
                "STORAGE_URL=s3://bucket/prefix takes endpoint_url and region only"
                + (f", not {', '.join(sorted(unknown))}." if unknown else ".")
            )
        return value
    raise ImproperlyConfigured(f"STORAGE_URL={value!r} must start with file:/// or s3://.")
