"""The table of hostile input: whatever is sent wherever, the answer is a clean refusal."""

import json
import time
from typing import Any

import pytest

from tests.routes.conftest import Api, Json, assert_problem, event_body, seat_id
from tests.routes.policies import POLICIES

RAW = {
    "nothing": b"",
    "no JSON": b"seatIds=1",
    "a number": b"7",
    "a text": b'"seatIds"',
    "a list": b"[]",
    "null": b"null",
    "half an object": b'{"seatIds": [',
    "two objects": b"{} {}",
    "a NUL between": b'{"holdId"\0: "x"}',
    "bytes that are no text": b'{"holdId": "\xff\xfe"}',
    "a lone surrogate": b'{"holdId": "\\ud800"}',
    "another encoding": '{"holdId": "x"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NaN": b'{"quantity": NaN}',
    "an infinity": b'{"quantity": Infinity}',
    "a number without end": b'{"quantity": 1' + b"0" * 5_000 + b"}",
    "an exponent without end": b'{"quantity": 1e999999}',
    "lists a thousand deep": b'{"seatIds": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
    "lists thirty thousand deep": b"[" * 30_000,
    "objects thirty thousand deep": b'{"a":' * 10_000,
    "a comment": b'{"holdId": "x" /* y */}',
    "a comma too many": b'{"holdId": "x",}',
    "single quotes": b"{'holdId': 'x'}",
    "ten thousand elements": json.dumps({"seatIds": ["x"] * 10_000}).encode(),
    "ten thousand members": json.dumps({f"m{number}": 1 for number in range(5_000)}).encode(),
}
ODD_VALUES: dict[str, Any] = {
    "an operator": {"$gt": ""},
    "where": {"$where": "sleep(1000)"},
    "an expression": {"$expr": {"$eq": [1, 1]}},
    "a regular expression": {"$regex": ".*"},
    "a list of operators": [{"$ne": None}],
    "a huge whole number": 2**70,
    "a negative number": -(2**63),
    "a fraction": 0.1,
    "a truth": True,
    "a list": ["x"],
    "an object": {"a": 1},
}
BODIES: dict[str, tuple[str, Json]] = {
    "holds": ("/v1/events/{event}/holds", {"section": "Floor", "quantity": 1}),
    "seats": ("/v1/events/{event}/holds", {"seatIds": ["{event}:00001"]}),
    "orders": ("/v1/orders", {"holdId": "hold_x"}),
    "profile": ("/v1/me", {"name": "Zoë", "email": "zoe@example.org"}),
    "webhook": ("/v1/webhooks", {"url": "https://example.org/"}),
    "move": ("/v1/events/{event}/move", {"venueName": "Elsewhere"}),
    "event": ("/v1/events", event_body()),
    "refund": ("/v1/orders/ord_x/refunds", {"seatIds": ["x"]}),
    "fees": ("/v1/admin/events/{event}/fees", {"perSeat": 1, "basisPoints": 1}),
    "member": ("/v1/team/org_x", {"role": "viewer"}),
    "key": ("/v1/api-keys", {"name": "x", "scope": "viewer"}),
}
ROLE = {"holds": "fan", "seats": "fan", "orders": "fan", "profile": "fan", "fees": "admin"}
PUT = {"profile", "fees", "member"}


async def send(api: Api, where: str, event_id: str, content: bytes) -> Any:
    path = BODIES[where][0].format(event=event_id)
    headers = api.as_role("org_one" if ROLE.get(where) != "fan" else "fan_one", "organiser")
    if role := ROLE.get(where):
        headers = api.as_role(f"{role}_one", role)
    return await api.http.request(
        "PUT" if where in PUT else "POST",
        path,
        content=content,
        headers=headers | {"Content-Type": "application/json"},
    )


@pytest.mark.parametrize("where", BODIES)
async def test_a_body_that_is_no_object_of_ours_is_refused(api: Api, where: str) -> None:
    event_id = await api.sale()
    for name, content in RAW.items():
        answer = await send(api, where, event_id, content)
        if answer.status_code == 413:
            assert_problem(answer, 413, None)
        elif (where, name) == ("refund", "ten thousand elements"):
            assert_problem(answer, 404, "not-found")  # A well-formed list, of no order.
        else:
            assert_problem(answer, 422, "validation")
        assert answer.json()["detail"], name


