"""What is served: pages without anything inline, files that are kept but asked about."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from ticketing import web

STATIC = Path(web.__file__).parent / "static"
PAGES = ("/organiser/events/evt_x", "/pay/pay_x", "/tickets", "/account")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(Litestar(web.route_handlers, openapi_config=None)) as client:
        yield client


@pytest.mark.parametrize("path", [*PAGES, "/static/dashboard.js"])
def test_every_answer_forbids_what_it_does_not_need(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_nothing_inline_and_asks_nobody_else(client, path):
    answer = client.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    text = answer.text
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    addresses = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert addresses
    for address in addresses:
        if not address.startswith("#"):
            assert client.get(address).status_code == 200, address


def test_no_script_writes_markup_or_asks_elsewhere():
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text), path
        hosts = set(re.findall(r"https?://[^\"'`\s/]+", text))
        assert hosts <= {"http://www.w3.org"}, path


def test_every_imported_script_is_served(client):
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "([^"]+)"', path.read_text()):
            assert client.get(name).headers["content-type"] == "text/javascript; charset=utf-8"


def test_a_file_that_the_browser_has_is_not_sent_again(client):
    first = client.get("/static/base.css")
    etag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = client.get("/static/base.css", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    changed = client.get("/static/base.css", headers={"If-None-Match": '"other"'})
    assert (changed.status_code, changed.content) == (200, first.content)


@pytest.mark.parametrize(
    "name", ["nothing.js", "dashboard.html", "..%2f__init__.py", "%2e%2e/__init__.py", ""]
)
def test_nothing_but_the_files_is_served(client, name):
    assert client.get(f"/static/{name}").status_code == 404
