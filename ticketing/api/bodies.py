"""Request bodies: what may be sent, read strictly, with every fault named by its path."""

import asyncio
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
)

from ticketing import checkout, events, holds, passwords
from ticketing.api_keys import Scope
from ticketing.errors import Invalid
from ticketing.holds import SEATS_PER_HOLD_MAX
from ticketing.sandbox import Switches
from ticketing.teams import MemberRole

BODY_BYTES_MAX = 64 * 1024
# 80,000 seats with labels of their own, written out, are about 3 MB; labels of 40 letters 16 MB.
EVENT_BYTES_MAX = 16 * 1024 * 1024
NAME_LENGTH_MAX = 200
REASON_LENGTH_MAX = 200
EMAIL_LENGTH_MAX = 254
IDEMPOTENCY_KEY_LENGTH_MAX = 255
SUBJECT_LENGTH_MAX = 128
REFERENCE_PREFIX = "#/components/schemas/"

Form = TypeVar("Form", bound=msgspec.Struct)

# The decoder names a fault's place as "… - at `$.sections[0].rows`".
_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`$")
_EMAIL = re.compile(r"[^@\s<>()\[\]\\,;:\"]+@[\w-]+(\.[\w-]+)+")
# A string of JSON, and whether it is the name of a member.
_STRING = re.compile(rb'("(?:[^"\\]|\\.)*")(\s*:)?')
_KEY = re.compile(r"[\x21-\x7e]+")


class HoldForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One of three: `seatIds`; `section` and `quantity`; `quantity` and `bestAvailable`."""

    seat_ids: list[str] | msgspec.UnsetType = msgspec.UNSET
    section: str | msgspec.UnsetType = msgspec.UNSET
    quantity: int | msgspec.UnsetType = msgspec.UNSET
    best_available: bool | msgspec.UnsetType = msgspec.UNSET


class OrderForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The hold to be turned into an order."""

    hold_id: str


class RefundForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The seats whose money goes back; with `keepSeats` they stay the fan's."""

    seat_ids: list[str]
    keep_seats: bool = False
    reason: str = "some seats were cancelled"


class FeesForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The terms of an event: an amount a seat in minor units, and basis points of its price."""

    per_seat: int = 0
    basis_points: int = 0


class ProfileForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a fan tells about themself."""

    name: str
    email: str
    language: Literal["en", "de"] | msgspec.UnsetType = msgspec.UNSET


class WebhookForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Where messages about the organiser's events are to be sent; all `kinds` unless some are."""

    url: str
    kinds: list[str] | msgspec.UnsetType = msgspec.UNSET


class MemberForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What somebody may do in a team."""

    role: MemberRole


class ApiKeyForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A key by a name of the organiser's own; `eventId` is needed for the scope `gate` alone."""

    name: str
    scope: Scope
    event_id: str | msgspec.UnsetType = msgspec.UNSET


class RegistrationForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What an account is asked for with."""

    email: str
    password: str
    name: str
    role: Literal["fan", "organiser"] = "fan"
    language: Literal["en", "de"] = "en"


class LogInForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`code` is the authenticator app's, for an account with a second factor."""

    email: str
    password: str
    code: str | msgspec.UnsetType = msgspec.UNSET


class LinkForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What stands behind the `=` in the link of a mail."""

    link: str


class LinkAndPasswordForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What stands behind the `=` in the link of a mail, and a password."""

    link: str
    password: str


class AddressForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An e-mail address."""

    email: str


class AddressAndPasswordForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A new e-mail address, and the account's password; `code` where it has a second factor."""

    email: str
    password: str
    code: str | msgspec.UnsetType = msgspec.UNSET


class PasswordForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The account's password."""

    password: str


class CodeForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A code of the authenticator app."""

    code: str


class PasswordAndCodeForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The account's password and a code of the authenticator app."""

    password: str
    code: str


class ErasureForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`password` is needed by whoever has an account."""

    password: str | msgspec.UnsetType = msgspec.UNSET


class RefreshForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The refresh token that came last."""

    refresh_token: str


class GuestForm(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Who a guest is."""

    name: str
    email: str
    language: Literal["en", "de"] = "en"


async def read(request: Request[Any, Any, Any], form: type[Form]) -> Form:
    """The request's body as this form; raises Invalid with the path of what is wrong."""
    content_type = request.headers.get("content-type", "application/json")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(status_code=415)
    body = await request.body()
    try:
        decoded: Form = _decoder(form).decode(body)
    except msgspec.ValidationError as error:
        raise Invalid([_fault(str(error))]) from None
    # A RecursionError is how nesting without end shows; a lone surrogate is a ValueError.
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise Invalid([("body", "is not valid JSON")]) from None
    # A large body would hold up everybody else's requests for the tenth of a second that takes.
    repeats = (
        _repeats_a_name(body)
        if len(body) <= BODY_BYTES_MAX
        else await asyncio.to_thread(_repeats_a_name, body)
    )
    if repeats:
        raise Invalid([("body", "has an object with the same name twice")])
    return decoded


def _repeats_a_name(body: bytes) -> bool:
    """Whether an object of a body that was decoded has a name twice.

    The decoder takes the last of two, another program that reads the same body the first: what a
    proxy has checked must be what is done. Nearly every body has each name once in all of it, which
    costs a hold two microseconds to see; only the others are gone through object by object.
    """
    names = [name for name, colon in _STRING.findall(body) if colon]
    if b"\\" not in b"".join(names) and len(set(names)) == len(names):
        return False
    try:
        json.loads(body, object_pairs_hook=_once)
    except _Repeated:
        return True
    return False


class _Repeated(Exception):
    """An object has a name twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Repeated
    return members


def hold_request(form: HoldForm, **rest: Any) -> holds.HoldRequest:
    """What is asked of the domain by one of the three forms; raises Invalid unless it is one."""
    if form.seat_ids is not msgspec.UNSET:
        return holds.HoldRequest(seat_ids=_seat_ids(form, form.seat_ids), **rest)
    if form.quantity is msgspec.UNSET:
        if form.section is msgspec.UNSET and form.best_available is msgspec.UNSET:
            raise Invalid([("body", "must have either seatIds or quantity")])
        raise Invalid([("quantity", "is required")])
    if form.section is msgspec.UNSET and form.best_available is not True:
        raise Invalid([("section", "is required unless bestAvailable is true")])
    if not 1 <= form.quantity <= SEATS_PER_HOLD_MAX:
        raise Invalid([("quantity", f"must be from 1 to {SEATS_PER_HOLD_MAX}")])
    return holds.HoldRequest(
        quantity=form.quantity,
        section=None if form.section is msgspec.UNSET else form.section,
        **rest,
    )


def _seat_ids(form: HoldForm, seat_ids: list[str]) -> tuple[str, ...]:
    faults = [
        (path, "must not be given together with seatIds")
        for path, value in (
            ("section", form.section),
            ("quantity", form.quantity),
            ("bestAvailable", form.best_available),
        )
        if value is not msgspec.UNSET
    ]
    if not 1 <= len(seat_ids) <= SEATS_PER_HOLD_MAX:
        faults.append(("seatIds", f"must have 1 to {SEATS_PER_HOLD_MAX} seats"))
    else:
        seen: set[str] = set()
        for index, seat_id in enumerate(seat_ids):
            if seat_id in seen:
                faults.append((f"seatIds[{index}]", "is asked for twice"))
            seen.add(seat_id)
    if faults:
        raise Invalid(faults)
    return tuple(seat_ids)


def line_refund(form: RefundForm, **rest: Any) -> checkout.LineRefund:
    """What is asked of the domain by this form; raises Invalid."""
    faults = []
    if not 1 <= len(form.seat_ids) <= SEATS_PER_HOLD_MAX:
        faults.append(("seatIds", f"must have 1 to {SEATS_PER_HOLD_MAX} seats"))
    elif len(set(form.seat_ids)) < len(form.seat_ids):
        faults.append(("seatIds", "must not have a seat twice"))
    reason = events.label(form.reason)
    if fault := events.text_fault(reason, REASON_LENGTH_MAX):
        faults.append(("reason", fault))
    if faults:
        raise Invalid(faults)
    return checkout.LineRefund(
        seat_ids=tuple(form.seat_ids), reason=reason, frees=not form.keep_seats, **rest
    )


def profile(form: ProfileForm | GuestForm) -> tuple[str, str]:
    """The trimmed name and address; raises Invalid."""
    name, email = form.name.strip(), form.email.strip()
    if faults := _person_faults(name, email):
        raise Invalid(faults)
    return name, email


def registration(form: RegistrationForm) -> str:
    """The trimmed name of whoever asks for an account; raises Invalid."""
    name = form.name.strip()
    faults = _person_faults(name, form.email.strip())
    if fault := passwords.fault(form.password):
        faults.append(("password", fault))
    if faults:
        raise Invalid(faults)
    return name


def _person_faults(name: str, email: str) -> list[tuple[str, str]]:
    faults = []
    if fault := events.text_fault(name, NAME_LENGTH_MAX):
        faults.append(("name", fault))
    if fault := events.text_fault(email, EMAIL_LENGTH_MAX):
        faults.append(("email", fault))
    elif not _EMAIL.fullmatch(email) or not email.isprintable():
        faults.append(("email", "is not an e-mail address"))
    return faults


def address(email: str) -> None:
    """Raises Invalid for what is no address."""
    if faults := _person_faults("somebody", email.strip()):
        raise Invalid(faults)


def new_password(password: str) -> None:
    """Raises Invalid for a password that nobody should have."""
    if fault := passwords.fault(password):
        raise Invalid([("password", fault)])


def api_key(form: ApiKeyForm) -> tuple[str, str | None]:
    """The trimmed name, and the event of a gate's key; raises Invalid."""
    name = events.label(form.name)
    faults = []
    if fault := events.text_fault(name, NAME_LENGTH_MAX):
        faults.append(("name", fault))
    if (form.scope == "gate") != (form.event_id is not msgspec.UNSET):
        faults.append(("eventId", "is required for the scope gate, and for no other"))
    if faults:
        raise Invalid(faults)
    return name, None if form.event_id is msgspec.UNSET else form.event_id


def refuse_odd_subject(subject: str, path: str) -> None:
    """Raises Invalid for what no token can have as its subject."""
    if not 1 <= len(subject) <= SUBJECT_LENGTH_MAX or not subject.isprintable():
        raise Invalid([(path, f"must be 1 to {SUBJECT_LENGTH_MAX} printable characters")])


def idempotency_key(request: Request[Any, Any, Any]) -> str | None:
    """The request's Idempotency-Key, bare or as a quoted structured field; raises Invalid."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(key) > IDEMPOTENCY_KEY_LENGTH_MAX or not _KEY.fullmatch(key):
        raise Invalid(
            [("Idempotency-Key", f"must be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} visible characters")]
        )
    return key


@cache
def _decoder(form: type[Form]) -> msgspec.json.Decoder[Form]:
    return msgspec.json.Decoder(form)


def _fault(text: str) -> tuple[str, str]:
    """The path and message of a fault as the decoder words it."""
    match = _PLACE.match(text)
    message, path = (match["message"], match["path"] or "") if match else (text, "")
    if field := _FIELD.match(message):
        path = f"{path}.{field['name']}" if path else field["name"]
        missing = field["fault"] == "missing required"
        message = "is required" if missing else "is not a known field"
    return path or "body", message


# --- Describing bodies --------------------------------------------------------------------------

_FORMS = (
    events.Move,
    events.NewEvent,
    AddressAndPasswordForm,
    AddressForm,
    ApiKeyForm,
    CodeForm,
    ErasureForm,
    FeesForm,
    GuestForm,
    HoldForm,
    LinkAndPasswordForm,
    LinkForm,
    LogInForm,
    MemberForm,
    OrderForm,
    PasswordAndCodeForm,
    PasswordForm,
    ProfileForm,
    RefreshForm,
    RefundForm,
    RegistrationForm,
    Switches,
    WebhookForm,
)


def described_by(form: type[msgspec.Struct], *, keyed: bool = False) -> type[Operation]:
    """The class of a route's description with this form as its body.

    The framework describes only what it decodes itself. It would decode without naming unknown and
    missing fields by their paths, so that is done here and told to the description separately.
    `keyed` routes honour an Idempotency-Key.
    """
    schema = Reference(ref=REFERENCE_PREFIX + form.__name__)

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.request_body = RequestBody(
                content={"application/json": OpenAPIMediaType(schema=schema)}, required=True
            )
            if keyed:
                self.parameters = [*(self.parameters or []), _IDEMPOTENCY_KEY]

    return Described


_IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    param_in="header",
    description=(
        "The same key with the same body gives the same answer and makes nothing twice. "
        "Bare or quoted."
    ),
    schema=Schema(
        type=OpenAPIType.STRING,
        min_length=1,
        max_length=IDEMPOTENCY_KEY_LENGTH_MAX,
        pattern=r"^[!#-~]+$",
    ),
)


def schemas() -> dict[str, Any]:
    """The JSON schema of every form, by name."""
    _, components = msgspec.json.schema_components(_FORMS, ref_template=REFERENCE_PREFIX + "{name}")
    return components
