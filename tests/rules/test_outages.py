"""Which errors say that the database is away, so that nobody's request is to blame."""

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    WriteConcernError,
)

from ticketing.mongo import is_outage

STEPPED_DOWN = {"code": 11602, "codeName": "InterruptedDueToReplStateChange"}
DUPLICATE = {"index": 0, "code": 11000}


def bulk(
    write_errors: list[dict[str, object]], concerns: list[dict[str, object]]
) -> BulkWriteError:
    return BulkWriteError({"writeErrors": write_errors, "writeConcernErrors": concerns})


@pytest.mark.parametrize(
    "error",
    [
        AutoReconnect("gone"),
        NetworkTimeout("late"),
        ExecutionTimeout("late", 50),
        WriteConcernError("stepped down", 189),
        bulk([], [STEPPED_DOWN]),
    ],
)
def test_a_database_that_is_away_is_an_outage(error: Exception) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        DuplicateKeyError("there", 11000),
        OperationFailure("no", 121),
        bulk([DUPLICATE], []),
        # One of its members has caused a part of it.
        bulk([DUPLICATE], [STEPPED_DOWN]),
        ValueError("not the database's"),
    ],
)
def test_what_a_request_has_caused_is_none(error: Exception) -> None:
    assert not is_outage(error)
