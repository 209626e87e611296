"""Accounts of our own: an address, a password, and for those who wish a second factor.

Whoever asks whether an address has an account learns nothing. To register and to reset a password
are requests that are written down whether there is such an account or not; what is mailed to the
address is decided when the mail is written. So neither the answer nor its time tells.

    register → (mail) → confirm with the password → account
    forgotten → (mail) → a new password, once, all sessions end
"""

import unicodedata
from datetime import datetime, timedelta
from typing import Literal

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from ticketing import (
    accounts,
    gone,
    identifiers,
    mongo,
    outbox,
    second_factors,
    sessions,
    signed_links,
)
from ticketing.errors import Invalid, NotFound, Refusal
from ticketing.mongo import Database, Document, Session
from ticketing.passwords import Passwords
from ticketing.settings import Settings
from ticketing.signed_links import LinkInvalid, Purpose

Role = Literal["fan", "organiser"]

EMAIL_LENGTH_MAX = 254
WRONG_CODES_MAX = 5
CLOSED_MINUTES_MAX = 24 * 60
# The keys of an organiser who left: nobody can make them again, for nobody is that organiser.
KEYS_KEPT_DAYS = 90
REGISTER_HOURS = 24
RESET_HOURS = 1
_PREFIX = {"fan": "fan", "organiser": "org"}


class WrongCredentials(Refusal):
    """No such account, another password, or a wrong or used code: which of them is not told."""

    slug = "unauthenticated"
    title = "Unauthenticated"

    def __init__(self) -> None:
        super().__init__("The address, the password or the code is wrong.")


class SecondFactorNeeded(Refusal):
    """The password is right; the code of the authenticator app must come with it."""

    slug = "second-factor-needed"
    title = "Second factor needed"

    def __init__(self) -> None:
        super().__init__("This account has a second factor: send its code as well.")


class SecondFactorState(Refusal):
    """The second factor is on already, or there is none to confirm."""

    slug = "conflict"
    title = "Conflict"


class AccountInUse(Refusal):
    """An organiser who has events that are not over can't leave them to nobody."""

    slug = "conflict"
    title = "Conflict"


def normalized(email: str) -> str:
    """An address as it is compared: no two people share one that differs in case alone.

    Nobody is mailed by it: to fold the case may make another's address of it (`ß` is `ss`).
    """
    # Nobody's address is longer, and to normalise what is none would cost more than to refuse it.
    return unicodedata.normalize("NFC", email[:EMAIL_LENGTH_MAX]).strip().casefold()


# --- Asked for by anybody, answered by mail ------------------------------------------------------


async def register(
    database: Database,
    passwords: Passwords,
    *,
    email: str,
    password: str,
    role: Role,
    name: str,
    language: str,
    now: datetime,
) -> None:
    """Ask for an account; the address gets a link, or is told that it has one already."""
    await _ask(
        database,
        "register",
        now,
        now + timedelta(hours=REGISTER_HOURS),
        {
            "email": normalized(email),
            "address": email.strip(),
            "passwordHash": await passwords.hash(password),
            "role": role,
            "name": name,
            "language": language,
        },
    )


async def forgotten(database: Database, *, email: str, now: datetime) -> None:
    """Ask for a new password; the address gets a link if it has an account."""
    ends_at = now + timedelta(hours=RESET_HOURS)
    asked = {"email": normalized(email), "address": email.strip()}
    await _ask(database, "reset", now, ends_at, asked)


async def change_email(
    database: Database,
    settings: Settings,
    passwords: Passwords,
    account_id: str,
    *,
    email: str,
    password: str,
    code: str | None,
    now: datetime,
) -> None:
    """Ask for another address; that one gets a link, or is told that it has an account already.

    Raises WrongCredentials, SecondFactorNeeded.
    """
    account = await prove(database, passwords, account_id, password)
    await _ask_code(database, settings, account, code, now)
    ends_at = now + timedelta(hours=REGISTER_HOURS)
    asked = {"email": normalized(email), "address": email.strip(), "accountId": account_id}
    await _ask(database, "changeEmail", now, ends_at, asked)


async def _ask(
    database: Database, purpose: Purpose, now: datetime, ends_at: datetime, asked: Document
) -> None:
    request: Document = {
        "_id": identifiers.fresh("req"),
        "purpose": purpose,
        "createdAt": now,
        "expiresAt": ends_at,
        **asked,
    }
    await mongo.transaction(database, lambda session: _tell(database, request, session))


