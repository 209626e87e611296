"""Fans without an account: known by what they typed, and by the links that are mailed to them."""

from datetime import datetime

from ticketing import accounts, identifiers, signed_links
from ticketing.mongo import Database
from ticketing.settings import Settings
from ticketing.signed_links import LinkInvalid

# Longer than any purchase: a hold's ten minutes, a payment, and a look at the tickets.
VISIT_SECONDS = 2 * 3_600


async def begin(database: Database, name: str, email: str, language: str, now: datetime) -> str:
    """A new guest; returns the fan's id. One address may be that of any number of guests."""
    fan_id = identifiers.fresh("fan")
    await accounts.save_profile(database, fan_id, name, email, now, language, guest=True)
    return fan_id


async def come_back(database: Database, settings: Settings, link: str, now: datetime) -> str:
    """The guest whom a link was mailed to. Raises LinkInvalid, also for one who was erased."""
    fan_id = signed_links.read(settings, "guest", link, now)
    profile = await accounts.profile(database, fan_id)
    if profile is None or not profile.get("guest"):
        raise LinkInvalid
    return fan_id
