"""What the machinery around us asks: is it alive, is it ready, what does it count."""

import asyncio
from typing import Any

from litestar import Request, Response, get

from ticketing.api import problems
from ticketing.api.metrics import CONTENT_TYPE
from ticketing.api.routing import Router
from ticketing.api.services import services_of


@get("/health/live", summary="Is the process alive")
async def live() -> dict[str, str]:
    """Asks nobody: a process must not be killed since the database is away."""
    return {"status": "live"}


@get(
    "/health/ready",
    summary="Can the process serve",
    responses=problems.documented(problems.Unavailable),
)
async def ready(request: Request[Any, Any, Any]) -> dict[str, str]:
    """503 with `reasons` while the database has no primary or indexes are missing."""
    if reasons := await services_of(request).readiness.reasons():
        raise problems.Unavailable("This process can't serve just now.", reasons)
    return {"status": "ready"}


@get("/metrics", summary="Prometheus metrics of this process", media_type="text/plain")
async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The text exposition format 0.0.4. What waits in the database is some seconds old at most."""
    services = services_of(request)
    waiting, signs = await asyncio.gather(services.waiting(), services.signs())
    return Response(services.metrics.exposition(waiting, signs), media_type=CONTENT_TYPE)


router = Router(path="/", route_handlers=[live, ready, metrics], tags=["operations"])
