"""What only the platform's own people do."""

from typing import Any

from litestar import Request, put

from ticketing import events, statements
from ticketing.api import answers, auth, bodies, problems
from ticketing.api.acting import recorded
from ticketing.api.parameters import EventId
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import NotFound


@put(
    "/events/{eventId:str}/fees",
    summary="Set what the platform keeps of an event's seats",
    operation_class=bodies.described_by(bodies.FeesForm),
    responses=problems.documented(NotFound),
)
async def set_fees(request: Request[Any, Any, Any], event_id: EventId) -> answers.Statement:
    """For the orders that are placed from now on; what was ordered keeps the terms it had."""
    database = services_of(request).database
    form = await bodies.read(request, bodies.FeesForm)
    before = await events.find(database, event_id)
    async with recorded(
        request, before["organiserId"], "event.fees", event_id, before.get("fees")
    ) as change:
        event = await events.set_fees(database, event_id, form.per_seat, form.basis_points)
        change.after = event["fees"]
    return answers.statement(event, await statements.totals(database, event))


router = Router(
    path="/v1/admin",
    before_request=auth.required("admin"),
    route_handlers=[set_fees],
    security=[{"token": []}],
    tags=["admin"],
)
