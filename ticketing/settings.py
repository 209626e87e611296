"""What may differ between deployments, read once from `TICKETING_…` variables at the start."""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from email.policy import EmailPolicy
from ipaddress import IPv4Network, IPv6Network, ip_network

# Known to everybody on purpose: a developer's machine needs no set-up. Production refuses to start
# with a secret left unset, so these never guard anything real.
_DEVELOPMENT_JWT_SECRET = "development-only-do-not-use-in-production"  # noqa: S105 # pragma: allowlist secret
_DEVELOPMENT_WEBHOOK_SECRET = (
    "whsec_" + base64.b64encode(b"development-only-webhook-secret!").decode()
)
_DEVELOPMENT_TICKET_SECRET = base64.b64encode(b"development-only-ticket-signing!").decode()
# What Ed25519 takes as a key, private or public.
_TICKET_KEY_OCTETS = 32

_CHOICES = {
    "mode": ("development", "production"),
    "mongo_driver": ("pymongo", "motor"),
    "sandbox_payments": ("", "on", "off"),
    "payment_provider": ("sandbox", "stripe"),
    "smtp_encryption": ("starttls", "tls", "none"),
    "webhooks_to_private_addresses": ("on", "off"),
    "rate_limits": ("", "on", "off"),
    "oidc_algorithm": ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384"),
}
_ROLES = ("fan", "organiser", "admin")


class SettingsError(Exception):
    """A setting is missing or unusable; the text names it and says what to do."""


@dataclass(frozen=True)
class Settings:
    """All settings of all processes. Names are the variables' without `TICKETING_`, lower case."""

    mode: str = "development"
    mongodb_uri: str = "mongodb://127.0.0.1:27017/?replicaSet=rs0"
    database: str = "ticketing"
    mongo_driver: str = "pymongo"
    host: str = "127.0.0.1"
    port: int = 8000
    public_url: str = ""
    jwt_secret: str = ""
    jwt_issuer: str = "ticketing"
    jwt_audience: str = "ticketing"
    payment_webhook_secret: str = ""
    ticket_signing_secret: str = ""
    ticket_former_keys: str = ""
    fonts: str = "/usr/share/fonts"
    sandbox_payments: str = ""
    payment_provider: str = "sandbox"
    stripe_secret_key: str = ""
    stripe_webhook_secret: str = ""
    stripe_api_base: str = "https://api.stripe.com"
    provider_seconds_max: float = 5.0
    hold_seconds: int = 600
    release_interval_seconds: float = 1.0
    smtp_host: str = ""
    smtp_port: int = 587
    smtp_user: str = ""
    smtp_password: str = ""
    smtp_encryption: str = "starttls"
    mail_from: str = ""
    webhooks_to_private_addresses: str = "off"
    metrics_port: int = 0
    otlp_endpoint: str = ""
    trusted_proxies: str = ""
    rate_limits: str = ""
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_jwks_url: str = ""
    oidc_algorithm: str = "RS256"
    oidc_role_claim: str = "role"
    oidc_roles: str = "fan=fan,organiser=organiser,admin=admin"

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> "Settings":
        """Settings from the environment, checked. Raises SettingsError."""
        values: dict[str, object] = {}
        for field in fields(Settings):
            name = f"TICKETING_{field.name.upper()}"
            text = environment.get(name, "").strip()
            if not text:
                continue
            try:
                values[field.name] = field.type(text) if callable(field.type) else text
            except ValueError:
                raise SettingsError(f"{name} is {text!r}: it must be a number.") from None
        return _checked(Settings(**values))  # type: ignore[arg-type]


def _checked(settings: Settings) -> Settings:
    for name, choices in _CHOICES.items():
        if getattr(settings, name) not in choices:
            named = " or ".join(choice for choice in choices if choice)
            raise SettingsError(f"TICKETING_{name.upper()} must be {named}.")
    _check_ranges(settings)
    _check_provider(settings)
    _check_mail(settings)
    _check_access(settings)
    completed = {
        # The sandbox takes no money: in production somebody must have asked for it.
        "sandbox_payments": settings.sandbox_payments
        or ("on" if settings.mode == "development" else "off"),
        # A developer's load comes from one address and few accounts.
        "rate_limits": settings.rate_limits or ("off" if settings.mode == "development" else "on"),
        "public_url": settings.public_url.rstrip("/") or f"http://{settings.host}:{settings.port}",
    }
    for name, development in (
        ("jwt_secret", _DEVELOPMENT_JWT_SECRET),
        ("payment_webhook_secret", _DEVELOPMENT_WEBHOOK_SECRET),
        ("ticket_signing_secret", _DEVELOPMENT_TICKET_SECRET),
    ):
        if getattr(settings, name):
            continue
        if settings.mode == "production":
            raise SettingsError(
                f"TICKETING_{name.upper()} is not set: production needs a secret of its own."
            )
        completed[name] = development
    settings = Settings(**{**vars(settings), **completed})
    if len(settings.jwt_secret.encode()) < 32:
        raise SettingsError("TICKETING_JWT_SECRET must be at least 32 bytes long.")
    webhook_key(settings)
    ticket_key(settings)
    former_ticket_keys(settings)
    return settings


