"""Nothing inside is reached by a name or an address that a stranger gave."""

import ipaddress

import pytest

from ticketing import addresses
from ticketing.addresses import NotPublic, Unresolved


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",  # noqa: S104
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a00:1::1",
    ],
)
def test_an_address_inside_is_not_public_in_any_form(address: str) -> None:
    assert not addresses.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert addresses.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "::1"]
)
async def test_a_host_is_judged_by_what_it_resolves_to(host: str) -> None:
    with pytest.raises(NotPublic):
        await addresses.public_address(host, 443, private_allowed=False)
    assert await addresses.public_address(host, 443, private_allowed=True) in ("127.0.0.1", "::1")


async def test_one_private_address_among_public_ones_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(2, 1, 6, "", (address, 443)) for address in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    with pytest.raises(NotPublic):
        await addresses.public_address("mixed.example", 443, private_allowed=False)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64 + ".example", "a..b"])
async def test_a_host_without_an_address_is_told_apart(host: str) -> None:
    with pytest.raises(Unresolved):
        await addresses.public_address(host, 443, private_allowed=False)
