"""How a payment begins at a provider, and how a fan gets to its payment page."""

from typing import Any

from litestar import Request, get
from litestar.response import Redirect

from ticketing import clock, gateway, orders, payments
from ticketing.api.parameters import PaymentId
from ticketing.api.services import Services, services_of
from ticketing.mongo import Document


async def start(services: Services, order: Document) -> None:
    """Let the fan of an order that waits for its payment pay it. Starting it again is no error.

    Outside any transaction. Raises ProviderUnavailable: then the order and its hold stay as they
    are, and the same request may be sent again.
    """
    if order["payment"] is None or order["status"] != "pendingPayment":
        return
    provider = services.providers.named(order["payment"].get("provider", gateway.SANDBOX))
    payment = payments.new(order)
    try:
        started = await provider.start(payment, order)
    except gateway.ProviderUnavailable:
        services.metrics.count_payment_failure("provider unavailable")
        raise
    if provider.name != gateway.SANDBOX:
        await payments.started(services.database, payment["_id"], started, provider.name)


@get("/pay/{paymentId:str}", include_in_schema=False)
async def go_and_pay(request: Request[Any, Any, Any], payment_id: PaymentId) -> Redirect:
    """To the provider's payment page while the order waits for its payment, else back."""
    services = services_of(request)
    payment = await payments.find(services.database, payment_id)
    order = await orders.find(services.database, payment["orderId"], payment["fanId"])
    waits = order["status"] == "pendingPayment" and order["expiresAt"] > clock.now()
    if not waits or payment["status"] == "succeeded":
        return Redirect("/paid", status_code=303)
    await orders.opened(services.database, order, clock.now())
    if not payment.get("url"):
        # Its start was never answered; made again with the same id it is the same payment.
        await start(services, order)
        payment = await payments.find(services.database, payment_id)
    return Redirect(payment.get("url") or "/paid", status_code=303)
