"""A wrong setting stops the start with a sentence that names it."""

import base64

import pytest

from ticketing.settings import Settings, SettingsError

SECRETS = {
    "TICKETING_JWT_SECRET": "s" * 32,
    "TICKETING_PAYMENT_WEBHOOK_SECRET": "whsec_" + "QUFB" * 8,
    "TICKETING_TICKET_SIGNING_SECRET": base64.b64encode(b"k" * 32).decode(),
}


def test_development_needs_no_settings() -> None:
    assert Settings.from_environment({}).hold_seconds == 600


def test_production_with_its_secrets_starts() -> None:
    settings = Settings.from_environment({"TICKETING_MODE": "production", **SECRETS})
    assert settings.jwt_secret == "s" * 32


def test_the_sandbox_that_takes_no_money_is_off_in_production_unless_asked_for() -> None:
    production = {"TICKETING_MODE": "production", **SECRETS}
    assert Settings.from_environment({}).sandbox_payments == "on"
    assert Settings.from_environment(production).sandbox_payments == "off"
    asked = Settings.from_environment(production | {"TICKETING_SANDBOX_PAYMENTS": "on"})
    assert asked.sandbox_payments == "on"


@pytest.mark.parametrize("missing", list(SECRETS))
def test_production_without_a_secret_does_not_start(missing: str) -> None:
    environment = {"TICKETING_MODE": "production", **SECRETS, missing: ""}
    with pytest.raises(SettingsError, match=missing):
        Settings.from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MODE", "prod"),
        ("SANDBOX_PAYMENTS", "true"),
        ("MONGO_DRIVER", "mysql"),
        ("PORT", "0"),
        ("PORT", "http"),
        ("HOLD_SECONDS", "0"),
        ("HOLD_SECONDS", "ten"),
        ("RELEASE_INTERVAL_SECONDS", "nan"),
        ("RELEASE_INTERVAL_SECONDS", "0"),
        ("JWT_SECRET", "short"),
        ("PAYMENT_WEBHOOK_SECRET", "whsec_!"),
        ("PAYMENT_WEBHOOK_SECRET", "AAAA"),
        ("TICKET_SIGNING_SECRET", "QUFB"),
        ("TICKET_SIGNING_SECRET", "!" * 44),
        ("TICKET_FORMER_KEYS", "QUFB"),
        ("TICKET_FORMER_KEYS", "A" * 43 + ",x"),
        ("SMTP_PORT", "70000"),
        ("SMTP_ENCRYPTION", "ssl"),
        ("WEBHOOKS_TO_PRIVATE_ADDRESSES", "yes"),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"TICKETING_{name}"):
        Settings.from_environment({f"TICKETING_{name}": value})


@pytest.mark.parametrize(
    "sender", ["", "tickets", "Tickets <>", "a@b.org, c@d.org", "a@b.org\nX: y"]
)
def test_mail_is_sent_from_one_address(sender: str) -> None:
    environment = {"TICKETING_SMTP_HOST": "mail.example.org", "TICKETING_MAIL_FROM": sender}
    with pytest.raises(SettingsError, match="TICKETING_MAIL_FROM"):
        Settings.from_environment(environment)


@pytest.mark.parametrize("sender", ["tickets@example.org", "Kärten <tickets@example.org>"])
def test_the_sender_may_have_a_name(sender: str) -> None:
    environment = {"TICKETING_SMTP_HOST": "mail.example.org", "TICKETING_MAIL_FROM": sender}
    assert Settings.from_environment(environment).mail_from == sender


def test_a_password_is_not_sent_where_all_can_read_it() -> None:
    environment = {
        "TICKETING_SMTP_HOST": "mail.example.org",
        "TICKETING_MAIL_FROM": "tickets@example.org",
        "TICKETING_SMTP_USER": "tickets",
        "TICKETING_SMTP_ENCRYPTION": "none",
    }
    with pytest.raises(SettingsError, match="TICKETING_SMTP_ENCRYPTION"):
        Settings.from_environment(environment)
