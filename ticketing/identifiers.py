"""How things are named: opaque, unguessable where a name alone opens something."""

import hashlib
import secrets
from datetime import datetime
from itertools import count

# Crockford's alphabet: no I, L, O, U, so that a reference read aloud at a door is not misheard.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # pragma: allowlist secret
REFERENCE_LENGTH = 8


def fresh(prefix: str) -> str:
    """A new identifier of 128 random bits, such as `ord_3f…`."""
    return f"{prefix}_{secrets.token_hex(16)}"


_made = count()


def ordered(prefix: str, now: datetime) -> str:
    """A new identifier that sorts by its instant and, within one, as this process made them."""
    milliseconds = int(now.timestamp() * 1_000)
    made = next(_made) & 0xFFFF_FFFF
    return f"{prefix}_{milliseconds:012x}{made:08x}{secrets.token_hex(6)}"


def derived(prefix: str, *parts: str) -> str:
    """The identifier that these parts always give: a repeated request names the same thing."""
    return f"{prefix}_{digest(*parts)}"


def digest(*parts: str | bytes) -> str:
    """128 bits of SHA-256 over the parts, each preceded by its length so that none can shift."""
    raw = [part if isinstance(part, bytes) else part.encode() for part in parts]
    framed = b"".join([len(part).to_bytes(8, "big") + part for part in raw])
    return hashlib.sha256(framed).hexdigest()[:32]


def reference() -> str:
    """Eight characters a person can read out: 40 random bits, unique by an index."""
    bits = secrets.randbits(5 * REFERENCE_LENGTH)
    return "".join(_ALPHABET[bits >> 5 * place & 31] for place in range(REFERENCE_LENGTH))


def ticket_code() -> str:
    """What opens the door: 128 random bits, URL-safe."""
    return secrets.token_urlsafe(16)