@pytest.mark.parametrize("where", BODIES)
async def test_an_odd_value_in_any_member_is_refused(api: Api, where: str) -> None:
    event_id = await api.sale()
    good = BODIES[where][1]
    for member, usual in good.items():
        for name, odd in ODD_VALUES.items():
            if type(odd) is type(usual) and where not in ("seats", "refund"):
                continue
            content = json.dumps(good | {member: odd}).encode()
            answer = await send(api, where, event_id, content)
            assert answer.status_code in (404, 409, 422), (member, name, answer.text)
            assert_problem(answer, answer.status_code, answer.json()["type"].split(":")[-1])


@pytest.mark.parametrize("where", BODIES)
async def test_a_member_that_is_not_ours_is_refused(api: Api, where: str) -> None:
    event_id = await api.sale()
    good = BODIES[where][1]
    for name in ("$where", "$set", "a.b", "__proto__", "constructor", "_id", "", "\0", "é", "$"):
        answer = await send(api, where, event_id, json.dumps(good | {name: 1}).encode())
        assert_problem(answer, 422, "validation")


@pytest.mark.parametrize("where", BODIES)
async def test_an_object_with_the_same_name_twice_is_refused(api: Api, where: str) -> None:
    event_id = await api.sale()
    good = json.dumps(BODIES[where][1]).replace("{event}", event_id)
    first = next(iter(BODIES[where][1]))
    value = json.dumps(BODIES[where][1][first]).replace("{event}", event_id)
    escaped = f"\\u{ord(first[0]):04x}{first[1:]}"
    for name in (first, escaped):
        answer = await send(api, where, event_id, f'{good[:-1]}, "{name}" : {value}}}'.encode())
        assert_problem(answer, 422, "validation")
        assert answer.json()["errors"] == [
            {"path": "body", "message": "has an object with the same name twice"}
        ]


async def test_a_name_in_two_objects_or_inside_a_text_is_no_repetition(api: Api) -> None:
    saved = await api.http.put(
        "/v1/me",
        content=b'{"name": "\\"name\\": \\"email\\":", "email": "zoe@example.org"}',
        headers=api.as_fan | {"Content-Type": "application/json"},
    )
    assert saved.status_code == 200, saved.text
    assert (await api.event())["priceCategories"]  # Each category has a name.


async def test_a_name_twice_deep_inside_a_large_event_is_found(api: Api) -> None:
    rows = [{"name": str(row), "seats": [f"{row}-{n}" for n in range(100)]} for row in range(200)]
    body = event_body(sections=[{"name": "A", "priceCategory": "Front", "rows": rows}])
    content = json.dumps(body)
    assert len(content) > 100_000
    odd = content.replace('{"name": "150", ', '{"name": "150", "name": "150", ')
    for sent, status in ((content, 201), (odd, 422)):
        answer = await send(api, "event", "", sent.encode())
        assert answer.status_code == status, answer.text[:500]


HOSTILE_TEXTS = [
    "'",
    '"',
    "$where",
    '{"$gt": ""}',
    "[$ne]=1",
    "../../etc/passwd",
    "%00",
    "\0",
    "\r\nX-Injected: yes",
    "<script>alert(1)</script>",
    "\N{RIGHT-TO-LEFT OVERRIDE}",
    "\N{ZERO WIDTH SPACE}",
    "x" * 1_000,
    "9" * 400,
    "NaN",
    "-1",
    "true",
]


@pytest.mark.parametrize("route", [route for route in POLICIES if not route.startswith("WS ")])
async def test_hostile_text_in_path_and_query_is_refused_or_just_text(api: Api, route: str) -> None:
    method, _, template = route.partition(" ")
    parameters = [part for part in template.split("/") if part.startswith("{")]
    for role in ("fan", "organiser", "admin"):
        for text in HOSTILE_TEXTS:
            quoted = "".join(f"%{octet:02x}" for octet in text.encode())
            path = template
            for parameter in parameters:
                path = path.replace(parameter, quoted)
            names = ("limit", "cursor", "q", "category", "from", "to", "status", "section", "mine")
            query = "&".join(f"{name}={quoted}" for name in (*names, "organiserId", "version[$gt]"))
            answer = await api.http.request(
                method, f"{path}?{query}", headers=api.as_role("somebody", role)
            )
            assert answer.status_code < 500 or template.startswith("/health"), (text, answer.text)
            assert "X-Injected" not in answer.headers
            assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "name", ["Idempotency-Key", "If-None-Match", "X-Request-Id", "traceparent", "Accept-Encoding"]
)
async def test_hostile_headers_are_refused_or_ignored(api: Api, name: str) -> None:
    event_id = await api.sale()
    for value in (b"\xff\xfe", b"x" * 10_000, b"$where", b'"', b"", b"\x01", b",,,", b'W/"'):
        for method, path in (("GET", f"/v1/events/{event_id}/seats"), ("POST", "/v1/orders")):
            answer = await api.http.request(
                method,
                path,
                json={"holdId": "hold_x"} if method == "POST" else None,
                headers=[(name.encode(), value), *_raw(api.as_fan)],
            )
            assert answer.status_code in (200, 404, 422), (value, answer.text)


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