async def _tell(database: Database, request: Document, session: Session) -> None:
    """Write a request down, and the message that has it mailed."""
    told = outbox.account_message(
        "account.asked", {"requestId": request["_id"]}, request["createdAt"]
    )
    await database.account_requests.insert_one(request, session=session)
    await database.outbox.insert_one(told, session=session)


async def _asked(
    database: Database, settings: Settings, purpose: Purpose, link: str, now: datetime
) -> Document:
    request_id = signed_links.read(settings, purpose, link, now)
    request = await database.account_requests.find_one({"_id": request_id, "purpose": purpose})
    if request is None:
        raise LinkInvalid
    return request


# --- By the link of a mail -----------------------------------------------------------------------


async def confirm(
    database: Database,
    settings: Settings,
    passwords: Passwords,
    *,
    link: str,
    password: str,
    now: datetime,
) -> Document:
    """The account that was asked for, made now. Raises LinkInvalid, WrongCredentials.

    The password is asked for once more: somebody else may have registered this address with a
    password of their own, and its owner must not confirm an account that another can open.
    """
    request = await _asked(database, settings, "register", link, now)
    if not await passwords.matches(request["passwordHash"], password):
        raise WrongCredentials
    account: Document = {
        "_id": identifiers.fresh(_PREFIX[request["role"]]),
        "role": request["role"],
        "email": request["email"],
        "address": request["address"],
        "passwordHash": request["passwordHash"],
        "passwordChangedAt": now,
        "name": request["name"],
        "language": request["language"],
        "createdAt": now,
    }

    async def body(session: Session) -> None:
        await _use(database, request, session)
        await database.accounts.insert_one(account, session=session)
        if account["role"] == "fan":
            await accounts.save_profile(
                database,
                account["_id"],
                account["name"],
                account["address"],
                now,
                account["language"],
                session=session,
            )

    try:
        await mongo.transaction(database, body)
    except DuplicateKeyError:
        # The address has an account by now: of two registrations the first one confirmed counts.
        raise LinkInvalid from None
    return account


async def reset(
    database: Database,
    settings: Settings,
    passwords: Passwords,
    *,
    link: str,
    password: str,
    now: datetime,
) -> str:
    """Set a new password and end all sessions; returns the account's id. Raises LinkInvalid.

    The second factor stays: who can read somebody's mail has not yet got their phone.
    """
    request = await _asked(database, settings, "reset", link, now)
    password_hash = await passwords.hash(password)

    async def body(session: Session) -> str:
        await _use(database, request, session)
        # A link that was asked for before the password was changed is worth nothing any more.
        changed = await database.accounts.find_one_and_update(
            {"email": request["email"], "passwordChangedAt": {"$lt": request["createdAt"]}},
            {"$set": {"passwordHash": password_hash, "passwordChangedAt": now}},
            session=session,
        )
        if changed is None:
            raise LinkInvalid
        await _forget_requests(database, changed, session)
        await database.sessions.delete_many({"accountId": changed["_id"]}, session=session)
        return str(changed["_id"])

    return await mongo.transaction(database, body)


async def confirm_email(database: Database, settings: Settings, *, link: str, now: datetime) -> str:
    """Let an account have its new address; returns the account's id. Raises LinkInvalid."""
    request = await _asked(database, settings, "changeEmail", link, now)

    async def body(session: Session) -> None:
        await _use(database, request, session)
        before: Document | None = await database.accounts.find_one_and_update(
            {"_id": request["accountId"]},
            {"$set": {"email": request["email"], "address": request["address"]}},
            session=session,
        )
        if before is None:
            raise LinkInvalid
        await _forget_requests(database, before, session)
        # Whoever still reads the old address learns of it, should it not have been them.
        await _tell(
            database,
            {
                "_id": identifiers.fresh("req"),
                "purpose": "emailChanged",
                "createdAt": now,
                "expiresAt": now + timedelta(hours=REGISTER_HOURS),
                "email": before["email"],
                "address": before["address"],
                "accountId": before["_id"],
            },
            session,
        )
        await database.fans.update_one(
            {"_id": request["accountId"]},
            {"$set": {"email": request["address"], "updatedAt": now}},
            session=session,
        )

    try:
        await mongo.transaction(database, body)
    except DuplicateKeyError:
        raise LinkInvalid from None
    return str(request["accountId"])


