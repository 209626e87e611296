"""What the API's description says is tried out against the server, by everybody there is.

Schemathesis makes requests that fit the description and requests that do not, follows what one
answer names into the next request, and holds each answer against the description. Its seed is
fixed: what fails here fails again.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.routes.conftest import Api, Server, token

CONFIGURATION = Path(__file__).parent / "schemathesis.toml"
SECONDS_MAX = 150
EXAMPLES = 8


@pytest.mark.parametrize("role", ["fan", "organiser", "admin", None])
async def test_every_answer_is_as_described_whoever_asks_and_whatever(
    api: Api, server: Server, tmp_path: Path, role: str | None
) -> None:
    event_id = await api.sale(maxSeatsPerFan=50)
    for ordinal in range(3):
        await api.order(event_id, ordinal)
    bearer = []
    if role is not None:
        # Whose there is something: the fan who ordered, the organiser who sells.
        subject = {"fan": "fan_one", "organiser": "org_one", "admin": "adm_one"}[role]
        bearer = ["-H", f"Authorization: Bearer {token(api.settings, subject, role)}"]
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "st"),
        "--config-file",
        str(CONFIGURATION),
        "run",
        f"{server.url}/openapi.json",
        "--checks=all",
        "--phases=examples,coverage,fuzzing,stateful",
        # OpenAPI has no word for WebSockets: that one is described for people.
        "--exclude-path-regex=live$",
        f"--max-examples={EXAMPLES}",
        "--seed=1",
        "--no-shrink",
        "--no-color",
        *bearer,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    text = said.decode()
    assert process.returncode == 0, text[-8_000:]
    # One that tried nothing would find nothing.
    assert "Operations:" in text
    assert " passed" in text
