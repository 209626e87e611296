"""Where a request comes from, which is not for the request to say.

Only what a configured proxy adds to `X-Forwarded-For` is believed. Each proxy adds at the right the
address that it was asked from, so the list is read from the right, past our own proxies, to the
first address that is none of them.
"""

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from litestar.connection import ASGIConnection

from ticketing.api.services import services_of

UNKNOWN = "unknown"
# What proxies of ours could have added; what stands before that anybody may have written.
HOPS_MAX = 10


def of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The client's address as text, or `unknown` where even the server knows none."""
    client = connection.scope.get("client")
    peer = client[0] if client else UNKNOWN
    networks = services_of(connection).trusted_proxies
    if not networks or not _is_within(peer, networks):
        return peer
    forwarded = ",".join(connection.headers.getall("x-forwarded-for", []))
    for hop in list(reversed(forwarded.split(",")))[:HOPS_MAX]:
        hop_address = hop.strip()
        try:
            ip_address(hop_address)
        except ValueError:
            return peer
        if not _is_within(hop_address, networks):
            return hop_address
        peer = hop_address
    return peer


@lru_cache(maxsize=10_000)
def limited_by(address: str) -> str:
    """What shares one limit: an IPv4 address, or the /64 that one IPv6 customer is given."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed) >> 64 << 64, 64)))


@lru_cache(maxsize=10_000)
def _is_within(address: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)
