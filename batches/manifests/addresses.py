"""Whether an address leads into a private network, as far as its text says. Pure: no name is ever looked up.

Whoever connects has to look at the peer that it reached; this only tells people early.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from urllib.parse import unquote

_HOST = re.compile(r"(?:[^/?#\\]*@)?(\[[^\]/?#]*\]|[^/?#\\:]*)")
_NUMERIC = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_INSIDE = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".private", ".home.arpa")


def host_of(rest: str) -> str:
    """The host of what stands behind `//` in an address; "" for none."""
    found = _HOST.match(rest)
    return found[1] if found else ""


def is_private(host: str) -> bool:
    """Whether `host` is this machine, a link-local or private address in any of its spellings, or a name that only a
    private network knows."""
    name = host.strip().lower()
    if "%" in name or not name.isascii():  # browsers take fullwidth digits and %31 for what they stand for
        name = unicodedata.normalize("NFKC", unquote(name)).replace("\u3002", ".").replace("\u00ad", "").lower()
    name = name.rstrip(".")
    if not name:
        return False
    if name.startswith("["):
        return _is_private_address(name.strip("[]").partition("%")[0])
    if _NUMERIC.fullmatch(name) and name[0].isdigit():
        try:
            # As browsers read it: 127.1, 0x7f000001 and 2130706433 are all this machine.
            return _is_private_address(socket.inet_ntoa(socket.inet_aton(name)))
        except (OSError, ValueError):
            return False
    return "." not in name or name.endswith(_INSIDE)


def _is_private_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):  # what gateways take for an address of version 4
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        address = address.ipv4_mapped or address.sixtofour or inner or address
    return not address.is_global