async def _forget_requests(database: Database, account: Document, session: Session) -> None:
    """Make every link worthless that was mailed about the account: it has changed hands, or may."""
    for about in ({"email": account["email"]}, {"accountId": account["_id"]}):
        await database.account_requests.delete_many(about, session=session)


async def _use(database: Database, request: Document, session: Session) -> None:
    """Take a link's request away: two who follow it at once conflict here, and one comes first."""
    used = await database.account_requests.delete_one({"_id": request["_id"]}, session=session)
    if used.deleted_count == 0:
        raise LinkInvalid


# --- With the password ---------------------------------------------------------------------------


async def log_in(
    database: Database,
    settings: Settings,
    passwords: Passwords,
    *,
    email: str,
    password: str,
    code: str | None,
    now: datetime,
) -> Document:
    """The account. Raises WrongCredentials, SecondFactorNeeded."""
    account = await database.accounts.find_one({"email": normalized(email)})
    stored = None if account is None else account["passwordHash"]
    if not await passwords.matches(stored, password) or account is None:
        raise WrongCredentials
    await _ask_code(database, settings, account, code, now)
    return account


async def begin_session(
    database: Database, settings: Settings, account: Document, now: datetime
) -> sessions.Session:
    """The session of an account whose password was right a moment ago. Raises WrongCredentials.

    The password may have been changed while this one was being checked. Both write the account, so
    of the two transactions one comes first: either the new password ends what is begun here with
    all else, or the old one finds that it is too late.
    """

    async def body(session: Session) -> sessions.Session:
        seen = await database.accounts.find_one_and_update(
            {"_id": account["_id"], "passwordChangedAt": account["passwordChangedAt"]},
            {"$set": {"loggedInAt": now}},
            session=session,
        )
        if seen is None:
            raise WrongCredentials
        return await sessions.begin(
            database, settings, account["_id"], account["role"], now, session=session
        )

    return await mongo.transaction(database, body)


async def _ask_code(
    database: Database, settings: Settings, account: Document, code: str | None, now: datetime
) -> None:
    """Ask for a code if there is a second factor. Raises SecondFactorNeeded, WrongCredentials."""
    if _has_second_factor(account):
        if code is None:
            raise SecondFactorNeeded
        await _use_code(database, settings, account, code, now)


async def prove(
    database: Database, passwords: Passwords, account_id: str, password: str
) -> Document:
    """The account, of whoever still knows its password. Raises WrongCredentials.

    Asked for before anything that would take an account away from its owner: a token alone may
    have been stolen.
    """
    account = await database.accounts.find_one({"_id": account_id})
    stored = None if account is None else account["passwordHash"]
    if not await passwords.matches(stored, password) or account is None:
        raise WrongCredentials
    return account


async def is_known(database: Database, account_id: str) -> bool:
    """Whether somebody has an account with us: guests and people of an issuer have none."""
    return await database.accounts.find_one({"_id": account_id}, {"_id": 1}) is not None


async def refuse_other_address(database: Database, account_id: str, email: str) -> None:
    """Raises Invalid for an address that is not the account's: that takes the confirmed way.

    Tickets are mailed there, and a stolen token must not have them sent elsewhere. Who has no
    account may be mailed where they like.
    """
    account = await database.accounts.find_one({"_id": account_id}, {"email": 1})
    if account is not None and account["email"] != normalized(email):
        raise Invalid([("email", "is the account's: change it by /v1/accounts/me/email")])


async def find(database: Database, account_id: str) -> Document:
    """The account of somebody who is logged in. Raises NotFound for a token from elsewhere."""
    account = await database.accounts.find_one({"_id": account_id})
    if account is None:
        raise NotFound("There is no such account.")
    return account


async def delete_organiser(
    database: Database, settings: Settings, account: Document, now: datetime
) -> None:
    """Remove an organiser's account with all that acts for them; past events stay, for the books.

    Raises AccountInUse while they have an event on sale or to come.
    """
    account_id = account["_id"]
    present = await database.events.find_one(
        {
            "organiserId": account_id,
            "status": {"$in": ["draft", "published"]},
            "startsAt": {"$gt": now},
        },
        {"_id": 1},
    )
    if present is not None:
        raise AccountInUse("There are events to come: call them off first, or wait for them.")

    async def body(session: Session) -> None:
        await gone.leave(database, settings, account_id, now, session=session)
        await database.api_keys.update_many(
            {"organiserId": account_id, "revokedAt": None},
            {"$set": {"revokedAt": now, "forgetAt": now + timedelta(days=KEYS_KEPT_DAYS)}},
            session=session,
        )
        await database.webhooks.delete_many({"organiserId": account_id}, session=session)
        await database.team_members.delete_many({"organiserId": account_id}, session=session)
        await database.team_members.delete_many({"memberId": account_id}, session=session)
        await _forget_requests(database, account, session)
        await database.sessions.delete_many({"accountId": account_id}, session=session)
        await database.accounts.delete_one({"_id": account_id}, session=session)

    await mongo.transaction(database, body)


