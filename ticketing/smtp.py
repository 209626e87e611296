"""Mails go out by SMTP; a few connections stay open while there is something to send."""

import logging
from contextlib import suppress
from email.message import EmailMessage

import aiosmtplib
from aiosmtplib import SMTP

from ticketing.mails import Undelivered, Unsendable
from ticketing.settings import Settings

COMMAND_SECONDS_MAX = 10.0
# Servers end a connection that carried many mails; this is below what the strict ones allow.
MAILS_PER_CONNECTION_MAX = 50

logging.getLogger("aiosmtplib").setLevel(logging.WARNING)


class Smtp:
    """The mail server of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[tuple[SMTP, int]] = []

    async def send(self, mail: EmailMessage, sender: str, recipient: str) -> str:
        """Hand a mail over and tell what the server answered. Raises Unsendable, Undelivered.

        A server that went silent after the mail's end may have taken it: it is sent again, under
        the same Message-ID.
        """
        server: SMTP | None
        server, sent = await self._connected()
        try:
            _, answer = await server.send_message(mail, sender=sender, recipients=[recipient])
        except aiosmtplib.SMTPRecipientsRefused as error:
            refused = error.recipients[0]
            raise _fault(refused.code, refused.message) from error
        except (aiosmtplib.SMTPDataError, aiosmtplib.SMTPSenderRefused) as error:
            raise _fault(error.code, error.message) from error
        except aiosmtplib.SMTPNotSupported as error:
            # An address outside ASCII, and a server that knows none.
            raise Unsendable(f"the mail server can't: {error}") from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise _trouble(error) from error
        else:
            await self._keep(server, sent + 1)
            server = None
            return answer
        finally:
            # After a fault its state is not known, so it carries no other mail.
            if server is not None:
                server.close()

    async def close(self) -> None:
        """Take leave of the server."""
        while self._idle:
            server, _ = self._idle.pop()
            await _leave(server)

    async def _connected(self) -> tuple[SMTP, int]:
        while self._idle:
            server, sent = self._idle.pop()
            # Servers hang up on who says nothing. To find that out only when sending would leave
            # open whether the mail was taken.
            with suppress(aiosmtplib.SMTPException, OSError):
                await server.noop()
                return server, sent
            server.close()
        settings = self._settings
        server = SMTP(
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_user or None,
            password=settings.smtp_password or None,
            use_tls=settings.smtp_encryption == "tls",
            start_tls=settings.smtp_encryption == "starttls",
            timeout=COMMAND_SECONDS_MAX,
        )
        try:
            await server.connect()
        except (aiosmtplib.SMTPException, OSError) as error:
            server.close()
            # Also where it refuses who we are: a setting that is wrong is no fault of the mail's.
            raise _trouble(error) from error
        return server, 0

    async def _keep(self, server: SMTP, sent: int) -> None:
        if sent < MAILS_PER_CONNECTION_MAX:
            self._idle.append((server, sent))
        else:
            await _leave(server)


async def _leave(server: SMTP) -> None:
    with suppress(aiosmtplib.SMTPException, OSError):
        await server.quit()


def _trouble(error: Exception) -> Undelivered:
    return Undelivered(f"the mail server failed: {type(error).__name__}")


def _fault(code: int, answer: str) -> Exception:
    """5xx is for good, 4xx is for now (RFC 5321)."""
    text = f"the mail server answered {code} {answer}"
    return Unsendable(text) if 500 <= code < 600 else Undelivered(text)
