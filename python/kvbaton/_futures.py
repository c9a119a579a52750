"""Setting the results of asyncio futures, on their loop's thread."""

import asyncio


def set_result(future: "asyncio.Future[object]", value: object, error: BaseException | None) -> None:
    """Sets one of both, unless nobody waits any more."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
