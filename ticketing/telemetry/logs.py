"""Log records: one JSON object a line in production, plain lines in development.

Each has the id of the request and of the trace it belongs to. What a record says is for operators:
ids of things, never an e-mail address, a name, a token or a code of a ticket.
"""

import logging
import sys
from contextvars import ContextVar
from typing import Any

import structlog
from pymongo.errors import OperationFailure, PyMongoError

# The id of the request that is being answered, and its traceparent, as they are on the wire.
belongs_to: ContextVar[tuple[bytes, bytes] | None] = ContextVar("belongs_to", default=None)

# They log every address that is asked, and one may have a secret in it; or each sweep that an
# outage made late, of which the worker itself tells.
_QUIET = {"httpx": logging.WARNING, "httpcore": logging.WARNING, "apscheduler": logging.ERROR}

SENTENCE_CHARACTERS_MAX = 300

Record = structlog.typing.EventDict


def begin(*, as_json: bool, level: int = logging.INFO) -> None:
    """Let every record of this process go to standard error, as one line each."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _place,
    ]
    rendered: list[structlog.typing.Processor] = (
        [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            _spare_documents,
            structlog.processors.JSONRenderer(),
        ]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)


def _place(_logger: Any, _method: str, record: Record) -> Record:
    """Add what the record belongs to."""
    if (found := belongs_to.get()) is not None:
        request_id, traceparent = found
        record["request_id"] = request_id.decode()
        record["trace_id"] = traceparent.split(b"-")[1].decode()
    return record


def _spare_documents(_logger: Any, _method: str, record: Record) -> Record:
    """Leave out what the database said of an operation: it quotes the documents concerned."""
    for raised in record.get("exception", ()):
        if isinstance(raised, dict) and raised["exc_type"] in _QUOTING:
            raised["exc_value"] = "(left out)"
    return record


def named(error: PyMongoError) -> str:
    """An error of the driver as a log may show it: by its name and code, without documents."""
    kind = type(error).__name__
    if isinstance(error, OperationFailure):
        return f"{kind} {error.code} {(error.details or {}).get('codeName', '')}".rstrip()
    # The rest is a description of every server the driver knows.
    sentence = str(error).partition(", Timeout:")[0].partition(", Topology")[0]
    return f"{kind}: {sentence[:SENTENCE_CHARACTERS_MAX]}"


def _with_its_kinds(kind: type[Exception]) -> set[str]:
    return {kind.__name__}.union(*(_with_its_kinds(each) for each in kind.__subclasses__()))


_QUOTING = _with_its_kinds(OperationFailure)
