"""Links that are mailed: signed, for one purpose, until an instant.

What a link says is not secret, and that it can't be made by anybody else is the whole of it. The
database holds none, so a copy of it opens nobody's account. The key is made of ours for tokens, yet
is another: a link is no token and a token is no link.
"""

import hashlib
import hmac
from datetime import datetime
from functools import cache
from typing import Literal

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from ticketing.errors import Refusal
from ticketing.settings import Settings

Purpose = Literal["register", "reset", "changeEmail", "guest"]
LENGTH_MAX = 1_000


class LinkInvalid(Refusal):
    """The link is not ours, for something else, used already, or too old."""

    slug = "link-invalid"
    title = "Link invalid"

    def __init__(self) -> None:
        super().__init__("This link is not valid (any more). Ask for a new one.")


class _Content(msgspec.Struct, array_like=True):
    purpose: str
    subject: str
    ends_at: int


def make(settings: Settings, purpose: Purpose, subject: str, ends_at: datetime) -> str:
    """A link's text, which needs no escaping in an address."""
    content = msgspec.json.encode(_Content(purpose, subject, int(ends_at.timestamp())))
    return jws.serialize_compact({"alg": "HS256"}, content, _key(settings.jwt_secret))


def read(settings: Settings, purpose: Purpose, link: str, now: datetime) -> str:
    """Whom or what the link is about. Raises LinkInvalid."""
    try:
        signed = jws.deserialize_compact(
            link[: LENGTH_MAX + 1], _key(settings.jwt_secret), algorithms=["HS256"]
        )
        content = msgspec.json.decode(signed.payload, type=_Content)
    except (JoseError, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        raise LinkInvalid from None
    if content.purpose != purpose or content.ends_at <= now.timestamp():
        raise LinkInvalid
    return content.subject


@cache
def _key(secret: str) -> OctKey:
    return OctKey.import_key(hmac.new(secret.encode(), b"links", hashlib.sha256).digest())
