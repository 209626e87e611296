"""A real SMTP server in the test's own loop, that keeps what it takes."""

import asyncio
import email
import email.policy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from ticketing.settings import Settings


@dataclass
class MailServer:
    """Answers `answer` to recipients of that address; `before_taking` runs inside DATA."""

    port: int = 0
    taken: list[tuple[str, EmailMessage]] = field(default_factory=list)
    recipient_answers: dict[str, str] = field(default_factory=dict)
    data_answers: list[str] = field(default_factory=list)
    before_taking: Callable[[], Awaitable[None]] | None = None
    connections: int = 0

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.recipient_answers:
            return self.recipient_answers[address]
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.before_taking is not None:
            await self.before_taking()
        if self.data_answers:
            return self.data_answers.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        mail = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.taken.extend((recipient, mail) for recipient in envelope.rcpt_tos)
        return "250 taken"

    def settings(self, settings: Settings) -> Settings:
        return replace(
            settings,
            smtp_host="127.0.0.1",
            smtp_port=self.port,
            smtp_encryption="none",
            mail_from="Tickets <tickets@example.org>",
        )


@asynccontextmanager
async def mail_server(**options: Any) -> AsyncIterator[MailServer]:
    kept = MailServer()
    protocols: list[SMTP] = []

    def connected() -> SMTP:
        kept.connections += 1
        protocols.append(SMTP(kept, enable_SMTPUTF8=True, hostname="mail.example.org", **options))
        return protocols[-1]

    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    kept.port = server.sockets[0].getsockname()[1]
    try:
        yield kept
    finally:
        server.close()
        for protocol in protocols:
            if protocol.transport is not None:
                protocol.transport.close()
        # Both ends are told of the end of a connection in the rounds that follow.
        for _ in range(5):
            await asyncio.sleep(0)


def parts(mail: EmailMessage) -> tuple[str, str]:
    """The plain text and the HTML of a mail."""
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert html is not None
    return plain.get_content(), html.get_content()