# --- The second factor ---------------------------------------------------------------------------


def _has_second_factor(account: Document) -> bool:
    factor = account.get("secondFactor")
    return factor is not None and factor["confirmedAt"] is not None


async def begin_second_factor(database: Database, settings: Settings, account: Document) -> bytes:
    """A secret for an app, which counts once a code of it was confirmed.

    Raises SecondFactorState where one is on already.
    """
    secret = second_factors.new_secret()
    factor = {
        "secret": second_factors.encrypted(settings, secret),
        "confirmedAt": None,
        "lastStep": 0,
        "wrongCodes": 0,
    }
    begun = await database.accounts.update_one(
        {"_id": account["_id"], "secondFactor.confirmedAt": None},
        {"$set": {"secondFactor": factor}},
    )
    if begun.matched_count == 0:
        raise SecondFactorState("The second factor is on already: remove it first.")
    return secret


async def confirm_second_factor(
    database: Database, settings: Settings, account_id: str, code: str, now: datetime
) -> None:
    """Turn the second factor on by a first code. Raises Invalid, SecondFactorState."""
    account = await find(database, account_id)
    if account.get("secondFactor") is None or _has_second_factor(account):
        raise SecondFactorState("There is no second factor that waits for its first code.")
    try:
        await _use_code(database, settings, account, code, now, {"confirmedAt": now})
    except WrongCredentials:
        raise Invalid([("code", "is not the code that the app shows now")]) from None


async def remove_second_factor(
    database: Database, settings: Settings, account: Document, code: str, now: datetime
) -> None:
    """Turn it off again, by one of its codes. Raises WrongCredentials, SecondFactorState."""
    if not _has_second_factor(account):
        raise SecondFactorState("There is no second factor.")
    await _use_code(database, settings, account, code, now)
    await database.accounts.update_one({"_id": account["_id"]}, {"$unset": {"secondFactor": ""}})


async def _count_wrong_code(database: Database, account: Document, now: datetime) -> None:
    """After some wrong codes in a row none is taken for a while, and for longer each time.

    Whoever knows the password has a million codes to try, and three of them are right.
    """
    counted: Document | None = await database.accounts.find_one_and_update(
        {"_id": account["_id"], "secondFactor": {"$exists": True}},
        {"$inc": {"secondFactor.wrongCodes": 1}},
        return_document=ReturnDocument.AFTER,
    )
    wrong = 0 if counted is None else counted["secondFactor"]["wrongCodes"]
    if wrong >= WRONG_CODES_MAX:
        pause = timedelta(minutes=min(2 ** (wrong - WRONG_CODES_MAX), CLOSED_MINUTES_MAX))
        await database.accounts.update_one(
            {"_id": account["_id"], "secondFactor": {"$exists": True}},
            {"$set": {"secondFactor.closedUntil": now + pause}},
        )


async def _use_code(
    database: Database,
    settings: Settings,
    account: Document,
    code: str,
    now: datetime,
    also: Document | None = None,
) -> None:
    """Count a code as used. Raises WrongCredentials for a wrong one, and for one used before."""
    factor = account["secondFactor"]
    if factor.get("closedUntil", now) > now:
        raise WrongCredentials
    secret = second_factors.decrypted(settings, factor["secret"])
    step = None if secret is None else second_factors.step_of(secret, code, now)
    if step is None:
        await _count_wrong_code(database, account, now)
        raise WrongCredentials
    changed = {"lastStep": step, "wrongCodes": 0, **(also or {})}
    # Whoever looked over a shoulder sends the same code at the same moment: the later one loses.
    used = await database.accounts.update_one(
        {
            "_id": account["_id"],
            "secondFactor.secret": factor["secret"],
            "secondFactor.lastStep": {"$lt": step},
        },
        {"$set": {f"secondFactor.{name}": value for name, value in changed.items()}},
    )
    if used.modified_count == 0:
        raise WrongCredentials
