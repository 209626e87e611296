"""How people get accounts and log in, and how guests buy without one."""

from typing import Any

import msgspec
from litestar import Request, Response, delete, post, put

from ticketing import access_tokens, clock, credentials, guests, privacy, second_factors, sessions
from ticketing.api import access_answers, auth, bodies, client_address, problems
from ticketing.api.replies import Reply
from ticketing.api.routing import Router
from ticketing.api.services import Services, services_of
from ticketing.errors import NotFound
from ticketing.mongo import Document
from ticketing.passwords import TooManySignIns
from ticketing.signed_links import LinkInvalid

ASKED = access_answers.Asked()


def _counted(request: Request[Any, Any, Any], account: str) -> None:
    """Count what may be tried or mailed only so often, by address and by account."""
    address = client_address.limited_by(client_address.of(request))
    services_of(request).limits.signs_in(request, address, account)


@post(
    "/accounts",
    summary="Ask for an account",
    status_code=202,
    operation_class=bodies.described_by(bodies.RegistrationForm),
    responses=problems.documented(TooManySignIns),
)
async def register(request: Request[Any, Any, Any]) -> access_answers.Asked:
    """The address gets a mail. The answer is the same whether or not it has an account already."""
    services = services_of(request)
    form = await bodies.read(request, bodies.RegistrationForm)
    name = bodies.registration(form)
    _counted(request, credentials.normalized(form.email))
    await credentials.register(
        services.database,
        services.passwords,
        email=form.email,
        password=form.password,
        role=form.role,
        name=name,
        language=form.language,
        now=clock.now(),
    )
    return ASKED


@post(
    "/accounts/confirm",
    summary="Confirm an account",
    operation_class=bodies.described_by(bodies.LinkAndPasswordForm),
    responses=problems.documented(LinkInvalid, credentials.WrongCredentials, TooManySignIns),
)
async def confirm(request: Request[Any, Any, Any]) -> Response[access_answers.LoggedIn]:
    """By the link that was mailed and the password once more; then the account is logged in."""
    services = services_of(request)
    form = await bodies.read(request, bodies.LinkAndPasswordForm)
    _counted(request, form.link)
    account = await credentials.confirm(
        services.database,
        services.settings,
        services.passwords,
        link=form.link,
        password=form.password,
        now=clock.now(),
    )
    return Reply(await _logged_in(services, account))


@post(
    "/accounts/forgotten-password",
    summary="Ask for a new password",
    status_code=202,
    operation_class=bodies.described_by(bodies.AddressForm),
)
async def forgotten(request: Request[Any, Any, Any]) -> access_answers.Asked:
    """The address gets a mail if it has an account. The answer does not tell."""
    form = await bodies.read(request, bodies.AddressForm)
    bodies.address(form.email)
    _counted(request, credentials.normalized(form.email))
    await credentials.forgotten(services_of(request).database, email=form.email, now=clock.now())
    return ASKED


@post(
    "/accounts/reset-password",
    summary="Choose a new password",
    status_code=204,
    operation_class=bodies.described_by(bodies.LinkAndPasswordForm),
    responses=problems.documented(LinkInvalid, TooManySignIns),
)
async def reset(request: Request[Any, Any, Any]) -> None:
    """By the link that was mailed, once. All sessions of the account end."""
    services = services_of(request)
    form = await bodies.read(request, bodies.LinkAndPasswordForm)
    bodies.new_password(form.password)
    _counted(request, form.link)
    await credentials.reset(
        services.database,
        services.settings,
        services.passwords,
        link=form.link,
        password=form.password,
        now=clock.now(),
    )


@post(
    "/accounts/confirm-email",
    summary="Confirm an account's new address",
    status_code=204,
    operation_class=bodies.described_by(bodies.LinkForm),
    responses=problems.documented(LinkInvalid),
)
async def confirm_email(request: Request[Any, Any, Any]) -> None:
    """By the link that was mailed to the new address."""
    services = services_of(request)
    form = await bodies.read(request, bodies.LinkForm)
    _counted(request, form.link)
    await credentials.confirm_email(
        services.database, services.settings, link=form.link, now=clock.now()
    )


