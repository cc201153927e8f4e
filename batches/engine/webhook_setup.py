"""Our address at the provider: registering it, changing its secret, taking it away, and listing what is there.

A call to the provider stands between two short transactions, never inside one. Who dies in between leaves an address
at the provider that no row knows: `listed` shows it, and `delete` takes it away by its id.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.db import transaction

from batches.engine import audit, exchanges
from batches.engine.accounts import provider_config
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.exchanges import Evidence
from batches.models import ProviderAccount, UnreadableSecret
from batches.providers import make_provider
from batches.providers.base import Deleted, Endpoint, ExchangeFacts, Provider
from batches.providers.errors import OutcomeUnknown, ProviderError

#: After a rotation the secret of before is accepted so long: for what was signed with it and is under way. Its address
#: is taken away at once, so nothing more is signed with it.
PREVIOUS_KEPT = timedelta(hours=1)
URL_LENGTH_MOST = 300
LIST_WORDS = "List the addresses at the provider, and delete what is not wanted."

Make = Callable[[ProviderAccount], Provider]


class Refused(Exception):
    """It was not done, or not to its end; `words` say what to do, without a secret."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass(frozen=True)
class Listed:
    """An address at the provider. `is_ours`: the account's row names it. `leads_here`: it is the registered address,
    whoever registered it."""

    id: str
    url: str
    is_ours: bool
    leads_here: bool


def address(given: str, *, slug: str, provider_url: str) -> str:
    """The whole address for webhooks, from our public address with a path or without. Pure; raises `Refused`.

    A provider elsewhere must be able to reach it, over https; one on this machine may call this machine.
    """
    wrong = f"Give the address under which this site is reached, such as https://batches.example.com, not {given!r}."
    text = given.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Refused(wrong) from None
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not (host and is_plain):
        raise Refused(wrong)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Refused(wrong)
    if not _is_local(urlsplit(provider_url).hostname or ""):
        if _is_local(host):
            raise Refused(f"The provider cannot reach {host} from where it is; give this site's public address.")
        if parts.scheme != "https":
            raise Refused("The provider sends webhooks over https only; give this site's https address.")
    path = parts.path if parts.path.strip("/") else f"/webhooks/{slug}"
    if not path.rstrip("/").endswith(f"/webhooks/{slug}"):
        raise Refused(f"Webhooks of this account are taken at /webhooks/{slug}; {parts.path} leads elsewhere.")
    shown = f"[{host}]" if ":" in host else host
    whole = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{path.rstrip('/')}"
    if len(whole) > URL_LENGTH_MOST:
        raise Refused(f"The address is longer than {URL_LENGTH_MOST} characters.")
    return whole


def _is_local(host: str) -> bool:
    """Whether this name or number leads nowhere from outside: this machine, a private network, a name without a dot."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith((".localhost", ".local", ".internal", ".lan"))


def open_provider(account: ProviderAccount) -> Provider:
    return make_provider(account.kind, provider_config(account))


def listed(account_id: int, *, now: datetime, make: Make = open_provider) -> list[Listed]:
    """What the provider sends this account's webhooks to. One call to it. Raises `Refused`."""
    account = _account(account_id)
    with _provider(account, make) as provider:
        try:
            found = provider.list_webhooks(now=now).endpoints
        except ProviderError as error:
            _note(account, error.exchange)
            raise Refused(error.words) from error
    return [
        Listed(each.id, each.url, each.id == account.webhook_id, bool(each.url) and each.url == account.webhook_url)
        for each in found
    ]


def register(account_id: int, url: str, *, by: By, reason: str, now: datetime, make: Make = open_provider) -> str:
    """Have the provider send webhooks to `url` and keep the secret that it shows. What was done, as a sentence.

    A secret that was set by hand stays accepted beside it. Raises `Refused`.
    """
    account = _account(account_id)
    if account.webhook_id:
        raise Refused(f"{account.webhook_url} is registered already. Rotate its secret, or delete it first.")
    whole = address(url, slug=account.slug, provider_url=account.base_url)
    with _provider(account, make) as provider:
        made = _made(account, provider, whole, now=now)
        if not _kept(account, made, whole, rotated_at=None, action="register_webhook", by=by, reason=reason, now=now):
            raise Refused(_taken_back(account, provider, made, now=now))
    return f"Webhooks come to {whole}.{_about_secret(made)}"


def rotate(account_id: int, *, by: By, reason: str, now: datetime, make: Make = open_provider) -> str:
    """Register the same address anew, with a new secret, and take the old registration away.

    The secret of before is accepted for `PREVIOUS_KEPT`. Raises `Refused`.
    """
    account = _account(account_id)
    if not account.webhook_id:
        raise Refused("No address is registered from here, so there is no secret to rotate. Register one first.")
    old_id, whole = account.webhook_id, account.webhook_url
    with _provider(account, make) as provider:
        made = _made(account, provider, whole, now=now)
        if not made.secret:
            raise Refused(
                f"The provider showed no new secret; the old one stays. {_taken_back(account, provider, made, now=now)}"
            )
        if not _kept(account, made, whole, rotated_at=now, action="rotate_webhook", by=by, reason=reason, now=now):
            raise Refused(_taken_back(account, provider, made, now=now))
        words = "The secret is new; the one before is accepted for another hour."
        try:
            _deleted(account, provider, old_id, now=now)
        except ProviderError as error:
            raise Refused(
                f"{words} But the old registration {old_id} is still at the provider, which sends everything twice "
                f"until it is deleted: {error.words}"
            ) from error
    return words


