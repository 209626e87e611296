"""What a ticket's QR code says: signed, so that a gate believes it without asking anybody.

    T1 ‖ base32( key id 4 · ticket 16 · event 16 · ordinal of the seat 4 · signature 64 )

The signature is Ed25519 over the `T1` that names the form and the octets before it. Base32 has only
what a QR code packs tightly and what a scanner that types like a keyboard gets right. A gate needs
the public keys, and to know which tickets were voided: `tickets.voided` lists those.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORM = "T1"
KEY_ID_OCTETS = 4
IDENTIFIER_OCTETS = 16
ORDINAL_OCTETS = 4
SIGNATURE_OCTETS = 64
_SIGNED_OCTETS = KEY_ID_OCTETS + 2 * IDENTIFIER_OCTETS + ORDINAL_OCTETS


class BadCode(Exception):
    """The text is no code that one of the keys has signed."""


@dataclass(frozen=True)
class Admission:
    """What a code that is genuine says: this ticket of this event is for this seat."""

    ticket_id: str
    event_id: str
    seat_id: str


class Signer:
    """Signs codes with the present key; knows the former ones, whose codes are still on paper."""

    def __init__(self, private_key: bytes, former_public_keys: Iterable[bytes] = ()) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)
        present = self._key.public_key()
        former = [Ed25519PublicKey.from_public_bytes(raw) for raw in former_public_keys]
        self._key_id = _key_id(present)
        self.public_keys = {_key_id(key).hex(): key for key in [present, *former]}

    def sign(self, admission: Admission) -> str:
        """The code. Raises ValueError for identifiers that this product never made."""
        event_id, _, ordinal = admission.seat_id.rpartition(":")
        if event_id != admission.event_id:
            raise ValueError("The seat is of another event.")
        content = (
            self._key_id
            + _octets("tkt_", admission.ticket_id)
            + _octets("evt_", event_id)
            + int(ordinal).to_bytes(ORDINAL_OCTETS, "big")
        )
        signature = self._key.sign(FORM.encode() + content)
        return _text(content + signature)


def read(code: str, public_keys: Mapping[str, Ed25519PublicKey]) -> Admission:
    """What the code says. Raises BadCode, without a reason that would help who forges one."""
    text = code.strip().upper()
    try:
        body = text.removeprefix(FORM)
        octets = base64.b32decode(body + "=" * (-len(body) % 8))
    except ValueError:
        raise BadCode from None
    # The last letter has bits to spare: one ticket must not have several codes.
    if _text(octets) != text:
        raise BadCode
    content, signature = octets[:_SIGNED_OCTETS], octets[_SIGNED_OCTETS:]
    key = public_keys.get(content[:KEY_ID_OCTETS].hex())
    if key is None:
        raise BadCode
    try:
        key.verify(signature, FORM.encode() + content)
    except InvalidSignature:
        raise BadCode from None
    ticket, event, ordinal = (
        content[KEY_ID_OCTETS:][:IDENTIFIER_OCTETS],
        content[KEY_ID_OCTETS + IDENTIFIER_OCTETS :][:IDENTIFIER_OCTETS],
        int.from_bytes(content[-ORDINAL_OCTETS:], "big"),
    )
    event_id = f"evt_{event.hex()}"
    return Admission(f"tkt_{ticket.hex()}", event_id, f"{event_id}:{ordinal:05d}")


def json_web_key(key_id: str, key: Ed25519PublicKey) -> dict[str, str]:
    """A public key as RFC 8037 writes it."""
    x = base64.urlsafe_b64encode(key.public_bytes_raw()).decode().rstrip("=")
    return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": key_id, "x": x}


def public_keys(json_web_keys: Iterable[Mapping[str, str]]) -> dict[str, Ed25519PublicKey]:
    """The keys by their ids, as a gate makes them of what it downloaded.

    A key's id follows from the key, so the `kid` sent along is not asked.
    """
    keys = [
        Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(each["x"] + "="))
        for each in json_web_keys
    ]
    return {_key_id(key).hex(): key for key in keys}


def _key_id(key: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(key.public_bytes_raw()).digest()[:KEY_ID_OCTETS]


def _text(octets: bytes) -> str:
    return FORM + base64.b32encode(octets).decode().rstrip("=")


def _octets(prefix: str, identifier: str) -> bytes:
    octets = bytes.fromhex(identifier.removeprefix(prefix))
    if len(octets) != IDENTIFIER_OCTETS:
        raise ValueError(f"{identifier} is not an identifier of {IDENTIFIER_OCTETS} octets.")
    return octets
