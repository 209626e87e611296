"""What the sandbox payment provider's page asks: look at a payment, pay it, or be declined."""

from typing import Any

from litestar import Request, get, post, put

from ticketing import clock, gateway, orders, payments
from ticketing.api import answers, auth, bodies, problems
from ticketing.api.deliveries import make_notice
from ticketing.api.parameters import PaymentId
from ticketing.api.routing import Router
from ticketing.api.services import services_of
from ticketing.errors import NotFound
from ticketing.sandbox import Switches


@get(
    "/payments/{paymentId:str}",
    summary="A payment at the sandbox provider",
    responses=problems.documented(NotFound),
)
async def get_payment(
    request: Request[Any, Any, Any], payment_id: PaymentId
) -> answers.SandboxPayment:
    """What the payment page shows. The id is unguessable and is all that is needed."""
    return await _payment(request, payment_id, opened=True)


@post(
    "/payments/{paymentId:str}/pay",
    summary="Pay at the sandbox provider",
    status_code=200,
    responses=problems.documented(NotFound, gateway.ProviderUnavailable),
)
async def pay(request: Request[Any, Any, Any], payment_id: PaymentId) -> answers.SandboxPayment:
    """The notice is sent to our webhook; `delivered` tells whether it was taken at once."""
    return await _settle(request, payment_id, pays=True)


@post(
    "/payments/{paymentId:str}/decline",
    summary="Be declined at the sandbox provider",
    status_code=200,
    responses=problems.documented(NotFound, gateway.ProviderUnavailable),
)
async def decline(request: Request[Any, Any, Any], payment_id: PaymentId) -> answers.SandboxPayment:
    """Likewise. The order goes on waiting for its payment."""
    return await _settle(request, payment_id, pays=False)


async def _settle(
    request: Request[Any, Any, Any], payment_id: str, *, pays: bool
) -> answers.SandboxPayment:
    services = services_of(request)
    sandbox = services.providers.sandbox
    payment = await payments.find(services.database, payment_id)
    amount = payment["amount"]
    if payment["status"] == "succeeded":
        # A provider takes the money of one payment once. The notice of it is sent again all the
        # same: the one before may be the one that was lost.
        type_ = "payment.succeeded"
    elif pays:
        type_, amount = await sandbox.pay(payment)
    else:
        type_, amount = await sandbox.decline(payment)
    switches = await sandbox.switches()
    if type_ == "payment.uncertain":
        return await _payment(request, payment_id, delivered=False)
    notices = [make_notice(payment, type_, amount)]
    if switches.out_of_order and type_ == "payment.succeeded":
        notices.append(make_notice(payment, "payment.failed"))
    taken = [await services.deliveries.misdeliver(notice, switches) for notice in notices]
    return await _payment(request, payment_id, delivered=all(taken))


async def _payment(
    request: Request[Any, Any, Any],
    payment_id: str,
    *,
    delivered: bool | None = None,
    opened: bool = False,
) -> answers.SandboxPayment:
    database = services_of(request).database
    payment = await payments.find(database, payment_id)
    order = await orders.find(database, payment["orderId"], payment["fanId"])
    if opened:
        await orders.opened(database, order, clock.now())
    return answers.sandbox_payment(payment, order, clock.now(), delivered=delivered)


@get("/switches", summary="How the sandbox provider misbehaves")
async def get_switches(request: Request[Any, Any, Any]) -> Switches:
    """For tests and drills."""
    return await services_of(request).providers.sandbox.switches()


@put(
    "/switches",
    summary="Make the sandbox provider misbehave",
    operation_class=bodies.described_by(Switches),
)
async def set_switches(request: Request[Any, Any, Any]) -> Switches:
    """All switches at once: one that is not named is off. Every process sees it in a moment."""
    switches = await bodies.read(request, Switches)
    await services_of(request).providers.sandbox.set_switches(switches)
    return switches


router = Router(
    path="/v1/sandbox", route_handlers=[get_payment, pay, decline], tags=["sandbox provider"]
)
switches_router = Router(
    path="/v1/sandbox",
    before_request=auth.required("admin"),
    route_handlers=[get_switches, set_switches],
    security=[{"token": []}],
    tags=["sandbox provider"],
)