def delete(account_id: int, endpoint_id: str, *, by: By, reason: str, now: datetime, make: Make = open_provider) -> str:
    """Have the provider send nothing more to that address, ours or one that was left behind. Raises `Refused`.

    With ours goes its secret, so that nothing is taken under it; one that was set by hand before is used again.
    """
    account = _account(account_id)
    if not endpoint_id.strip():
        raise Refused("Say which address: its id stands in the list.")
    with _provider(account, make) as provider:
        try:
            deleted = _deleted(account, provider, endpoint_id.strip(), now=now)
        except OutcomeUnknown as error:
            raise Refused(f"It is not known whether it is gone. {error.words} {LIST_WORDS}") from error
        except ProviderError as error:
            raise Refused(error.words) from error
    is_ours = _forgotten(account, endpoint_id.strip(), by=by, reason=reason, now=now)
    gone = "The provider knew no such address." if deleted.already_gone else "The address is deleted at the provider."
    return f"{gone} Its secret is no longer accepted; polling finds every document." if is_ours else gone


@again_after_deadlock
def end_previous(*, now: datetime) -> int:
    """Stop accepting the secrets that a rotation replaced long enough ago; of how many accounts."""
    rows = ProviderAccount.objects.filter(webhook_rotated_at__lte=now - PREVIOUS_KEPT)
    return rows.update(webhook_secret_previous="", webhook_rotated_at=None)


# --- one step each ---


def _account(account_id: int) -> ProviderAccount:
    try:
        account = ProviderAccount.objects.select_related("workspace").get(pk=account_id)
    except UnreadableSecret as error:
        raise Refused(str(error)) from error
    if account.archived_at is not None:
        raise Refused("The account is archived.")
    return account


@contextmanager
def _provider(account: ProviderAccount, make: Make) -> Iterator[Provider]:
    try:
        provider = make(account)
    except (TypeError, ValueError, LookupError, ProviderError) as error:
        raise Refused("The account's settings cannot be used; correct its address and key.") from error
    try:
        if not provider.capabilities.webhook_endpoints:
            raise Refused("This provider takes no addresses by itself; register ours in its own pages.")
        yield provider
    finally:
        provider.close()


def _made(account: ProviderAccount, provider: Provider, url: str, *, now: datetime) -> Endpoint:
    try:
        made = provider.register_webhook(url, now=now)
    except ProviderError as error:
        _note(account, error.exchange)
        if isinstance(error, OutcomeUnknown):
            raise Refused(f"It is not known whether the address was registered. {error.words} {LIST_WORDS}") from error
        raise Refused(f"It was not registered. {error.words}") from error
    _note(account, made.exchange)
    return made.endpoint


def _deleted(account: ProviderAccount, provider: Provider, endpoint_id: str, *, now: datetime) -> Deleted:
    try:
        deleted = provider.delete_webhook(endpoint_id, now=now)
    except ProviderError as error:
        _note(account, error.exchange)
        raise
    _note(account, deleted.exchange)
    return deleted


def _note(account: ProviderAccount, exchange: ExchangeFacts | None) -> None:
    if exchange is not None:
        exchanges.record([Evidence(exchange, account.pk, job_id=None, submission_id=None)])


def _kept(
    account: ProviderAccount,
    made: Endpoint,
    url: str,
    *,
    rotated_at: datetime | None,
    action: str,
    by: By,
    reason: str,
    now: datetime,
) -> bool:
    """Store what the provider answered; false when somebody else has changed the registration meanwhile."""
    secrets = {"webhook_secret": made.secret, "webhook_secret_previous": account.webhook_secret} if made.secret else {}
    with transaction.atomic():
        unchanged = ProviderAccount.objects.filter(pk=account.pk, webhook_id=account.webhook_id)
        if not unchanged.update(
            webhook_id=made.id, webhook_url=url, webhook_registered_at=now, webhook_rotated_at=rotated_at, **secrets
        ):
            return False
        _record(action, account, made.id, by=by, reason=reason, now=now)
    return True


def _taken_back(account: ProviderAccount, provider: Provider, made: Endpoint, *, now: datetime) -> str:
    """Take away at the provider what cannot be kept here; what came of that."""
    try:
        _deleted(account, provider, made.id, now=now)
    except ProviderError:
        return f"Nothing was changed here, but the provider keeps the registration {made.id}. {LIST_WORDS}"
    return "Nothing was changed; look again, for somebody else may have changed it at the same time."


@again_after_deadlock
def _forgotten(account: ProviderAccount, endpoint_id: str, *, by: By, reason: str, now: datetime) -> bool:
    """Write down the deletion; true when it was the account's own registration, which is cleared."""
    with transaction.atomic():
        ours = ProviderAccount.objects.filter(pk=account.pk, webhook_id=endpoint_id)
        cleared = ours.update(
            webhook_id="",
            webhook_url="",
            webhook_registered_at=None,
            webhook_secret=account.webhook_secret_previous if account.webhook_rotated_at is None else "",
            webhook_secret_previous="",
            webhook_rotated_at=None,
        )
        _record("delete_webhook", account, endpoint_id, by=by, reason=reason, now=now)
    return bool(cleared)


def _record(action: str, account: ProviderAccount, endpoint_id: str, *, by: By, reason: str, now: datetime) -> None:
    audit.record(
        action,
        subject=f"account {account.slug}",
        workspace=account.workspace,
        by=by,
        now=now,
        reason=reason,
        facts={"endpoint": endpoint_id[:200]},
    )


def _about_secret(made: Endpoint) -> str:
    if made.secret:
        return " Its secret is stored."
    return " The provider showed no secret: set the one that its pages show, or nothing that comes is taken."
