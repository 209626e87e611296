"""A stand-in for the endpoints of Stripe that are used, on a port of this machine.

It keeps to what Stripe documents: a secret key, form bodies, an idempotency key that gives the
first answer again and refuses another body, refunds up to what was charged, signed events.
"""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import stripe

SECRET_KEY = "sk_test_stand_in"
WEBHOOK_SECRET = "whsec_stand_in"
Json = dict[str, Any]


class StandIn:
    """What Stripe would know, and how it misbehaves: `failing` answers 500, `hanging` waits."""

    def __init__(self) -> None:
        self.sessions: dict[str, Json] = {}
        self.refunds: list[Json] = []
        self.requests: list[tuple[str, str, Json]] = []
        self.failing = False
        self.hanging_seconds = 0.0
        self.refund_status = "succeeded"
        self.refusing_refunds = False
        self._answered: dict[str, tuple[Json, int, Json]] = {}
        self._numbers = itertools.count(1)
        self.url = ""

    # --- What Stripe does ------------------------------------------------------------------------

    def answer(self, method: str, path: str, form: Json, key: str | None) -> tuple[int, Json]:
        self.requests.append((method, path, form))
        if key and key in self._answered:
            before, status, body = self._answered[key]
            if before != form:
                return 400, _error("idempotency_error", "Another body with the same key.")
            return status, body
        status, body = self._do(method, path, form)
        if key and status < 500:
            self._answered[key] = (form, status, body)
        return status, body

    def _do(self, method: str, path: str, form: Json) -> tuple[int, Json]:
        match (method, path.strip("/").split("/")):
            case ("POST", ["v1", "checkout", "sessions"]):
                return 200, self._make_session(form)
            case ("POST", ["v1", "checkout", "sessions", session_id, "expire"]):
                if self.sessions[session_id]["status"] != "open":
                    return 400, _error(
                        "invalid_request_error", "Only open Sessions can be expired."
                    )
                self.sessions[session_id]["status"] = "expired"
                return 200, self.sessions[session_id]
            case ("GET", ["v1", "checkout", "sessions", session_id]):
                return 200, self.sessions[session_id]
            case ("POST", ["v1", "refunds"]):
                return self._make_refund(form)
            case ("GET", ["v1", "refunds"]):
                mine = [r for r in self.refunds if r["payment_intent"] == form["payment_intent"]]
                return 200, {"object": "list", "data": mine[::-1], "has_more": False, "url": path}
        return 404, _error("invalid_request_error", f"Unrecognized request URL {path}.")

    def _make_session(self, form: Json) -> Json:
        session_id = f"cs_test_{next(self._numbers)}"
        self.sessions[session_id] = {
            "id": session_id,
            "object": "checkout.session",
            "amount_total": int(form["line_items[0][price_data][unit_amount]"]),
            "currency": form["line_items[0][price_data][currency]"],
            "payment_status": "unpaid",
            "status": "open",
            "payment_intent": None,
            "metadata": _metadata(form),
            "url": f"{self.url}/pay/{session_id}",
        }
        return self.sessions[session_id]

    def _make_refund(self, form: Json) -> tuple[int, Json]:
        if self.refusing_refunds:
            return 402, _error("invalid_request_error", "Insufficient funds.")
        session = next(
            s
            for s in self.sessions.values()
            if (s["payment_intent"] or {}).get("id") == form["payment_intent"]
        )
        given = sum(
            r["amount"]
            for r in self.refunds
            if r["payment_intent"] == form["payment_intent"] and r["status"] != "failed"
        )
        if given + int(form["amount"]) > session["amount_total"]:
            return 400, _error("invalid_request_error", "More than was charged.")
        refund = {
            "id": f"re_{next(self._numbers)}",
            "object": "refund",
            "amount": int(form["amount"]),
            "currency": session["currency"],
            "payment_intent": form["payment_intent"],
            "status": self.refund_status,
            "metadata": _metadata(form),
        }
        self.refunds.append(refund)
        return 200, refund

    # --- What the fan does -----------------------------------------------------------------------

    def pay(self, session_id: str, status: str = "succeeded") -> Json:
        """The fan pays at the Checkout page."""
        session = self.sessions[session_id]
        session["payment_intent"] = {
            "id": f"pi_{session_id}",
            "object": "payment_intent",
            "status": status,
            "last_payment_error": None,
        }
        session["status"] = "complete"
        session["payment_status"] = "paid" if status == "succeeded" else "unpaid"
        return session

    def event(self, type_: str, about: Json) -> bytes:
        """An event as Stripe sends it, with ids in place of what is not expanded."""
        about = dict(about)
        if isinstance(about.get("payment_intent"), dict):
            about["payment_intent"] = about["payment_intent"]["id"]
        body = {
            "id": f"evt_{next(self._numbers)}",
            "object": "event",
            "type": type_,
            "data": {"object": about},
        }
        return json.dumps(body).encode()


def signed(body: bytes, *, secret: str = WEBHOOK_SECRET, at: int | None = None) -> dict[str, str]:
    """The header Stripe sends with an event, by the SDK's own scheme."""
    sent_at = int(time.time()) if at is None else at
    payload = f"{sent_at}.{body.decode()}"
    signature = stripe.WebhookSignature._compute_signature(payload, secret)
    return {"stripe-signature": f"t={sent_at},v1={signature}"}


def _metadata(form: Json) -> Json:
    return {
        name.removeprefix("metadata[").removesuffix("]"): value
        for name, value in form.items()
        if name.startswith("metadata[")
    }


def _error(kind: str, message: str) -> Json:
    return {"error": {"type": kind, "message": message}}


@contextmanager
def running() -> Iterator[StandIn]:
    """A stand-in that answers at `url` until the end."""
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, form: Json) -> None:
            time.sleep(stand_in.hanging_seconds)
            if self.headers["Authorization"] != f"Bearer {SECRET_KEY}":
                status, body = 401, _error("invalid_request_error", "No such key.")
            elif stand_in.failing:
                status, body = 500, _error("api_error", "Something went wrong.")
            else:
                path = urlsplit(self.path).path
                key = self.headers["Idempotency-Key"]
                status, body = stand_in.answer(self.command, path, form, key)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer(dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._answer(dict(parse_qsl(self.rfile.read(length).decode())))

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
