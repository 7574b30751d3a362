"""Shorter ways in and out of nats-py, for what every call takes: its message, and its answer.

nats-py puts a message into a queue, from which a task takes it for its handler, and a publication passes through four
coroutines. Here a handler is called where the message is read, and a message without headers goes straight into the buffer
that nats-py writes from, so that it keeps its place among all others. A nats-py whose inside is not as we know it is left
to its own ways.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from nats.aio.client import DEFAULT_FLUSH_TIMEOUT
from nats.aio.client import Client as NATSClient
from nats.aio.msg import Msg

log = logging.getLogger("toolbus")

_MAX_USUAL: Final = 4 << 10  # bytes of headers; the names in more are not remembered, since there may be a megabyte of them
_NEEDED: Final = ("_status", "_pending", "_pending_data_size", "_flush_queue", "_flusher_task", "_max_payload", "stats")


class _Handler:
    """Takes the place of the future in a subscription that waits for one. nats-py gives it each message at once."""

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[Msg], None]) -> None:
        self._take = take

    def cancelled(self) -> bool:
        return False

    def set_result(self, m: Msg) -> None:
        try:
            self._take(m)
        except Exception:
            log.exception("message on %s not handled", m.subject)


class _Sent:
    """Takes the place of the future that a flush is waited for with, where nobody waits."""

    __slots__ = ()

    def done(self) -> bool:
        return True


class Client(NATSClient):
    """nats-py's client, which reads the names of headers once and not in each message, and flushes all there is."""

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:
        """Wait until the server has seen all that was published, and all that it had sent by then was handled.

        nats-py writes the PING past what waits in its buffer, so that the first answer says little; the second PING comes
        after all that the first one overtook. Without it a subscription that is drained would be forgotten before the
        server has heard that it ends, and what came for it in between would be lost.
        """
        await super().flush(timeout)
        await super().flush(timeout)

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        if len(raw) > _MAX_USUAL:
            return NATSClient._parse_header_lines(raw)
        found: dict[str, str] = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon and (known := _header_name(name)) is not None:
                found[known] = value.strip().decode("utf-8", "replace")
        return found


@lru_cache(1024)
def _header_name(raw: bytes) -> str | None:
    """What nats-py makes of a name; None where it leaves the header out."""
    parsed = NATSClient._parse_header_lines(raw + b":")
    return next(iter(parsed), None)


_SENT: Final = cast("asyncio.Future[Any]", _Sent())


def handler(take: Callable[[Msg], None]) -> asyncio.Future[Msg]:
    """What to give ``nats.Client.subscribe`` as its future, so that ``take`` is called for each message."""
    return cast("asyncio.Future[Msg]", _Handler(take))


class Outlet:
    """Puts messages into the buffer of one client. In one whose inside it does not know it puts nothing."""

    __slots__ = ("_known", "_nc")

    def __init__(self, nc: NATSClient) -> None:
        self._nc = nc
        self._known = all(hasattr(nc, name) for name in _NEEDED)

    def put(self, subject: str, data: bytes) -> bool:
        """Publish now; the subject must have been checked. False where nothing was done: then ``nats.Client.publish`` does
        it, or says why not.
        """
        nc = self._nc
        if not self._known or nc._status != NATSClient.CONNECTED:
            return False
        queue, flusher = nc._flush_queue, nc._flusher_task
        if queue is None or flusher is None or flusher.done() or len(data) > nc._max_payload:
            return False
        command = b"PUB %b  %d\r\n%b\r\n" % (subject.encode(), len(data), data)
        nc._pending.append(command)
        nc._pending_data_size += len(command)
        nc.stats["out_msgs"] += 1
        nc.stats["out_bytes"] += len(data)
        if queue.empty():
            queue.put_nowait(_SENT)
        return True
