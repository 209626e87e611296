"""Where payment providers deliver their notices. The signature is their only credential."""

from typing import Annotated, Any

from litestar import Request, post
from litestar.params import PathParameter

from ticketing import clock, gateway
from ticketing.api import answers, problems
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import NotFound
from ticketing.settings import webhook_key

PROVIDERS = frozenset({"sandbox"})


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
    if provider not in PROVIDERS:
        raise NotFound("There is no such payment provider.")
    services = services_of(request)
    # The bytes as they came are what was signed; nothing is parsed before they are verified.
    notice = gateway.read_notice(
        webhook_key(services.settings),
        dict(request.headers.items()),
        await request.body(),
        clock.now(),
    )
    outcome = await services.notices.submit(notice)
    if isinstance(outcome, Exception):
        raise outcome
    return answers.Received(received=True)


router = Router(path="/v1", route_handlers=[receive_notice], tags=["provider"])