def _check_ranges(settings: Settings) -> None:
    if not 0 < settings.port < 65536:
        raise SettingsError("TICKETING_PORT must be a port number from 1 to 65535.")
    if not 0 <= settings.metrics_port < 65536:
        raise SettingsError("TICKETING_METRICS_PORT must be a port number, or 0 for none.")
    if settings.otlp_endpoint and not settings.otlp_endpoint.startswith(("http://", "https://")):
        raise SettingsError("TICKETING_OTLP_ENDPOINT must be an address that begins with http.")
    if not 1 <= settings.hold_seconds <= 86_400:
        raise SettingsError("TICKETING_HOLD_SECONDS must be from 1 to 86400.")
    if not 0.05 <= settings.release_interval_seconds <= 60:
        raise SettingsError("TICKETING_RELEASE_INTERVAL_SECONDS must be from 0.05 to 60.")
    if not 0.05 <= settings.provider_seconds_max <= 30:
        raise SettingsError("TICKETING_PROVIDER_SECONDS_MAX must be from 0.05 to 30.")


def _check_provider(settings: Settings) -> None:
    if settings.payment_provider == "stripe" and not settings.stripe_secret_key:
        raise SettingsError("TICKETING_STRIPE_SECRET_KEY is not set: stripe needs it.")
    if settings.stripe_secret_key and not settings.stripe_webhook_secret:
        raise SettingsError("TICKETING_STRIPE_WEBHOOK_SECRET is not set: stripe needs it.")


def _check_mail(settings: Settings) -> None:
    if not 0 < settings.smtp_port < 65536:
        raise SettingsError("TICKETING_SMTP_PORT must be a port number from 1 to 65535.")
    if settings.smtp_host and not _is_mailbox(settings.mail_from):
        raise SettingsError(
            "TICKETING_MAIL_FROM must be one address, such as Tickets <tickets@example.org>:"
            " mail is on, since TICKETING_SMTP_HOST is set."
        )
    if settings.smtp_user and settings.smtp_encryption == "none":
        raise SettingsError(
            "TICKETING_SMTP_ENCRYPTION must be starttls or tls: without either the password of"
            " TICKETING_SMTP_USER could be read on its way."
        )


def _check_access(settings: Settings) -> None:
    trusted_proxies(settings)
    given = (settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks_url)
    if any(given) and not all(given):
        raise SettingsError(
            "TICKETING_OIDC_ISSUER, TICKETING_OIDC_AUDIENCE and TICKETING_OIDC_JWKS_URL go"
            " together: set all three or none."
        )
    if settings.oidc_jwks_url and not settings.oidc_jwks_url.startswith(("http://", "https://")):
        raise SettingsError("TICKETING_OIDC_JWKS_URL must be an address that begins with http.")
    if settings.mode == "production" and settings.oidc_jwks_url.startswith("http://"):
        raise SettingsError("TICKETING_OIDC_JWKS_URL must begin with https in production.")
    oidc_roles(settings)


def trusted_proxies(settings: Settings) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks whose `X-Forwarded-For` is believed."""
    try:
        names = settings.trusted_proxies.replace(",", " ").split()
        return tuple(ip_network(name) for name in names)
    except ValueError as error:
        raise SettingsError(
            f"TICKETING_TRUSTED_PROXIES must be addresses or networks with commas between: {error}."
        ) from None


def oidc_roles(settings: Settings) -> dict[str, str]:
    """Which of our roles each value of the issuer's role claim is; the later the stronger."""
    roles = {}
    for pair in settings.oidc_roles.split(","):
        value, _, role = pair.strip().rpartition("=")
        if not value or role not in _ROLES:
            raise SettingsError(
                "TICKETING_OIDC_ROLES must be pairs such as tickets-staff=organiser, with commas"
                " between; the roles are fan, organiser and admin."
            )
        roles[value] = role
    return roles


def _is_mailbox(text: str) -> bool:
    """Whether a text is one mail address, with or without a name before it."""
    header = EmailPolicy().header_factory("From", text)
    return len(header.addresses) == 1 and not header.defects and bool(header.addresses[0].domain)


def webhook_key(settings: Settings) -> bytes:
    """The bytes that sign webhooks (Standard Webhooks: base64 after `whsec_`)."""
    prefix, _, encoded = settings.payment_webhook_secret.partition("_")
    try:
        key = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        key = b""
    if prefix != "whsec" or len(key) < 16:
        raise SettingsError(
            "TICKETING_PAYMENT_WEBHOOK_SECRET must be whsec_ and base64 of at least 16 bytes."
        )
    return key


def ticket_key(settings: Settings) -> bytes:
    """The private key that signs the codes of tickets."""
    key = _ticket_key(settings.ticket_signing_secret)
    if key is None:
        raise SettingsError(
            "TICKETING_TICKET_SIGNING_SECRET must be base64 of 32 bytes, "
            "for example from openssl rand -base64 32."
        )
    return key


def former_ticket_keys(settings: Settings) -> list[bytes]:
    """The public keys whose codes are still on tickets that fans have printed."""
    keys = [_ticket_key(text) for text in settings.ticket_former_keys.replace(",", " ").split()]
    if None in keys:
        raise SettingsError(
            "TICKETING_TICKET_FORMER_KEYS must be public keys: the `x` of each as "
            "/v1/ticket-keys told it, with commas between."
        )
    return [key for key in keys if key is not None]


def _ticket_key(text: str) -> bytes | None:
    """A key in either of base64's alphabets, padded or not; None for anything else."""
    standard = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        key = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except binascii.Error:
        return None
    return key if len(key) == _TICKET_KEY_OCTETS else None
