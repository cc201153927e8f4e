"""Every setting, from the environment (README, "Settings"). Nonsense is refused while this file loads.

Safe by default: DEBUG is off, only loopback hosts are served, secrets are made at random and kept in DATA_DIR.
"""

from __future__ import annotations

from pathlib import Path

import django
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from relaypdf_site import environment as env

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = env.data_dir(BASE_DIR)

DEBUG = env.flag("DEBUG", default=False)
SECRET_KEY = env.text("SECRET_KEY") or env.kept_secret(DATA_DIR / "secret_key")
if len(SECRET_KEY) < 32:
    raise ImproperlyConfigured("SECRET_KEY is shorter than 32 characters; take 50 random ones.")
FIELD_KEYS = env.field_keys(DATA_DIR / "field_key")
LOOPBACK_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", LOOPBACK_HOSTS)
CSRF_TRUSTED_ORIGINS = env.origins("CSRF_TRUSTED_ORIGINS")
SERVED_BEYOND_LOOPBACK = not set(ALLOWED_HOSTS) <= set(LOOPBACK_HOSTS)

INSTALLED_APPS = [
    "batches.apps.BatchesConfig",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_q",
    "django_htmx",
    "axes",
    "csp",
    "ninja",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "batches.middleware.CalmAnswers",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "batches.views.sessions.SessionRules",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "csp.middleware.CSPMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "relaypdf_site.urls"
WSGI_APPLICATION = "relaypdf_site.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# --- database: SQLite by default, PostgreSQL by DATABASE_URL ------------------------------------------------------

DATABASES = {"default": env.database(DATA_DIR / "db.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- the queue: a doorbell, never the truth (batches/queue.py) ------------------------------------------------------

QUEUE_BROKER = env.text("QUEUE_BROKER", "orm")
if QUEUE_BROKER != "orm":
    raise ImproperlyConfigured(f"QUEUE_BROKER={QUEUE_BROKER!r} is not available in this version; only 'orm' is.")
CLUSTER_WORKERS = env.whole("CLUSTER_WORKERS", 4, least=1, most=64)
# How long running tasks may take to end after a stop before they are killed, and how long the cluster's inner loop may
# stand still before it is taken for stuck (longer than SQLite's busy timeout, which it may meet). Seconds.
CLUSTER_DRAIN_SECONDS = env.number("CLUSTER_DRAIN_SECONDS", 30, least=1, most=600)
CLUSTER_HEARTBEAT_SECONDS = env.number("CLUSTER_HEARTBEAT_SECONDS", 90, least=2, most=3600)
# Where each cluster holds the lock that proves it alive; its end proves it dead.
LIVES_DIR = DATA_DIR / "clusters"
Q_CLUSTER = {
    "name": "relaypdf",
    "orm": "default",
    "workers": CLUSTER_WORKERS,
    "queue_limit": CLUSTER_WORKERS,
    "bulk": 10,
    "poll": 0.2,
    "save_limit": -1,
    "ack_failures": True,
    "max_attempts": 1,
    "timeout": 150,
    "retry": 210,
    "catch_up": False,
    "recycle": 50,
    "label": "Queue",
}

# --- RelayPDF Batches -----------------------------------------------------------------------------------------------

STORAGE_URL = env.storage_url(DATA_DIR)
# Where a PDF lies on its way into a bucket; a store on a disk has a folder of its own.
STAGING_DIR = DATA_DIR / "staging"
# Under which address providers reach this site, for registering webhooks; pages need no such thing.
PUBLIC_URL = env.http_url("PUBLIC_URL")
# Notices by e-mail: off until EMAIL_URL names a server. SITE_URL is where people open the pages that a mail leads to.
SITE_URL = env.http_url("SITE_URL")
EMAIL_URL = env.text("EMAIL_URL")
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "webmaster@localhost")
MAIL_SERVER = env.mail_server(EMAIL_URL, env.text("DEFAULT_FROM_EMAIL"), SITE_URL)
EMAIL_BACKEND = MAIL_SERVER["EMAIL_BACKEND"]
EMAIL_HOST, EMAIL_PORT = MAIL_SERVER["EMAIL_HOST"], MAIL_SERVER["EMAIL_PORT"]
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL_SERVER["EMAIL_HOST_USER"], MAIL_SERVER["EMAIL_HOST_PASSWORD"]
EMAIL_USE_TLS, EMAIL_USE_SSL = MAIL_SERVER["EMAIL_USE_TLS"], MAIL_SERVER["EMAIL_USE_SSL"]
EMAIL_FILE_PATH = MAIL_SERVER["EMAIL_FILE_PATH"]
EMAIL_TIMEOUT = 10  # seconds; a letter in hand is leased for longer
RELAYPDF_BASE_URL = env.http_url("RELAYPDF_BASE_URL")
RELAYPDF_API_KEY = env.text("RELAYPDF_API_KEY")
RELAYPDF_WEBHOOK_SECRET = env.text("RELAYPDF_WEBHOOK_SECRET")
RELAYPDF_SUBMIT_INTERVAL = env.number("RELAYPDF_SUBMIT_INTERVAL", 3.0, least=0.001, most=3600)
RELAYPDF_MAX_IN_FLIGHT = env.whole("RELAYPDF_MAX_IN_FLIGHT", 20, least=1, most=100_000)
RELAYPDF_DEADLINE = env.number("RELAYPDF_DEADLINE", 1800, least=1, most=7 * 86400)
RELAYPDF_POLL_INITIAL = env.number("RELAYPDF_POLL_INITIAL", 1, least=0.05, most=600)
RELAYPDF_POLL_MAX = env.number("RELAYPDF_POLL_MAX", 15, least=0.05, most=3600)
RELAYPDF_KEY_RETENTION = env.number("RELAYPDF_KEY_RETENTION", 3600, least=0, most=365 * 86400)
# Where the sandbox that comes with the installation listens on 127.0.0.1.
SANDBOX_PORT = env.whole("SANDBOX_PORT", 8787, least=1, most=65535)
# What the environment says out loud overrules, at `bootstrap`, what the account's row says; defaults do not.
# What a person types before a command of ours, in the project folder; pages and messages say it.
COMMAND_LINE = env.command_line(BASE_DIR, DATA_DIR)
GIVEN = env.given(
    "RELAYPDF_SUBMIT_INTERVAL",
    "RELAYPDF_MAX_IN_FLIGHT",
    "RELAYPDF_DEADLINE",
    "RELAYPDF_POLL_INITIAL",
    "RELAYPDF_POLL_MAX",
    "RELAYPDF_KEY_RETENTION",
    "SANDBOX_PORT",
)
if RELAYPDF_POLL_INITIAL > RELAYPDF_POLL_MAX:
    raise ImproperlyConfigured("RELAYPDF_POLL_INITIAL is larger than RELAYPDF_POLL_MAX.")
if RELAYPDF_BASE_URL and not RELAYPDF_API_KEY:
    raise ImproperlyConfigured(
        "RELAYPDF_BASE_URL is set without RELAYPDF_API_KEY; set both, or neither for the sandbox."
    )
if any(ord(character) < 33 or ord(character) > 126 for character in RELAYPDF_API_KEY):
    raise ImproperlyConfigured("RELAYPDF_API_KEY holds a space, a line break or a character that no header may carry.")

MAX_UPLOAD_BYTES = env.whole("MAX_UPLOAD_BYTES", 2_000_000_000, least=1024, most=16 * 1024**3)
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024**2
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5_000  # each ticked row of a list is one
FILE_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024**2

# --- people, pages, security ----------------------------------------------------------------------------------------

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Sign-in through an OpenID Connect issuer (docs/sign-in.md); off unless OIDC_ISSUER is set. Where it is, passwords may
# be switched off.
OIDC = env.oidc()
PASSWORD_SIGN_IN = env.password_sign_in(has_other=OIDC is not None)
RIGHTS_BACKEND = (
    "django.contrib.auth.backends.ModelBackend" if PASSWORD_SIGN_IN else "relaypdf_site.backends.RightsOnly"
)
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", RIGHTS_BACKEND]
if OIDC is not None:
    INSTALLED_APPS += ["allauth", "allauth.account", "allauth.socialaccount"]
    INSTALLED_APPS += ["allauth.socialaccount.providers.openid_connect"]
    MIDDLEWARE += ["allauth.account.middleware.AccountMiddleware"]
    ACCOUNT_ADAPTER, SOCIALACCOUNT_ADAPTER = "relaypdf_site.oidc.Accounts", "relaypdf_site.oidc.People"
    # Nobody is known by an e-mail address here: it links no two people, and is not asked to be confirmed.
    ACCOUNT_UNIQUE_EMAIL = False
    ACCOUNT_EMAIL_VERIFICATION = SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
    # The page's link leads there without a page between: the answer is bound to this browser by state and PKCE.
    SOCIALACCOUNT_LOGIN_ON_GET = True
    SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [OIDC["app"]]}}
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "batches:home"
LOGOUT_REDIRECT_URL = "login"

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# A session ends so long after it began, and so long after it was last used (batches/views/sessions.py).
SESSION_COOKIE_AGE = env.whole("SESSION_HOURS", 12, least=1, most=24 * 30) * 3600
SESSION_IDLE_SECONDS = env.whole("SESSION_IDLE_MINUTES", 120, least=5, most=24 * 60 * 30) * 60
CSRF_FAILURE_VIEW = "batches.views.sessions.form_too_old"
# Cookies need HTTPS as soon as anyone but this machine is served; on loopback there is no wire to listen on.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SERVED_BEYOND_LOOPBACK and not DEBUG
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = env.whole("SECURE_HSTS_SECONDS", 0, least=0, most=63072000)
if env.flag("BEHIND_HTTPS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    # Who asks is in a header as well: wrong passwords are counted by it, and audit entries name it.
    MIDDLEWARE.insert(0, "batches.middleware.ForwardedAddress")
X_FRAME_OPTIONS = "SAMEORIGIN"  # a page shows a PDF of its own site in a frame
SILENCED_SYSTEM_CHECKS = [
    "security.W019",  # the frame above
    "security.W005",  # HSTS for sub-domains and browsers' preload lists is for the owner of the domain to decide
    "security.W021",
]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "frame-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [SELF],
    }
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = DEBUG

CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # django-q2 installs a handler of its own unless it finds one.
        "django-q": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "django.request": {"level": "ERROR"},
        "axes": {"level": "WARNING"},
    },
}

assert django.VERSION >= (5, 2), "Django 5.2 or newer is needed"
