"""Work that blocks, away from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """The function's result, from a daemon thread.

    The threads of an executor are waited for when the process ends: a Prometheus that hangs would hold that up.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def work() -> None:
        result, failure = None, None
        try:
            result = function(*args)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name="prometheus", daemon=True).start()
    return await future
