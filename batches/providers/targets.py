"""Where a finished PDF may be fetched from (design section 6). Pure; the connected peer is checked in `wire.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin

from batches.providers.errors import TargetRefused
from batches.providers.http import origin_of


@dataclass(frozen=True)
class Target:
    """An allowed address. `public_peer`: the connection must lead to a public address."""

    url: str
    public_peer: bool


def allowed_target(url: str, *, base_url: str, download_hosts: Iterable[str]) -> Target:
    """The target for `url`, absolute or relative to `base_url`. Raises `TargetRefused`.

    Allowed are the base URL's own scheme, host and port (loopback too, when that is what it is), and https on the
    listed hosts (`host` for port 443, `host:port` for another), which must then connect to a public address.
    """
    base = origin_of(base_url)
    absolute = urljoin(base_url + "/", url.strip())
    origin = origin_of(absolute)
    if origin is None:
        raise TargetRefused("The download link is no plain http or https address, so nothing was fetched.")
    if origin == base:
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
