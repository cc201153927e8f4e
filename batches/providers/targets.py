"""Where a finished PDF may be fetched from (docs/architecture.md, "Collection"). Pure; `wire.py` checks the peer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin

from batches.providers.errors import TargetRefused
from batches.providers.http import origin_of

_PLAIN = re.compile(r"[!-\[\]-~]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


@dataclass(frozen=True)
class Target:
    """An allowed address. `public_peer`: the connection must lead to a public address."""

    url: str
    public_peer: bool


def allowed_target(link: str, *, base_url: str, download_hosts: Iterable[str], found_at: str = "") -> Target:
    """The target for `link`, absolute or relative to the address that named it (`found_at`, else the base URL).

    Raises `TargetRefused` for an address that is not allowed, or that two readers could read differently.

    Allowed are the base URL's own scheme, host and port (loopback too, when that is what it is), and https on the
    listed hosts (`host` for port 443, `host:port` for another), which must then connect to a public address.
    """
    absolute = link.strip()
    # Joining drops characters that have no place in a URL, so it only sees links that are plain and have no scheme.
    if _PLAIN.fullmatch(absolute) and not _SCHEME.match(absolute):
        with contextlib.suppress(ValueError):
            absolute = urljoin(found_at or f"{base_url}/", absolute)
    origin = origin_of(absolute)
    if origin is None:
        raise TargetRefused("The download link is no plain http or https address, so nothing was fetched.")
    if origin == origin_of(base_url):
        return Target(absolute, public_peer=False)
    scheme, host, port = origin
    listed = {_host_and_port(entry) for entry in download_hosts}
    if (host, port) not in listed:
        raise TargetRefused(
            f"The download link leads to {host}:{port}, which is neither the provider's own address nor one of the "
            "account's download hosts, so nothing was fetched. Add the host to the account if it is the provider's."
        )
    if scheme != "https":
        raise TargetRefused(f"The download link to {host} is not https, so nothing was fetched.")
    return Target(absolute, public_peer=True)


def _host_and_port(entry: str) -> tuple[str, int]:
    origin = origin_of(f"https://{entry.strip()}")
    return (origin[1], origin[2]) if origin else ("", 0)
