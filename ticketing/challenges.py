"""A moment's work that a client proves to have done (ALTCHA), before a suspicious hold.

A person's browser does it in a second or two and nobody notices; who wants a thousand holds pays
for it a thousand times. A challenge is signed and made for one fan and one event, so that a
solution can be neither shared nor made up, and it counts once.
"""

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Any

import altcha
from pymongo.errors import DuplicateKeyError

from ticketing import identifiers
from ticketing.errors import Refusal
from ticketing.mongo import Database
from ticketing.settings import Settings

ALGORITHM = "PBKDF2/SHA-256"
# So many rounds a try, and a number of tries drawn from this range: about a second of a phone's.
COST = 1_000
TRIES = (2_000, 6_000)
VALID_FOR = timedelta(minutes=10)
PAYLOAD_LENGTH_MAX = 4_096


class ChallengeRequired(Refusal):
    """Solve the challenge and send the same request again with the header `Altcha-Payload`."""

    slug = "challenge-required"
    title = "Challenge required"

    def __init__(self, challenge: dict[str, Any], detail: str) -> None:
        super().__init__(detail)
        self.challenge = challenge

    def members(self) -> dict[str, Any]:
        return {"challenge": self.challenge}


async def require(
    database: Database,
    settings: Settings,
    *,
    fan_id: str,
    event_id: str,
    payload: str | None,
    now: datetime,
) -> str:
    """Let pass who has solved a challenge; returns its name. Raises ChallengeRequired."""
    if payload is None:
        raise ChallengeRequired(
            _new(settings, fan_id, event_id, now), "Solve the challenge and send it along."
        )
    nonce = _solved(settings, fan_id, event_id, payload)
    if nonce is not None:
        try:
            # Whoever sends one solution with many requests at once gets through with one of them.
            await database.solved_challenges.insert_one(
                {"_id": nonce, "forgetAt": now + VALID_FOR + timedelta(minutes=1)}
            )
            return nonce
        except DuplicateKeyError:
            pass
    raise ChallengeRequired(
        _new(settings, fan_id, event_id, now),
        "That is no solution for this hold, or it was used already: solve this challenge.",
    )


async def give_back(database: Database, nonce: str) -> None:
    """Let a solution count once more, for what it was solved for was not to be had."""
    await database.solved_challenges.delete_one({"_id": nonce})


def _new(settings: Settings, fan_id: str, event_id: str, now: datetime) -> dict[str, Any]:
    first, last = TRIES
    made: dict[str, Any] = altcha.create_challenge(
        ALGORITHM,
        COST,
        counter=first + secrets.randbelow(last - first),
        expires_at=int((now + VALID_FOR).timestamp()),
        data={"for": identifiers.digest(fan_id, event_id)},
        hmac_secret=_key(settings, "challenges"),
        hmac_key_secret=_key(settings, "solutions"),
    ).to_dict()
    return made


def _solved(settings: Settings, fan_id: str, event_id: str, payload: str) -> str | None:
    """The nonce of the challenge that the payload solves for this fan and event, or None."""
    if len(payload) > PAYLOAD_LENGTH_MAX:
        return None
    try:
        read = altcha.Payload.from_base64(payload)
        parameters = read.challenge.parameters
        if not isinstance(parameters.nonce, str) or parameters.algorithm != ALGORITHM:
            return None
        # The library trusts what it has signed itself; only then what is in it means anything.
        result = altcha.verify_solution(
            read,
            _key(settings, "challenges"),
            hmac_key_secret=_key(settings, "solutions"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    wanted = {"for": identifiers.digest(fan_id, event_id)}
    return parameters.nonce if result.verified and parameters.data == wanted else None


def _key(settings: Settings, purpose: str) -> bytes:
    return hmac.new(settings.jwt_secret.encode(), purpose.encode(), hashlib.sha256).digest()
