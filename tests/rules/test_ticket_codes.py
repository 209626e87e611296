"""The code of a ticket is believed for its signature alone, and only for that."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.ticket_codes import Admission, BadCode, Signer, json_web_key, public_keys, read

SIGNER = Signer(b"k" * 32)
ADMISSION = Admission(f"tkt_{'ab' * 16}", f"evt_{'cd' * 16}", f"evt_{'cd' * 16}:00042")
CODE = SIGNER.sign(ADMISSION)

identifiers = st.binary(min_size=16, max_size=16).map(bytes.hex)


@given(ticket=identifiers, event=identifiers, ordinal=st.integers(0, 99_999))
def test_what_is_signed_is_read_again(ticket: str, event: str, ordinal: int) -> None:
    admission = Admission(f"tkt_{ticket}", f"evt_{event}", f"evt_{event}:{ordinal:05d}")
    assert read(SIGNER.sign(admission), SIGNER.public_keys) == admission


def test_a_gate_needs_only_what_it_downloaded() -> None:
    downloaded = [json_web_key(name, key) for name, key in SIGNER.public_keys.items()]
    assert [set(key) for key in downloaded] == [{"kty", "crv", "alg", "use", "kid", "x"}]
    assert read(CODE, public_keys(downloaded)) == ADMISSION


def test_a_scanner_that_types_small_letters_and_a_newline_is_understood() -> None:
    assert read(f"{CODE.lower()}\r\n", SIGNER.public_keys) == ADMISSION


def test_a_qr_code_can_hold_it_in_the_compact_way() -> None:
    assert set(CODE) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567T1")
    assert len(CODE) <= 178  # Version 7 with error correction M.


@given(data=st.data())
def test_no_character_can_be_changed(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(CODE) - 1))
    other = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
    changed = CODE[:place] + other + CODE[place + 1 :]
    if changed == CODE:
        return
    with pytest.raises(BadCode):
        read(changed, SIGNER.public_keys)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 40, len(CODE) - 1])
def test_a_part_of_a_code_is_none(cut: int) -> None:
    with pytest.raises(BadCode):
        read(CODE[:cut], SIGNER.public_keys)


@given(text=st.text())
def test_any_other_text_is_none(text: str) -> None:
    for form in (text, f"T1{text}"):
        with pytest.raises(BadCode):
            read(form, SIGNER.public_keys)


def test_a_code_of_another_key_is_none() -> None:
    with pytest.raises(BadCode):
        read(Signer(b"x" * 32).sign(ADMISSION), SIGNER.public_keys)


def test_a_code_whose_key_id_was_changed_to_ours_is_none() -> None:
    def octets(code: str) -> bytes:
        body = code.removeprefix("T1")
        return base64.b32decode(body + "=" * (-len(body) % 8))

    ours, theirs = octets(CODE), octets(Signer(b"x" * 32).sign(ADMISSION))
    forged = "T1" + base64.b32encode(ours[:4] + theirs[4:]).decode().rstrip("=")
    with pytest.raises(BadCode):
        read(forged, SIGNER.public_keys)


def test_after_a_change_of_keys_printed_tickets_are_still_good() -> None:
    [former] = SIGNER.public_keys.values()
    successor = Signer(b"n" * 32, [former.public_bytes_raw()])
    assert read(CODE, successor.public_keys) == ADMISSION
    assert successor.sign(ADMISSION) != CODE
    assert read(successor.sign(ADMISSION), successor.public_keys) == ADMISSION


def test_a_former_key_that_is_withdrawn_ends_its_codes() -> None:
    with pytest.raises(BadCode):
        read(CODE, Signer(b"n" * 32).public_keys)


@pytest.mark.parametrize(
    "wrong",
    [
        Admission("tkt_abcd", ADMISSION.event_id, ADMISSION.seat_id),
        Admission("tkt_nobody", ADMISSION.event_id, ADMISSION.seat_id),
        Admission(ADMISSION.ticket_id, f"evt_{'ee' * 16}", ADMISSION.seat_id),
    ],
)
def test_nothing_is_signed_that_this_product_never_named(wrong: Admission) -> None:
    with pytest.raises(ValueError, match=r"not an identifier|hexadecimal|another event"):
        SIGNER.sign(wrong)
