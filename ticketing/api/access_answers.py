"""What people are shown of their account, and organisers of their team, keys and audit log."""

from typing import Any, Literal

import msgspec

from ticketing.api.answers import Answer, Instant
from ticketing.clock import rfc3339
from ticketing.mongo import Document
from ticketing.pages import Page as DomainPage
from ticketing.teams import MemberRole


class Asked(Answer, frozen=True):
    """It was written down; whoever reads the address's mail goes on from there."""

    status: Literal["checkYourMail"] = "checkYourMail"


class LoggedIn(Answer, frozen=True):
    """`accessToken` is sent as a bearer token for `expiresIn` seconds, then refreshed."""

    account_id: str
    role: str
    access_token: str
    expires_in: int
    refresh_token: str


class Guest(Answer, frozen=True):
    """A guest's token, good for `expiresIn` seconds."""

    fan_id: str
    access_token: str
    expires_in: int


class SecondFactor(Answer, frozen=True):
    """The secret for an authenticator app, also as the address that a QR code says."""

    secret: str
    uri: str


class Member(Answer, frozen=True):
    """One of an organiser's team."""

    member_id: str
    role: MemberRole
    added_by: str
    added_at: Instant


class Team(Answer, frozen=True):
    """All members: there are so few that one page holds them."""

    items: list[Member]
    next_cursor: None = None


class ApiKey(Answer, frozen=True):
    """A key. `key` is what is sent as a bearer token, and is shown when the key is made."""

    key_id: str
    name: str
    scope: Literal["gate", "viewer", "boxOffice", "editor"]
    event_id: str | None
    created_at: Instant
    last_used_at: Instant | None
    revoked_at: Instant | None
    key: str | msgspec.UnsetType = msgspec.UNSET


class ApiKeyPage(Answer, frozen=True):
    """All of an organiser's keys."""

    items: list[ApiKey]
    next_cursor: None = None


class AuditEntry(Answer, frozen=True):
    """One change. `outcome` is `done`, a refusal's slug, or null where nobody knows."""

    entry_id: str
    at: Instant
    actor_id: str
    actor_role: str
    key_id: str | None
    action: str
    about: str
    address: str
    request_id: str
    before: dict[str, Any]
    after: dict[str, Any] | None
    outcome: str | None


class AuditLogPage(Answer, frozen=True):
    """A page of changes."""

    items: list[AuditEntry]
    next_cursor: str | None


def member(document: Document) -> Member:
    """A member as the team's owners see them."""
    return Member(
        document["memberId"], document["role"], document["addedBy"], rfc3339(document["addedAt"])
    )


def team(documents: list[Document]) -> Team:
    """All members."""
    return Team([member(document) for document in documents])


def api_key(document: Document, key: str | msgspec.UnsetType = msgspec.UNSET) -> ApiKey:
    """A key as its organiser sees it."""
    used, revoked = document["lastUsedAt"], document["revokedAt"]
    return ApiKey(
        document["_id"],
        document["name"],
        document["scope"],
        document["eventId"],
        rfc3339(document["createdAt"]),
        used and rfc3339(used),
        revoked and rfc3339(revoked),
        key,
    )


def api_key_page(documents: list[Document]) -> ApiKeyPage:
    """All keys."""
    return ApiKeyPage([api_key(document) for document in documents])


def audit_log_page(page: DomainPage) -> AuditLogPage:
    """A page of changes, with instants as the wire shows them."""
    return AuditLogPage([_entry(document) for document in page.items], page.next_cursor)


def _entry(document: Document) -> AuditEntry:
    after = document.get("after")
    return AuditEntry(
        document["_id"],
        rfc3339(document["at"]),
        document["actorId"],
        document["actorRole"],
        document["keyId"],
        document["action"],
        document["about"],
        document["address"],
        document["requestId"],
        _shown(document["before"]),
        None if after is None else _shown(after),
        document["outcome"],
    )


def _shown(values: Document) -> dict[str, Any]:
    return {
        name: rfc3339(value) if hasattr(value, "astimezone") else value
        for name, value in values.items()
    }
