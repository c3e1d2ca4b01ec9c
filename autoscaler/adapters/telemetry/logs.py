"""Log lines on stderr: JSON for machines, aligned text on a terminal. Lines of libraries take the same form."""

from __future__ import annotations

import logging
import os
from typing import IO, Any, Literal

import structlog

LogFormat = Literal["json", "console"]


def configure(log_format: LogFormat | None, stream: IO[str], *, debug: bool = False) -> None:
    """Send this program's and its libraries' log lines to a stream. None: JSON unless the stream is a terminal."""
    terminal = stream.isatty()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "console" or (log_format is None and terminal):
        final: list[Any] = [structlog.dev.ConsoleRenderer(colors=terminal and "NO_COLOR" not in os.environ)]
    else:
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if debug else logging.WARNING)  # libraries speak up only when something is wrong
    logging.getLogger("autoscaler").setLevel(logging.DEBUG if debug else logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def logger() -> structlog.stdlib.BoundLogger:
    """The program's own logger."""
    found: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("autoscaler")
    return found