@post(
    "/sessions",
    summary="Log in",
    operation_class=bodies.described_by(bodies.LogInForm),
    responses=problems.documented(
        credentials.WrongCredentials, credentials.SecondFactorNeeded, TooManySignIns
    ),
)
async def log_in(request: Request[Any, Any, Any]) -> Response[access_answers.LoggedIn]:
    """An access token for some minutes, and a refresh token that is good once."""
    services = services_of(request)
    form = await bodies.read(request, bodies.LogInForm)
    _counted(request, credentials.normalized(form.email))
    account = await credentials.log_in(
        services.database,
        services.settings,
        services.passwords,
        email=form.email,
        password=form.password,
        code=None if form.code is msgspec.UNSET else form.code,
        now=clock.now(),
    )
    return Reply(await _logged_in(services, account))


async def _logged_in(services: Services, account: Document) -> access_answers.LoggedIn:
    session = await credentials.begin_session(
        services.database, services.settings, account, clock.now()
    )
    return _tokens(services, session)


def _tokens(services: Services, session: sessions.Session) -> access_answers.LoggedIn:
    token = access_tokens.issue(
        services.settings, subject=session.account_id, role=session.role, now=clock.now()
    )
    return access_answers.LoggedIn(
        session.account_id,
        session.role,
        token,
        access_tokens.ACCESS_SECONDS,
        session.refresh_token,
    )


@post(
    "/sessions/refresh",
    summary="Go on with a session",
    operation_class=bodies.described_by(bodies.RefreshForm),
    responses=problems.documented(sessions.SessionOver),
)
async def refresh(request: Request[Any, Any, Any]) -> Response[access_answers.LoggedIn]:
    """New tokens for a refresh token. One that was used before ends the session."""
    services = services_of(request)
    form = await bodies.read(request, bodies.RefreshForm)
    session = await sessions.go_on(
        services.database, services.settings, form.refresh_token, clock.now()
    )
    return Reply(_tokens(services, session))


@post(
    "/sessions/end",
    summary="Log out",
    status_code=204,
    operation_class=bodies.described_by(bodies.RefreshForm),
    responses=problems.documented(sessions.SessionOver),
)
async def log_out(request: Request[Any, Any, Any]) -> None:
    """The session's refresh tokens are worth nothing from now on. Logging out again is no error."""
    services = services_of(request)
    form = await bodies.read(request, bodies.RefreshForm)
    await sessions.end(services.database, services.settings, form.refresh_token)


@post(
    "/guests",
    summary="Buy without an account",
    operation_class=bodies.described_by(bodies.GuestForm),
)
async def be_guest(request: Request[Any, Any, Any]) -> Response[access_answers.Guest]:
    """A token for one visit. The mails about what is bought carry a link that leads back to it."""
    services = services_of(request)
    form = await bodies.read(request, bodies.GuestForm)
    name, email = bodies.profile(form)
    address = client_address.limited_by(client_address.of(request))
    services.limits.comes_as_guest(request, address, credentials.normalized(email))
    fan_id = await guests.begin(services.database, name, email, form.language, clock.now())
    return Reply(_guest(services, fan_id, guests.VISIT_SECONDS))


@post(
    "/guests/sessions",
    summary="Come back as a guest",
    operation_class=bodies.described_by(bodies.LinkForm),
    responses=problems.documented(LinkInvalid),
)
async def come_back(request: Request[Any, Any, Any]) -> Response[access_answers.Guest]:
    """By the link of a mail about an order."""
    services = services_of(request)
    form = await bodies.read(request, bodies.LinkForm)
    _counted(request, form.link)
    fan_id = await guests.come_back(services.database, services.settings, form.link, clock.now())
    return Reply(_guest(services, fan_id, access_tokens.ACCESS_SECONDS))


def _guest(services: Services, fan_id: str, valid_seconds: int) -> access_answers.Guest:
    token = access_tokens.issue(
        services.settings,
        subject=fan_id,
        role="fan",
        now=clock.now(),
        valid_seconds=valid_seconds,
    )
    return access_answers.Guest(fan_id, token, valid_seconds)


@put(
    "/accounts/me/email",
    summary="Change the account's address",
    status_code=202,
    operation_class=bodies.described_by(bodies.AddressAndPasswordForm),
    responses=problems.documented(
        NotFound,
        credentials.WrongCredentials,
        credentials.SecondFactorNeeded,
        TooManySignIns,
    ),
)
async def change_email(request: Request[Any, Any, Any]) -> access_answers.Asked:
    """The new address gets a link; until it is followed the old address stays."""
    services = services_of(request)
    form = await bodies.read(request, bodies.AddressAndPasswordForm)
    bodies.address(form.email)
    _counted(request, request.user.subject)
    await credentials.change_email(
        services.database,
        services.settings,
        services.passwords,
        request.user.subject,
        email=form.email,
        password=form.password,
        code=None if form.code is msgspec.UNSET else form.code,
        now=clock.now(),
    )
    return ASKED


