"""What people are mailed about their accounts: links for whoever reads the address's mail."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from email.utils import parseaddr

from ticketing import mails, signed_links
from ticketing.mails import Letter, Post, Undelivered, Unsendable
from ticketing.mongo import Database, Document
from ticketing.outbox import Done, Failed, Outcome, Skipped
from ticketing.settings import Settings

CONSUMER = "account-mail"
KIND = "account.asked"
# A mailbox is not to be filled by whoever knows its address.
MAILS_MAX = 3
MAILED_WITHIN = timedelta(minutes=15)


class AccountMails:
    """Sends the mails that accounts ask for."""

    name = CONSUMER

    def __init__(self, database: Database, settings: Settings, post: Post) -> None:
        self._database = database
        self._settings = settings
        self._post = post

    async def targets(self, messages: Sequence[Document]) -> dict[str, list[str]]:
        """One mail for each request."""
        return {message["_id"]: [CONSUMER] for message in messages if message["kind"] == KIND}

    async def deliver(self, message: Document, target: str, now: datetime) -> Outcome:  # noqa: ARG002
        """Mail the address that a request is about, if there is something to tell it."""
        request = await self._database.account_requests.find_one(
            {"_id": message["body"]["requestId"]}
        )
        if request is None or request["expiresAt"] <= now:
            return Skipped("the request was used or is over")
        holder = await self._database.accounts.find_one({"email": request["email"]})
        why = occasion(request["purpose"], has_account=holder is not None)
        if why is None:
            return Skipped("the address has no account")
        if await self._are_enough(request, now):
            return Skipped("the address got this mail several times just now")
        address = request["address"]
        asking = await self._database.accounts.find_one({"_id": request.get("accountId")})
        person = holder or asking or request
        try:
            mail = mails.put_together(
                write(why, request, person, self._settings),
                message,
                why,
                name=_name(why, person),
                address=address,
                settings=self._settings,
            )
            sender = parseaddr(self._settings.mail_from)[1]
            answer = await self._post.send(mail, sender, mails.mailable(address))
            return Done(mails.without_address(answer, address))
        except Unsendable as reason:
            return Failed(mails.without_address(str(reason), address), lasting=True)
        except Undelivered as reason:
            return Failed(mails.without_address(str(reason), address))

    async def _are_enough(self, request: Document, now: datetime) -> bool:
        """Whether as many mails of this kind went to the address as somebody may want of it."""
        earlier = {
            "email": request["email"],
            "purpose": request["purpose"],
            "createdAt": {"$gt": now - MAILED_WITHIN, "$lt": request["createdAt"]},
        }
        counted = await self._database.account_requests.count_documents(earlier, limit=MAILS_MAX)
        return counted >= MAILS_MAX


def _name(why: str, person: Document) -> str:
    """Who is greeted: nobody by a name that a stranger may have typed beside their address."""
    return "" if why == "register" else str(person["name"])


def occasion(purpose: str, *, has_account: bool) -> str | None:
    """Which mail a request is the cause of, or None where nobody is to be told anything."""
    match purpose:
        case "register":
            return "address_known" if has_account else "register"
        case "reset":
            return "reset" if has_account else None
        case "changeEmail":
            return "address_known" if has_account else "change_email"
        case "emailChanged":
            return "email_changed"
    return None


def write(why: str, request: Document, person: Document, settings: Settings) -> Letter:
    """What the mail says."""
    link = None
    if why not in ("address_known", "email_changed"):
        link = signed_links.make(settings, request["purpose"], request["_id"], request["expiresAt"])
    return mails.plain_letter(
        why,
        language=person["language"],
        name=_name(why, person),
        # In the fragment, which browsers send to nobody and no server writes into a log.
        link_url=f"{settings.public_url}/account#{request['purpose']}={link}" if link else None,
    )
