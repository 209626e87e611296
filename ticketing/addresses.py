"""Which addresses of the network our own requests may go to when a stranger names the host.

Whoever may tell us where to send something could else make us ask what only we can reach: this
machine, its neighbours, the metadata service of a cloud.
"""

import asyncio
import ipaddress
import socket
from typing import TypeAlias

RESOLVE_SECONDS_MAX = 5.0

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv6 addresses that stand for an IPv4 address in their last 32 bits (RFC 6052).
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


class NotPublic(Exception):
    """A host that is, or may be, somewhere inside."""


class Unresolved(Exception):
    """A host whose address can't be found out, now at least."""


async def public_address(host: str, port: int, *, private_allowed: bool) -> str:
    """An address of this host to connect to, so that the name is not looked up again.

    Whoever owns a name may answer the second look-up with another address than the first; hence
    the connection must go to what was returned here. Raises NotPublic if any of its addresses is
    not public, unless that is allowed, and Unresolved.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS_MAX):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise Unresolved(f"the address of {host} can't be found") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses:
        raise Unresolved(f"{host} has no address")
    if not private_allowed:
        for address in addresses:
            if not is_public(ipaddress.ip_address(address)):
                raise NotPublic(f"{host} is not at a public address")
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet at large, also behind the forms that hide one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address.teredo:
            inner = address.teredo[1]
        if address in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )
