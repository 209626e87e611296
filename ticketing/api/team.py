"""Whom an organiser lets work for them: the team, API keys, and the log of what all of them did."""

from typing import Any

from litestar import Request, Response, delete, get, post, put

from ticketing import api_keys, audit_log, clock, events, teams
from ticketing.api import access_answers, auth, bodies, problems
from ticketing.api.acting import Organiser, acting_for, recorded
from ticketing.api.parameters import PAGE_SIZE, Cursor, KeyId, Limit, MemberId
from ticketing.api.replies import Reply
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound


@get("/team", summary="The organiser's team", responses=problems.documented(NotFound))
async def list_members(
    request: Request[Any, Any, Any], organiser_id: Organiser = None
) -> access_answers.Team:
    """Everybody with a role but the organiser themself, who is always an owner."""
    organiser = await acting_for(request, organiser_id, "owner")
    return access_answers.team(await teams.members(services_of(request).database, organiser))


@put(
    "/team/{memberId:str}",
    summary="Give somebody a role in the team",
    operation_class=bodies.described_by(bodies.MemberForm),
    responses=problems.documented(NotFound, teams.MemberLimit),
)
async def put_member(
    request: Request[Any, Any, Any], member_id: MemberId, organiser_id: Organiser = None
) -> access_answers.Member:
    """From now on; `memberId` is the subject of their own organiser's token."""
    form = await bodies.read(request, bodies.MemberForm)
    bodies.refuse_odd_subject(member_id, "memberId")
    organiser = await acting_for(request, organiser_id, "owner")
    if member_id == organiser:
        raise Invalid([("memberId", "is the organiser, who is always an owner")])
    database = services_of(request).database
    before = await teams.role_of(database, organiser, member_id)
    async with recorded(request, organiser, "team.put", member_id, {"role": before}) as change:
        member = await teams.put_member(
            database,
            organiser,
            member_id,
            form.role,
            by=request.user.subject,
            now=clock.now(),
        )
        change.after = {"role": member["role"]}
    return access_answers.member(member)


@delete(
    "/team/{memberId:str}",
    summary="Take somebody out of the team",
    status_code=204,
    responses=problems.documented(NotFound),
)
async def remove_member(
    request: Request[Any, Any, Any], member_id: MemberId, organiser_id: Organiser = None
) -> None:
    """At once. What they made stays the organiser's. Everybody may take themself out."""
    leaves = member_id == request.user.subject
    organiser = await acting_for(request, organiser_id, "viewer" if leaves else "owner")
    async with recorded(request, organiser, "team.remove", member_id) as change:
        removed = await teams.remove_member(services_of(request).database, organiser, member_id)
        change.after = {"roleBefore": removed["role"]}


@post(
    "/api-keys",
    summary="Make an API key",
    operation_class=bodies.described_by(bodies.ApiKeyForm, keyed=True),
    responses=problems.documented(NotFound, api_keys.KeyLimit, IdempotencyKeyReused),
)
async def make_key(
    request: Request[Any, Any, Any], organiser_id: Organiser = None
) -> Response[access_answers.ApiKey]:
    """Send its `key` as a bearer token. It is told this once; we keep a hash of it."""
    services = services_of(request)
    form = await bodies.read(request, bodies.ApiKeyForm)
    name, event_id = bodies.api_key(form)
    organiser = await acting_for(request, organiser_id, "owner")
    if event_id is not None:
        event = await events.owned(services.database, event_id, request.user, "owner")
        if event["organiserId"] != organiser:
            raise NotFound("There is no such event.")
    async with recorded(request, organiser, "key.make", "") as change:
        made, key = await api_keys.make(
            services.database,
            services.settings,
            organiser_id=organiser,
            name=name,
            scope=form.scope,
            event_id=event_id,
            idempotency_key=bodies.idempotency_key(request),
            body=await request.body(),
            now=clock.now(),
        )
        change.after = {"keyId": made["_id"], "name": name, "scope": form.scope}
    return Reply(access_answers.api_key(made, key))


@get("/api-keys", summary="The organiser's API keys", responses=problems.documented(NotFound))
async def list_keys(
    request: Request[Any, Any, Any], organiser_id: Organiser = None
) -> access_answers.ApiKeyPage:
    """Oldest first, without their secrets; revoked ones for some months."""
    organiser = await acting_for(request, organiser_id, "owner")
    return access_answers.api_key_page(
        await api_keys.listing(services_of(request).database, organiser)
    )


@delete(
    "/api-keys/{keyId:str}",
    summary="Revoke an API key",
    status_code=204,
    responses=problems.documented(NotFound),
)
async def revoke_key(
    request: Request[Any, Any, Any], key_id: KeyId, organiser_id: Organiser = None
) -> None:
    """Within seconds nobody gets in with it. Revoking it again changes nothing."""
    services = services_of(request)
    organiser = await acting_for(request, organiser_id, "owner")
    async with recorded(request, organiser, "key.revoke", key_id):
        await api_keys.revoke(services.database, key_id, organiser, clock.now())
    services.callers_by_key.forget()


@get(
    "/audit-log",
    summary="What was changed, newest first",
    responses=problems.documented(NotFound),
)
async def list_changes(
    request: Request[Any, Any, Any],
    organiser_id: Organiser = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> access_answers.AuditLogPage:
    """By everybody of the team, by API keys, and by admins."""
    organiser = await acting_for(request, organiser_id, "owner")
    page = await audit_log.listing(
        services_of(request).database, organiser, limit=limit, cursor=cursor
    )
    return access_answers.audit_log_page(page)


router = Router(
    path="/v1",
    before_request=auth.required("organiser", "admin"),
    route_handlers=[
        list_members,
        put_member,
        remove_member,
        make_key,
        list_keys,
        revoke_key,
        list_changes,
    ],
    security=[{"token": []}],
    tags=["organiser"],
)
