"""One-time codes of an authenticator app (TOTP, RFC 6238) as a second factor.

The secret must be known to check a code, so it can't be hashed: it is kept encrypted with a key
that is not in the database.
"""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from functools import cache
from urllib.parse import quote

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from ticketing.settings import Settings

DIGITS = 6
STEP_SECONDS = 30
# RFC 6238, 5.2: a code may be a step old or ahead, for clocks that differ and people who type.
STEPS_AROUND = (0, -1, 1)
# RFC 4226, 4: at least 128 bits, 160 recommended.
SECRET_BYTES = 20


def new_secret() -> bytes:
    """A secret to be shared with an app."""
    return secrets.token_bytes(SECRET_BYTES)


def shown(secret: bytes) -> str:
    """The secret as a person may type it into an app."""
    return base64.b32encode(secret).decode().rstrip("=")


def uri(secret: bytes, issuer: str, account: str) -> str:
    """What a QR code for an app says."""
    label = f"{quote(issuer)}:{quote(account)}"
    return f"otpauth://totp/{label}?secret={shown(secret)}&issuer={quote(issuer)}"


def step_of(secret: bytes, code: str, now: datetime) -> int | None:
    """The time step that a code is of, or None for a wrong one. A step counts once: keep it."""
    if len(code) != DIGITS or not (code.isascii() and code.isdigit()):
        return None
    # Apps know SHA-1 alone, and nothing here rests on its collisions.
    generator = TOTP(secret, DIGITS, SHA1(), STEP_SECONDS)  # noqa: S303
    present = int(now.timestamp()) // STEP_SECONDS
    for around in STEPS_AROUND:
        step = present + around
        expected = generator.generate(step * STEP_SECONDS)
        if hmac.compare_digest(expected, code.encode()):
            return step
    return None


def encrypted(settings: Settings, secret: bytes) -> str:
    """The secret as it is stored."""
    return _cipher(settings.jwt_secret).encrypt(secret).decode()


def decrypted(settings: Settings, stored: str) -> bytes | None:
    """The secret out of what is stored; None where it was encrypted with another key than ours."""
    try:
        return _cipher(settings.jwt_secret).decrypt(stored.encode())
    except InvalidToken:
        return None


@cache
def _cipher(secret: str) -> Fernet:
    key = hmac.new(secret.encode(), b"second factors", hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(key))