NAMES = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "a\N{RIGHT-TO-LEFT OVERRIDE}b",
    "O'Brien & Söhne",
    "{{7*7}}",
    "${7*7}",
]


@pytest.mark.parametrize("name", NAMES)
async def test_names_with_markup_are_kept_as_they_are_and_answered_as_data(
    api: Api, name: str
) -> None:
    event_id = (await api.event(name=name, venueName=name))["eventId"]
    answer = await api.http.get(f"/v1/events/{event_id}", headers=api.as_organiser)
    assert answer.json()["name"] == name
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_control_characters_are_in_no_name(api: Api) -> None:
    for character in ("\0", "\x07", "\x1b", "\x7f", "\x85", "\u2028", "\u2029"):
        for field in ("name", "venueName"):
            answer = await api.http.post(
                "/v1/events", json=event_body(**{field: f"a{character}b"}), headers=api.as_organiser
            )
            assert_problem(answer, 422, "validation")


async def test_a_seat_id_that_is_an_operator_holds_nothing(api: Api) -> None:
    event_id = await api.sale()
    for odd in ({"$gt": ""}, {"$regex": event_id}, [seat_id(event_id, 0)]):
        answer = await api.http.post(
            f"/v1/events/{event_id}/holds", json={"seatIds": [odd]}, headers=api.as_fan
        )
        assert_problem(answer, 422, "validation")
    states = await api.http.get(f"/v1/events/{event_id}/availability")
    assert set("".join(section["states"] for section in states.json()["sections"])) == {"a"}


async def test_marks_piled_on_one_letter_hold_up_nobody(api: Api) -> None:
    """To put them into order takes a time that grows with the square of their number."""
    event_id = await api.sale()
    pile = "a" + "\u0316\u0301" * 15_000
    asked: list[tuple[str, str, Json, dict[str, str]]] = [
        ("PUT", "/v1/me", {"name": pile, "email": "a@example.org"}, api.as_fan),
        ("PUT", "/v1/me", {"name": "a", "email": f"{pile}@example.org"}, api.as_fan),
        ("POST", "/v1/sessions", {"email": pile, "password": "x"}, {}),
        ("POST", "/v1/sessions", {"email": "a@example.org", "password": pile}, {}),
        ("POST", "/v1/accounts", {"email": "a@example.org", "password": pile, "name": "a"}, {}),
        ("POST", "/v1/accounts", {"email": pile, "password": "x", "name": "a"}, {}),
        ("POST", f"/v1/events/{event_id}/holds", {"section": pile, "quantity": 1}, api.as_fan),
        ("POST", "/v1/events", event_body(name=pile * 20), api.as_organiser),
        ("POST", "/v1/events", event_body(description=pile[:9_000]), api.as_organiser),
        ("POST", f"/v1/events/{event_id}/move", {"venueName": pile}, api.as_organiser),
        ("POST", "/v1/api-keys", {"name": pile, "scope": "viewer"}, api.as_organiser),
        ("GET", f"/v1/events?category={pile[:5_000]}", {}, {}),
        ("GET", f"/v1/events?q={pile[:200]}", {}, {}),
    ]
    for method, path, body, headers in asked:
        began = time.perf_counter()
        answer = await api.http.request(
            method, path, json=body if method != "GET" else None, headers=headers
        )
        assert answer.status_code in (200, 401, 413, 422), answer.text[:300]
        # Without its bound each takes a second at the least; a log-in hashes a password.
        assert time.perf_counter() - began < 0.9, path


async def test_a_word_with_all_the_marks_a_language_has_is_taken(api: Api) -> None:
    name = "Việt\u0323\u0302 \u05e9\u05c1\u05b8\u05c1\u05bc\u0591 \u0e01\u0e33\u0e48"
    event = await api.event(name=name)
    assert event["name"]


async def test_an_event_of_too_many_seats_is_refused_before_each_is_looked_at(api: Api) -> None:
    rows = [{"name": str(number), "count": 79_999} for number in range(20_000)]
    body = event_body(sections=[{"name": "A", "priceCategory": "Front", "rows": rows}])
    began = time.perf_counter()
    answer = await api.http.post("/v1/events", json=body, headers=api.as_organiser)
    assert_problem(answer, 422, "validation")
    assert time.perf_counter() - began < 2
