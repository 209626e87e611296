"""Where payment providers deliver their notices. The signature is their only credential."""

from typing import Annotated, Any

from litestar import Request, post
from litestar.params import PathParameter

from ticketing import clock, gateway
from ticketing.api import answers, problems
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import NotFound


@post(
    "/payments/webhooks/{provider:str}",
    summary="Receive a payment notice",
    status_code=200,
    responses=problems.documented(gateway.BadSignature, NotFound),
)
async def receive_notice(
    request: Request[Any, Any, Any], provider: Annotated[str, PathParameter()]
) -> answers.Received:
    """New and repeated notices get the same answer, once the outcome is durable on a majority."""
    services = services_of(request)
    # The bytes as they came are what was signed; nothing is parsed before they are verified.
    notice = services.providers.named(provider).read_notice(
        dict(request.headers.items()), await request.body(), clock.now()
    )
    if notice is None:
        services.metrics.count_notice(provider, "of no interest")
        return answers.Received(received=True)
    outcome = await services.notices.submit(notice)
    if isinstance(outcome, Exception):
        services.metrics.count_notice(provider, "error")
        raise outcome
    services.metrics.count_notice(provider, outcome.outcome)
    return answers.Received(received=True)


router = Router(path="/v1", route_handlers=[receive_notice], tags=["provider"])
