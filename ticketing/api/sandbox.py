"""What the sandbox payment provider's page asks: look at a payment, pay it, or be declined."""

from typing import Any

from litestar import Request, get, post

from ticketing import clock, orders, payments
from ticketing.api import answers, problems
from ticketing.api.deliveries import make_notice
from ticketing.api.parameters import PaymentId
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import NotFound


@get(
    "/payments/{paymentId:str}",
    summary="A payment at the sandbox provider",
    responses=problems.documented(NotFound),
)
async def get_payment(
    request: Request[Any, Any, Any], payment_id: PaymentId
) -> answers.SandboxPayment:
    """What the payment page shows. The id is unguessable and is all that is needed."""
    return await _payment(request, payment_id)


@post(
    "/payments/{paymentId:str}/pay",
    summary="Pay at the sandbox provider",
    status_code=200,
    responses=problems.documented(NotFound, problems.Unavailable),
)
async def pay(request: Request[Any, Any, Any], payment_id: PaymentId) -> answers.SandboxPayment:
    """The notice is sent to our webhook; `delivered` tells whether it was taken at once."""
    return await _settle(request, payment_id, "payment.succeeded")


@post(
    "/payments/{paymentId:str}/decline",
    summary="Be declined at the sandbox provider",
    status_code=200,
    responses=problems.documented(NotFound, problems.Unavailable),
)
async def decline(request: Request[Any, Any, Any], payment_id: PaymentId) -> answers.SandboxPayment:
    """Likewise. The order goes on waiting for its payment."""
    return await _settle(request, payment_id, "payment.failed")


async def _settle(
    request: Request[Any, Any, Any], payment_id: str, type_: str
) -> answers.SandboxPayment:
    services = services_of(request)
    payment = await payments.find(services.database, payment_id)
    # A provider takes the money of one payment once. The notice of it is sent again all the same:
    # the one before may be the one that was lost.
    if payment["status"] == "succeeded":
        type_ = "payment.succeeded"
    delivered = await services.deliveries.deliver(make_notice(payment, type_))
    return await _payment(request, payment_id, delivered=delivered)


async def _payment(
    request: Request[Any, Any, Any], payment_id: str, *, delivered: bool | None = None
) -> answers.SandboxPayment:
    database = services_of(request).database
    payment = await payments.find(database, payment_id)
    order = await orders.find(database, payment["orderId"], payment["fanId"])
    return answers.sandbox_payment(payment, order, clock.now(), delivered=delivered)


router = Router(
    path="/v1/sandbox", route_handlers=[get_payment, pay, decline], tags=["sandbox provider"]
)
