"""The server as a process: how it starts, refuses to start, and stops."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import uvicorn

from tests.routes.conftest import Server, event_body, token
from ticketing.api import serving


async def start(**environment: str) -> tuple[int, str]:
    """The exit code and what is said of a server that does not start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ticketing.api",
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TICKETING_MODE", "production"),
        ("TICKETING_PORT", "many"),
        ("TICKETING_HOLD_SECONDS", "0"),
    ],
)
async def test_a_bad_setting_stops_the_start_with_one_sentence(variable: str, value: str) -> None:
    code, said = await start(**{variable: value})
    assert code == 2
    assert "TICKETING_" in said
    assert len(said.strip().splitlines()) == 1


async def test_a_port_in_use_stops_the_start_with_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = await start(TICKETING_PORT=str(taken.getsockname()[1]))
    assert code == 1
    assert "in use" in said
    assert len(said.strip().splitlines()) == 1


async def test_a_stop_lets_the_request_that_runs_come_to_its_end(server: Server) -> None:
    headers = {"Authorization": f"Bearer {token(server.settings, 'org_one', 'organiser')}"}
    sections = [{"name": "Field", "priceCategory": "Rear", "capacity": 80_000}]
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        making = asyncio.create_task(
            http.post("/v1/events", json=event_body(sections=sections), headers=headers)
        )
        await asyncio.sleep(0.2)
        assert not making.done()
        server.process.send_signal(signal.SIGTERM)
        assert (await making).status_code == 201
    assert await asyncio.wait_for(server.process.wait(), 10) == 0


async def test_whoever_sends_too_much_still_gets_the_answer_that_says_so(server: Server) -> None:
    headers = {"Authorization": f"Bearer {token(server.settings, 'org_one', 'organiser')}"}
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        for size, status in ((17 * 1024 * 1024, 413), (15 * 1024 * 1024, 422)):
            answer = await http.post(
                "/v1/events",
                content=b" " * size,
                headers={**headers, "Content-Type": "application/json"},
            )
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
        anonymous = await http.post("/v1/events", content=b" " * 15 * 1024 * 1024)
        assert anonymous.status_code == 401
        assert (await http.get("/health/live")).status_code == 200


async def test_bytes_that_are_no_text_in_a_path_or_query_do_no_harm(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url) as http:
        for path in ("/v1/events/%FF", "/v1/events/%ED%A0%80", "/v1/events/%C0%80/seats"):
            assert (await http.get(path)).status_code == 404
        for query in ("q=%ED%A0%80", "category=%FF", "q=%C0%80"):
            assert (await http.get(f"/v1/events?{query}")).status_code == 200
        for query in ("cursor=%FF", "limit=%FF", "from=%FF", "status=%FF"):
            assert (await http.get(f"/v1/events?{query}")).status_code == 422


async def test_an_answer_leaves_in_one_piece_and_head_has_none_but_its_head(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

    async def ask(method: str) -> bytes:
        writer.write(f"{method} /health/live HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return await asyncio.wait_for(reader.read(65_536), 10)

    got = await ask("GET")
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().splitlines()
        if line.startswith(b"content-length:")
    )
    assert len(body) == length > 0
    only_head = await ask("HEAD")
    assert only_head.startswith(b"HTTP/1.1 200")
    assert only_head.endswith(b"\r\n\r\n")
    # The connection goes on to be used: nothing of the answer before is left in it.
    assert (await ask("GET")).endswith(body)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    together = b""
    while together.count(body) < 3:
        together += await asyncio.wait_for(reader.read(65_536), 10)
    writer.close()


async def test_a_head_without_end_is_refused_and_the_server_goes_on(server: Server) -> None:
    for piece in (b"x-long: ", b"GET /"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" if piece.startswith(b"x") else b"")
        writer.write(piece)
        answer = b""
        try:
            for _ in range(1_000):
                writer.write(b"a" * 10_000)
                await writer.drain()
            answer = await asyncio.wait_for(reader.read(), 10)
        except ConnectionError:
            answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"application/problem+json" in answer
        writer.close()
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/health/live", headers={"x-long": "a" * 30_000})).is_success


async def test_a_head_that_comes_in_pieces_is_put_together(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for piece in (b"GE", b"T /health/live HT", b"TP/1.1\r\nHos", b"t: x\r\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.02)
    assert (await asyncio.wait_for(reader.read(65_536), 10)).startswith(b"HTTP/1.1 200 ")
    writer.close()


LARGE = 20_000_000


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers once it has the whole body, at /large with a lot."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message["more_body"]:
            break
    status, body = (200, b"x" * LARGE) if scope["path"] == "/large" else (204, b"")
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def impatient(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The port of a server in this loop that waits for nobody for long."""
    for limit in ("HEAD_SECONDS_MAX", "BODY_SECONDS_MAX", "STALLED_SECONDS_MAX"):
        monkeypatch.setattr(serving, limit, 0.4)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            application, http=serving.Connection, lifespan="off", log_config=None
        )
        running = uvicorn.Server(config)
        serve = asyncio.create_task(running.serve(sockets=[listening]))
        yield listening.getsockname()[1]
        running.should_exit = True
        await serve


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX-",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
    ],
    ids=["head", "body"],
)
async def test_who_sends_a_byte_now_and_then_is_cut_off(impatient: int, beginning: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient)
    whole = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    for _ in range(2):  # One that ends in time is served, and the next on its connection.
        writer.write(whole)
        assert b" 204 " in await asyncio.wait_for(reader.read(1_000), 10)
    writer.write(beginning)
    answer = b""
    for _ in range(5):
        writer.write(b"x")
        with suppress(TimeoutError):
            answer = await asyncio.wait_for(reader.read(1_000), 0.15)
            break
    answer = answer or await asyncio.wait_for(reader.read(1_000), 10)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    writer.close()


@pytest.mark.parametrize("said", [b"", b"\r\n"])
async def test_who_connects_and_says_nothing_is_let_go(impatient: int, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient)
    writer.write(said)
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_who_takes_nothing_of_an_answer_is_cut_off_and_who_takes_it_slowly_gets_it(
    impatient: int,
) -> None:
    question = b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient, limit=10_000)
    writer.write(question)
    taken = 0
    while piece := await asyncio.wait_for(reader.read(400_000), 10):
        taken += len(piece)
        if taken < LARGE / 2:
            await asyncio.sleep(0.01)
    assert taken > LARGE
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient, limit=10_000)
    writer.write(question)
    await reader.readexactly(1_000)
    await asyncio.sleep(2)
    with suppress(ConnectionError):
        rest = 0
        while piece := await asyncio.wait_for(reader.read(1_000_000), 10):
            rest += len(piece)
        assert rest < LARGE / 2
    writer.close()
