"""A notice counts only if it is signed with our secret, over these very bytes, just now."""

import base64
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from tests.conftest import NOW
from ticketing import gateway
from ticketing.errors import Invalid
from ticketing.gateway import BadSignature

KEY = b"k" * 32
BODY = msgspec.json.encode(
    {
        "type": "payment.succeeded",
        "timestamp": "2030-06-01T12:00:00Z",
        "data": {"paymentId": "pay_1", "orderId": "ord_1", "amount": 9500, "currency": "EUR"},
    }
)


def headers(**changes: str) -> dict[str, str]:
    signed = gateway.signed(KEY, "msg_1", BODY, NOW)
    return signed | {f"webhook-{name}": value for name, value in changes.items()}


def test_a_notice_signed_now_is_read() -> None:
    notice = gateway.read_notice(KEY, headers(), BODY, NOW)
    assert (notice.notice_id, notice.payment_id, notice.amount) == ("msg_1", "pay_1", 9500)


def test_the_signature_is_that_of_the_standard() -> None:
    # The example of the Standard Webhooks specification.
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    sent = NOW.fromtimestamp(1614265330, NOW.tzinfo)
    signed = gateway.signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", body, sent)
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_one_fitting_signature_among_several_is_enough() -> None:
    good = headers()["webhook-signature"]
    gateway.read_notice(KEY, headers(signature=f"v1,AAAA v1a,x {good}"), BODY, NOW)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda: (headers(signature=""), BODY),
        lambda: (headers(signature="v1,AAAA"), BODY),
        lambda: (headers(signature=headers()["webhook-signature"].lower()), BODY),
        lambda: (headers(signature="ü"), BODY),
        lambda: (headers(id="msg_2"), BODY),
        lambda: (headers(id=""), BODY),
        lambda: (headers(id="m" * 201), BODY),
        lambda: (headers(timestamp=""), BODY),
        lambda: (headers(timestamp="-1"), BODY),
        lambda: (headers(timestamp="1e9"), BODY),
        lambda: (headers(timestamp="9" * 30), BODY),
        lambda: (headers(), BODY + b" "),
        lambda: (headers(), b""),
        lambda: (gateway.signed(b"x" * 32, "msg_1", BODY, NOW), BODY),
        lambda: (gateway.signed(KEY, "msg_1", BODY, NOW - timedelta(seconds=301)), BODY),
        lambda: (gateway.signed(KEY, "msg_1", BODY, NOW + timedelta(seconds=302)), BODY),
        lambda: ({}, BODY),
    ],
)
def test_anything_else_is_a_bad_signature(
    spoil: Callable[[], tuple[dict[str, str], bytes]],
) -> None:
    spoilt, body = spoil()
    with pytest.raises(BadSignature):
        gateway.read_notice(KEY, spoilt, body, NOW)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        BODY.replace(b"9500", b"-1"),
        BODY.replace(b"9500", b"95.5"),
        BODY.replace(b"9500", b"1e400"),
        BODY.replace(b"succeeded", b"lost"),
        BODY.replace(b"EUR", b"eur"),
    ],
)
def test_a_signed_body_that_is_no_notice_is_invalid(body: bytes) -> None:
    with pytest.raises(Invalid):
        gateway.read_notice(KEY, gateway.signed(KEY, "msg_1", body, NOW), body, NOW)
