"""Access tokens of our own accounts: short-lived, signed by HS256, and kept nowhere."""

from datetime import datetime

from joserfc import jwt
from joserfc.jwk import OctKey

from ticketing.clock import seconds
from ticketing.settings import Settings

# What somebody who was locked out can still do is over within this time.
ACCESS_SECONDS = 15 * 60


def issue(
    settings: Settings,
    *,
    subject: str,
    role: str,
    now: datetime,
    valid_seconds: float = ACCESS_SECONDS,
) -> str:
    """A signed token as the API accepts it."""
    return jwt.encode(
        {"alg": "HS256"},
        {
            "sub": subject,
            "role": role,
            "iat": now,
            "exp": now + seconds(valid_seconds),
            "iss": settings.jwt_issuer,
            "aud": settings.jwt_audience,
        },
        OctKey.import_key(settings.jwt_secret),
    )
