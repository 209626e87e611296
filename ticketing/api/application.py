"""The application: routes, lifespan and what every answer carries, put together."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from litestar import Litestar, Request

from ticketing import gateway, mongo, web
from ticketing.api import (
    accounts,
    admin,
    bodies,
    fan,
    gates,
    health,
    live,
    middleware,
    openapi,
    organiser,
    problems,
    provider,
    public,
    sandbox,
    starting,
    team,
)
from ticketing.api.deliveries import Deliveries
from ticketing.api.metrics import Metrics
from ticketing.api.replies import Reply
from ticketing.api.routing import SharedPaths
from ticketing.api.services import Services
from ticketing.mongo import Client
from ticketing.settings import Settings

# New objects between two rounds of the garbage collector. A request makes some hundreds, nearly all
# of which go by themselves, and at the default of 700 each request or two began a round.
COLLECTED_AFTER = 20_000


class Application(SharedPaths, Litestar):
    """The framework's application inside what every HTTP answer carries.

    The framework runs its own middleware only once a route is found; a request id and security
    headers belong on a 404 as well.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            services: Services = self.state["services"]
            await middleware.carry(
                super().__call__,
                services.metrics,
                scope,
                receive,
                send,
                is_behind_tls=services.settings.public_url.startswith("https://"),
            )
        else:
            await super().__call__(scope, receive, send)


def _pages(settings: Settings) -> list[Any]:
    """The pages. Where another provider is chosen, the payment page's address leads there.

    Where an issuer knows the people, there is no page to log in at.
    """
    left_out = [web.account_page] if settings.oidc_issuer else []
    others = []
    if settings.payment_provider != gateway.SANDBOX:
        left_out.append(web.payment_page)
        others.append(starting.go_and_pay)
    return [*(page for page in web.route_handlers if page not in left_out), *others]


def create_application(
    settings: Settings | None = None,
    client: Client | None = None,
    http: httpx.AsyncClient | None = None,
) -> Application:
    """The application for a server or a test.

    Settings come from the environment unless given. A client that is given stays open at the end.
    `http` is what the sandbox provider delivers by.
    """
    chosen = settings or Settings.from_environment()

    @asynccontextmanager
    async def serving(application: Litestar) -> AsyncIterator[None]:
        metrics = Metrics()
        opened = client or await mongo.connect(chosen, listeners=metrics.database_listeners)
        services = Services(chosen, opened, Deliveries(chosen, http), metrics)
        application.state["services"] = services
        # What has been made by now stays, so the collector need not look at it with every round.
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECTED_AFTER)
        try:
            yield
        finally:
            await services.close()
            if client is None:
                await opened.close()

    return Application(
        route_handlers=[
            public.router,
            # Where an issuer knows the people, we know no passwords.
            *([] if chosen.oidc_issuer else [accounts.router, accounts.own_router]),
            fan.router,
            organiser.router,
            team.router,
            gates.router,
            admin.router,
            provider.router,
            *([sandbox.router, sandbox.switches_router] if chosen.sandbox_payments == "on" else []),
            health.router,
            live.watch_dashboard,
            live.watch_seats,
            openapi.get_description,
            *_pages(chosen),
        ],
        lifespan=[serving],
        exception_handlers=problems.HANDLERS,
        openapi_config=openapi.config(),
        request_class=Request,
        response_class=Reply,
        request_max_body_size=bodies.BODY_BYTES_MAX,
        # Faults are logged by the one table of problems, with the request's id.
        logging_config=None,
        debug=False,
    )
