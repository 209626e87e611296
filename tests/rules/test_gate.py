"""A gate without the network lets in what is genuine, of its event, not void, and once."""

import io
import json
import sys
from pathlib import Path

import pytest

from scripts import gate
from ticketing.ticket_codes import Admission, Signer, json_web_key

SIGNER = Signer(b"k" * 32)
EVENT, OTHER = f"evt_{'cd' * 16}", f"evt_{'ee' * 16}"


def code(ticket: str, event: str = EVENT) -> str:
    return SIGNER.sign(Admission(f"tkt_{ticket * 16}", event, f"{event}:00007"))


def test_each_code_gets_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, void = tmp_path / "keys", tmp_path / "void"
    keys.write_text(
        json.dumps({"keys": [json_web_key(*each) for each in SIGNER.public_keys.items()]})
    )
    pages = [[], [{"ticketId": f"tkt_{'bb' * 16}", "seatId": "x"}]]
    void.write_text("\n".join(json.dumps({"items": page}) for page in pages))
    scanned = [code("aa"), code("bb"), code("aa"), code("cc", OTHER), "T1NONSENSE", "", code("dd")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(scanned) + "\n"))
    monkeypatch.setattr(
        sys, "argv", ["gate", "--event", EVENT, "--keys", str(keys), "--void", str(void)]
    )
    assert gate.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        f"in: tkt_{'aa' * 16} for {EVENT}:00007",
        f"out: tkt_{'bb' * 16} is void",
        f"out: tkt_{'aa' * 16} came in already",
        f"out: a ticket of another event, {OTHER}",
        "out: not a ticket of ours",
        "out: not a ticket of ours",
        f"in: tkt_{'dd' * 16} for {EVENT}:00007",
    ]


@pytest.mark.parametrize("keys", [None, "", "{}", '{"keys": [{"x": "AAAA"}]}', '{"keys": 1}'])
def test_a_gate_without_its_keys_does_not_open(
    keys: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if keys is not None:
        (tmp_path / "keys").write_text(keys)
    (tmp_path / "void").write_text("")
    files = ["--keys", str(tmp_path / "keys"), "--void", str(tmp_path / "void")]
    monkeypatch.setattr(sys, "argv", ["gate", "--event", EVENT, *files])
    with pytest.raises(SystemExit) as ended:
        gate.main()
    assert ended.value.code == 2
    assert "can't be read" in capsys.readouterr().err
