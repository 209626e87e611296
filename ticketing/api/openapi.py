"""The description of the API, made by the framework and completed with what it can't know."""

from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router, get
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ControllerRouterHandler

from ticketing.api import bodies, problems
from ticketing.holds import SEATS_PER_HOLD_MAX

_REFERENCE = {"$ref": "#/components/schemas/Problem"}
_PROBLEM = {"content": {problems.MEDIA_TYPE: {"schema": _REFERENCE}}}


class _Unmounted(Router):
    """Takes no routes: the framework's own pages, with their errors in HTML, are not ours."""

    def register(self, value: ControllerRouterHandler) -> list[Any]:  # noqa: ARG002
        return []


def config() -> OpenAPIConfig:
    """What the framework is told."""
    return OpenAPIConfig(
        title="Ticketing",
        version="1",
        description="Events, seats, holds, orders and live dashboards.",
        use_handler_docstrings=True,
        render_plugins=[JsonRenderPlugin()],
        openapi_router=_Unmounted("/", route_handlers=[]),
        components=Components(
            security_schemes={
                "token": SecurityScheme(type="http", scheme="bearer", bearer_format="JWT")
            }
        ),
    )


@get("/openapi.json", include_in_schema=False)
async def get_description(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI document."""
    return Response(_encoded(request.app), media_type="application/json")


@cache
def _encoded(application: Litestar) -> bytes:
    document: dict[str, Any] = application.openapi_schema.to_schema()
    document["components"]["schemas"].update(bodies.schemas())
    document["components"]["schemas"]["HoldForm"] = _HOLD_FORM
    for path, item in document["paths"].items():
        for operation in item.values():
            if path.startswith("/v1/"):
                _complete(operation)
    document["paths"]["/v1/events/{eventId}/dashboard/live"] = _LIVE
    document["paths"]["/v1/payments/webhooks/{provider}"]["post"]["requestBody"] = _NOTICE
    return msgspec.json.encode(document)


def _complete(operation: dict[str, Any]) -> None:
    """Add the problems that the guards and the database can give wherever they are."""
    responses = operation["responses"]
    # The framework promises its own kind of 400 for bad parameters; here they are a 422.
    if problems.MEDIA_TYPE not in responses.get("400", _PROBLEM)["content"]:
        del responses["400"]
    if operation.get("security"):
        responses.setdefault("401", {"description": "`unauthenticated`", **_PROBLEM})
        forbidden = responses.setdefault("403", {"description": "", **_PROBLEM})
        names = [name for name in (forbidden["description"], "`forbidden`") if name]
        forbidden["description"] = " or ".join(names)
    if operation.get("requestBody") or operation.get("parameters"):
        invalid = responses.setdefault("422", {"description": "", **_PROBLEM})
        names = [name for name in ("`validation`", invalid["description"]) if name]
        invalid["description"] = " or ".join(names)
    if operation.get("requestBody"):
        responses["413"] = {"description": "The body is too large", **_PROBLEM}
        responses["415"] = {"description": "The body is not application/json", **_PROBLEM}
    responses.setdefault("429", {"description": "`rate-limited`", **_PROBLEM})
    responses.setdefault("503", {"description": "`unavailable`", **_PROBLEM})


_SEATS_WANTED = {"type": "integer", "minimum": 1, "maximum": SEATS_PER_HOLD_MAX}
# One struct reads all three forms, so that a mixture is told by what is too much in it.
_HOLD_FORM = {
    "title": "HoldForm",
    "description": bodies.HoldForm.__doc__,
    "oneOf": [
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["seatIds"],
            "properties": {
                "seatIds": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": SEATS_PER_HOLD_MAX,
                    "uniqueItems": True,
                }
            },
        },
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["section", "quantity"],
            "properties": {
                "section": {"type": "string"},
                "quantity": _SEATS_WANTED,
                "bestAvailable": {"const": False},
            },
        },
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["quantity", "bestAvailable"],
            "properties": {
                "section": {"type": "string"},
                "quantity": _SEATS_WANTED,
                "bestAvailable": {"const": True},
            },
        },
    ],
}

# The webhook reads raw bytes, whose signature is verified before they are parsed.
_NOTICE = {
    "required": True,
    "description": (
        "Signed by the Standard Webhooks scheme: the headers `webhook-id`, `webhook-timestamp` and "
        "`webhook-signature`."
    ),
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["type", "timestamp", "data"],
                "properties": {
                    "type": {
                        "enum": [
                            "payment.succeeded",
                            "payment.failed",
                            "refund.done",
                            "refund.failed",
                        ]
                    },
                    "timestamp": {"type": "string", "format": "date-time"},
                    "data": {
                        "type": "object",
                        "required": ["paymentId", "orderId", "amount", "currency"],
                        "properties": {
                            "paymentId": {"type": "string"},
                            "orderId": {"type": "string"},
                            "amount": {"type": "integer", "minimum": 0},
                            "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
                            "refundId": {"type": "string"},
                        },
                    },
                },
            }
        }
    },
}

# OpenAPI has no word for WebSockets: the handshake is described as the GET it is.
_LIVE = {
    "get": {
        "tags": ["organiser"],
        "summary": "The sale in figures, live (WebSocket)",
        "operationId": "WatchDashboard",
        "description": (
            "Offer the subprotocol pair `bearer, <JWT>`. The whole dashboard comes at once and "
            "again at each change, at most five a second. Close codes: 4401 bad token, 4403 not "
            "your event, 1013 try again later."
        ),
        "parameters": [
            {"name": "eventId", "in": "path", "required": True, "schema": {"type": "string"}},
            {
                "name": "Sec-WebSocket-Protocol",
                "in": "header",
                "required": True,
                "schema": {"type": "string"},
            },
        ],
        "responses": {"101": {"description": "Each message is a Dashboard."}},
    }
}