@post(
    "/accounts/me/second-factor",
    summary="Set up an authenticator app",
    operation_class=bodies.described_by(bodies.PasswordForm),
    responses=problems.documented(
        credentials.WrongCredentials, credentials.SecondFactorState, TooManySignIns
    ),
)
async def begin_second_factor(
    request: Request[Any, Any, Any],
) -> Response[access_answers.SecondFactor]:
    """A secret to be entered into the app; it counts once a code of it was confirmed."""
    services = services_of(request)
    form = await bodies.read(request, bodies.PasswordForm)
    _counted(request, request.user.subject)
    account = await credentials.prove(
        services.database, services.passwords, request.user.subject, form.password
    )
    secret = await credentials.begin_second_factor(services.database, services.settings, account)
    return Reply(
        access_answers.SecondFactor(
            second_factors.shown(secret),
            second_factors.uri(secret, services.settings.jwt_issuer, account["address"]),
        )
    )


@post(
    "/accounts/me/second-factor/confirm",
    summary="Turn the second factor on",
    status_code=204,
    operation_class=bodies.described_by(bodies.CodeForm),
    responses=problems.documented(NotFound, credentials.SecondFactorState),
)
async def confirm_second_factor(request: Request[Any, Any, Any]) -> None:
    """By a first code of the app. From now on each login needs one."""
    services = services_of(request)
    form = await bodies.read(request, bodies.CodeForm)
    _counted(request, request.user.subject)
    await credentials.confirm_second_factor(
        services.database, services.settings, request.user.subject, form.code, clock.now()
    )


@post(
    "/accounts/me/second-factor/remove",
    summary="Turn the second factor off",
    status_code=204,
    operation_class=bodies.described_by(bodies.PasswordAndCodeForm),
    responses=problems.documented(
        credentials.WrongCredentials, credentials.SecondFactorState, TooManySignIns
    ),
)
async def remove_second_factor(request: Request[Any, Any, Any]) -> None:
    """By the password and a code."""
    services = services_of(request)
    form = await bodies.read(request, bodies.PasswordAndCodeForm)
    _counted(request, request.user.subject)
    account = await credentials.prove(
        services.database, services.passwords, request.user.subject, form.password
    )
    await credentials.remove_second_factor(
        services.database, services.settings, account, form.code, clock.now()
    )


@post(
    "/accounts/me/delete",
    summary="Delete the account",
    status_code=204,
    operation_class=bodies.described_by(bodies.PasswordForm),
    responses=problems.documented(
        credentials.WrongCredentials,
        credentials.AccountInUse,
        privacy.ErasureBlocked,
        TooManySignIns,
    ),
)
async def delete_account(request: Request[Any, Any, Any]) -> None:
    """A fan is forgotten as by `/v1/me/erasure`; an organiser's past events stay."""
    services, now = services_of(request), clock.now()
    form = await bodies.read(request, bodies.PasswordForm)
    _counted(request, request.user.subject)
    account = await credentials.prove(
        services.database, services.passwords, request.user.subject, form.password
    )
    if account["role"] == "fan":
        await privacy.erase(services.database, services.settings, account["_id"], now)
    else:
        await credentials.delete_organiser(services.database, services.settings, account, now)
        services.callers_by_key.forget()
    services.gone.forget()


@delete(
    "/accounts/me/sessions",
    summary="Log out everywhere",
    status_code=204,
)
async def log_out_everywhere(request: Request[Any, Any, Any]) -> None:
    """Access tokens that are out live on for their minutes."""
    await sessions.end_all(services_of(request).database, request.user.subject)


router = Router(
    path="/v1",
    before_request=auth.nobody,
    route_handlers=[
        register,
        confirm,
        forgotten,
        reset,
        confirm_email,
        log_in,
        refresh,
        log_out,
        be_guest,
        come_back,
    ],
    tags=["accounts"],
)
own_router = Router(
    path="/v1",
    before_request=auth.required("fan", "organiser", "admin", by_key=False),
    route_handlers=[
        change_email,
        begin_second_factor,
        confirm_second_factor,
        remove_second_factor,
        log_out_everywhere,
        delete_account,
    ],
    security=[{"token": []}],
    tags=["accounts"],
)
