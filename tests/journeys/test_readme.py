"""What README.md tells a person to type works as it stands there."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.journeys.conftest import REPOSITORY, Service, plain_environment

TEXT = (REPOSITORY / "README.md").read_text()


def block(heading: str) -> str:
    """The code block under a heading."""
    (found,) = re.findall(
        rf"^## {heading}\n(?:(?!^## ).)*?^```bash\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE
    )
    return str(found)


def test_every_line_of_the_purchase_succeeds_and_the_fan_has_tickets(service: Service) -> None:
    lines = block("Buy a ticket").replace("http://127.0.0.1:8000", service.url)
    assert service.url in lines
    typed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=REPOSITORY,
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    assert typed.stderr == ""
    assert '"orderStatus":"confirmed"' in typed.stdout
    fan = service.person("fan", "fan_bea")
    tickets = fan.get("/v1/me/tickets")["items"]
    assert [(ticket["section"], ticket["event"]["name"]) for ticket in tickets] == [
        ("A", "The Last Waltz"),
        ("A", "The Last Waltz"),
    ]
    assert all(ticket["code"] in typed.stdout for ticket in tickets)


def test_the_two_commands_are_there_and_can_be_run() -> None:
    for line in block("Two commands").splitlines():
        command = REPOSITORY / shlex.split(line, comments=True)[0]
        assert command.stat().st_mode & 0o111, command


def test_every_link_leads_somewhere() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / Path(link)).exists(), (page, link)
