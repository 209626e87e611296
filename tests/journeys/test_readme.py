"""What README.md tells a person to type works as it stands there, and what docs/ names is there."""

import re
import shlex
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

from tests.journeys.conftest import REPOSITORY, Service, plain_environment
from ticketing.settings import Settings

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


# --- The other pages ---------------------------------------------------------------------------

PAGES = {page: page.read_text() for page in (REPOSITORY / "docs").rglob("*.md")}


def test_the_settings_are_those_of_the_program_with_their_defaults() -> None:
    rows = re.findall(r"^\| `(TICKETING_\w+)` \| (.*?) \|", docs("operations"), re.MULTILINE)
    kept = {"public_url": "`http://HOST:PORT`"} | dict.fromkeys(
        ("jwt_secret", "payment_webhook_secret", "ticket_signing_secret"), "development only"
    )
    kept["ticket_former_keys"] = "none"
    unset = (
        "stripe_secret_key",
        "stripe_webhook_secret",
        "smtp_host",
        "smtp_user",
        "smtp_password",
        "otlp_endpoint",
    )
    kept |= dict.fromkeys((*unset, "mail_from"), "none")
    kept["sandbox_payments"] = "`on`, in production `off`"
    kept["rate_limits"] = "`off`, in production `on`"
    kept |= dict.fromkeys(
        ("trusted_proxies", "oidc_issuer", "oidc_audience", "oidc_jwks_url"), "none"
    )
    kept |= dict.fromkeys(("smtp_host", "smtp_user", "smtp_password", "mail_from"), "none")
    assert rows == [
        (f"TICKETING_{field.name.upper()}", kept.get(field.name, f"`{field.default}`"))
        for field in fields(Settings)
    ]


def test_what_a_page_names_is_there() -> None:
    tests = "".join(file.read_text() for file in (REPOSITORY / "tests").rglob("test_*.py"))
    for page, text in PAGES.items():
        named = re.findall(r"`((?:tests|ticketing|indexes|scripts|workers)/[\w./]+)`", text)
        assert [path for path in named if not (REPOSITORY / path).exists()] == [], page
        rules = re.findall(r"`(test_\w+)`", text)
        assert [rule for rule in rules if f"def {rule}(" not in tests] == [], page


def test_the_modules_are_in_the_order_that_is_checked() -> None:
    table = docs("architecture").partition("| --- | --- |\n")[2].partition("\n\n")[0]
    told = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (contract,) = [
        one for one in project["tool"]["importlinter"]["contracts"] if one.get("exhaustive")
    ]
    checked = [re.findall(r"\w+", layer) for layer in reversed(contract["layers"])]
    place = {module: index for index, layer in enumerate(checked) for module in layer}
    assert sorted(place) == sorted(module for row in told for module in row)
    assert [place[row[0]] for row in told] == sorted(place[row[0]] for row in told)
    assert all(len({place[module] for module in row}) == 1 for row in told if "web" not in row)


def test_every_decision_says_why_what_follows_and_what_enforces_it() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text())
    assert sorted([*listed, "README.md"]) == sorted(page.name for page in folder.iterdir())
    for name in listed:
        headings = re.findall(r"^## (.*)$", (folder / name).read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences", "What enforces it"], name


def docs(name: str) -> str:
    return PAGES[REPOSITORY / "docs" / f"{name}.md"]
