"""Which addresses the sandbox may be pointed at, judged by their text alone: it never resolves a name."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

_PRIVATE_SUFFIXES = (".local", ".localhost", ".internal", ".lan", ".home", ".corp", ".test", ".invalid")


def is_loopback(host: str) -> bool:
    """True for localhost and for loopback addresses, without port."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_public_url(url: str) -> bool:
    """True for an http(s) URL whose host is not private by its text (RelayPDF refuses others, A2)."""
    parts = split(url)
    if parts is None or parts.scheme not in ("http", "https") or parts.username is not None:
        return False
    host = (parts.hostname or "").lower().rstrip(".")
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        pass
    last = host.rpartition(".")[2]
    # A last label of digits or hex is an address in disguise (2130706433, 0x7f.1, 127.1).
    if "." not in host or last.isdigit() or last.startswith("0x"):
        return False
    return not host.endswith(_PRIVATE_SUFFIXES)


def is_allowed_receiver(url: str, *, loopback_http: bool) -> bool:
    """True for a webhook or callback target: https, or plain http to this machine where that is switched on."""
    parts = split(url)
    if parts is None or not parts.hostname:
        return False
    if parts.scheme == "https":
        return True
    return parts.scheme == "http" and loopback_http and is_loopback(parts.hostname)


def split(url: str) -> SplitResult | None:
    """The parts of `url`, or None when it can't be read as one."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
