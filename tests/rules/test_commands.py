"""What the commands say to arguments that can't be used."""

import sys
from collections.abc import Callable

import pytest

from scripts import token
from ticketing.api import __main__ as api


def said(
    main: Callable[[], int],
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """The last line of what a command says when it ends for wrong use."""
    monkeypatch.setattr(sys, "argv", ["command", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("hours", ["nan", "inf", "1e12", "-1", "0", "long"])
def test_a_token_is_valid_for_a_time_that_can_be_told(
    hours: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--role", "fan", "--subject", "fan_ada", "--hours", hours]
    sentence = said(token.main, arguments, monkeypatch, capsys)
    assert sentence == (
        "scripts/token: error: argument --hours: must be a number above 0 and at most 87600"
    )


@pytest.mark.parametrize("subject", ["", " "])
def test_a_token_is_somebodys(
    subject: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = said(token.main, ["--role", "fan", "--subject", subject], monkeypatch, capsys)
    assert sentence == "scripts/token: error: argument --subject: must not be empty"


def test_the_api_takes_no_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = said(api.main, ["--port", "1"], monkeypatch, capsys)
    assert sentence == "python -m ticketing.api: error: unrecognized arguments: --port 1"
