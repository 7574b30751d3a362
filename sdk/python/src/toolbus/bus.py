"""The connection to NATS, as a worker and a client need it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import nats
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
)

from . import shortcut
from .errors import Denied, InvalidArguments, Overloaded, Unavailable
from .wire import headers
from .wire.errors import WireError, quote
from .wire.limits import MAX_INLINE_SLACK, MAX_SUBJECT
from .wire.subjects import ReplyRule, Subjects

log = logging.getLogger("toolbus")

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
_MAX_UNSENT: Final = 64 << 20  # bytes that wait for the socket
_REFUSED: Final = re.compile(r"permissions violation for (subscription|publish) to \"([^\"]*)\"", re.IGNORECASE)


class Bus:
    """One connection. Make it with ``connect``. It belongs to the event loop that made it."""

    def __init__(self, subjects: Subjects, worker_id: str) -> None:
        self.nc = shortcut.Client()
        self._outlet = shortcut.Outlet(self.nc)
        self.id = worker_id
        self.subjects = subjects
        self.closed = asyncio.Event()
        self.on_reconnect: list[Callable[[], None]] = []
        self.refused: dict[str, str] = {}
        """How the server refused a subject to this user, by the subject."""
        self._inbox = f"_INBOX_{worker_id}"
        self._replies = ReplyRule(subjects, f"{subjects.root}reply", f"{subjects.root}res", self._inbox)
        self._dialling: asyncio.Task[None] | None = None
        self._most = self._inline = 0
        self._tries = 0
        self._failure: Exception | None = None

    @classmethod
    async def connect(
        cls, url: str = "", *, name: str = "toolbus", prefix: str = "", worker_id: str = "", **options: Any
    ) -> Bus:
        """Connect, or raise Unavailable (nobody answers) or Denied (the credentials are refused).

        ``url`` may name several servers, with commas; without one it is what TOOLBUS_NATS_URL says, or else
        nats://127.0.0.1:4222. ``options`` are those of ``nats.connect``: credentials, TLS and the like. Each server is
        tried once; a connection that is lost later is made again for as long as it takes.
        """
        bus = cls(Subjects(prefix), worker_id or secrets.token_hex(8))
        where = url or os.environ.get("TOOLBUS_NATS_URL") or DEFAULT_URL
        servers = [s.strip() for s in where.split(",") if s.strip()]
        bus._tries = len(servers)
        settings: dict[str, Any] = {
            "servers": servers,
            "name": name,
            "connect_timeout": 5,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2,
            "ping_interval": 2,  # a half-open connection is found within 6 s
            "max_outstanding_pings": 2,
            # What is published while the connection is away fails now, since it must not be sent later. It also means
            # that publishing never waits: see publish.
            "pending_size": 0,
            "inbox_prefix": bus._inbox,
            "error_cb": bus._error,
            "disconnected_cb": bus._disconnected,
            "reconnected_cb": bus._reconnected,
            "closed_cb": bus._closed,
        }
        bus._dialling = asyncio.create_task(bus.nc.connect(**(settings | options)))
        try:
            await bus._dialling
        except asyncio.CancelledError:
            if bus._tries > 0:  # it is we who are cancelled
                raise
        except (OSError, asyncio.TimeoutError, nats.errors.Error) as e:
            bus._failure = e
        finally:
            bus._dialling = None
        if bus.nc.is_connected:
            return bus
        await bus.nc.close()
        where = ", ".join(servers)
        if "authorization" in str(bus._failure).lower():
            raise Denied(f"NATS at {where} refused the credentials: {bus._failure}") from bus._failure
        raise Unavailable(
            f"cannot connect to NATS at {where}: {bus._failure}: start a server, for one with `executor dev`, "
            "or say where one is"
        ) from bus._failure

    @property
    def inline(self) -> int:
        """The largest payload in bytes that travels in a message; what is larger goes by claim check."""
        most = self.nc.max_payload
        if most != self._most:  # another server
            self._most, self._inline = most, max(most - MAX_INLINE_SLACK, most // 2)
        return self._inline

    @property
    def connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self.nc.is_connected

    def publish(self, subject: str, data: bytes = b"", header: Mapping[str, str] | None = None, reply: str = "") -> None:
        """Publish now, or raise: Unavailable while the connection is away, InvalidArguments for what cannot be sent,
        Overloaded where the server has long not read what we send. Only headers that may go out do.

        It does not wait, so the messages of one worker keep their order without a lock.
        """
        _check_subject(subject)
        if reply:
            _check_subject(reply)
        out: dict[str, Any] | None = None
        if header:
            out = headers.outbound(header)
            try:
                headers.check(out)
            except WireError as e:
                raise InvalidArguments(f"message to {subject}: {e}") from None
        if self.nc.pending_data_size > _MAX_UNSENT:
            raise Overloaded(f"{self.nc.pending_data_size} bytes wait for the server to read them")
        if out is None and not reply and self._outlet.put(subject, data):
            return
        step = self.nc.publish(subject, data, reply=reply, headers=out)
        try:
            # nats-py puts the message into its buffer before it may wait, and with pending_size 0 it waits for nothing.
            # So one step is all, and what is sent first is first on the wire.
            step.send(None)
        except StopIteration:
            return
        except MaxPayloadError:
            raise InvalidArguments(
                f"payload of {len(data)} bytes is larger than the {self.nc.max_payload} that the server takes"
            ) from None
        except (OutboundBufferLimitError, ConnectionClosedError, ConnectionDrainingError) as e:
            raise Unavailable(f"there is no connection to NATS: {e}") from None
        except (nats.errors.Error, UnicodeEncodeError) as e:
            raise InvalidArguments(f"message to {quote(subject)}: {e}") from None
        step.close()

    def respond(self, reply: str, data: bytes = b"", header: Mapping[str, str] | None = None) -> None:
        """``publish`` to a reply subject. It refuses one that is not for replies, since who asks chooses it."""
        if not self._replies.allows(reply, ""):
            raise Denied(f"{quote(reply)} is no subject for a reply")
        self.publish(reply, data, header)

    async def subscribe(self, subject: str, take: Callable[[Msg], None], queue: str = "") -> Subscription:
        """Call ``take`` for each message of a subject, one after the other, in the order in which all messages come."""
        return await self.nc.subscribe(subject, queue=queue, future=shortcut.handler(take))

    async def request(
        self, subject: str, data: bytes = b"", header: Mapping[str, str] | None = None, timeout: float = 5.0
    ) -> Msg:
        """Ask, and wait for one answer. Unavailable where nobody listens, TimeoutError where nobody answers."""
        try:
            return await self.nc.request(subject, data, timeout=timeout, headers=dict(header) if header else None)
        except NoRespondersError:
            raise Unavailable(f"nobody answers on {subject}") from None
        except nats.errors.TimeoutError:
            raise asyncio.TimeoutError(f"no answer on {subject} within {timeout} s") from None
        except nats.errors.Error as e:
            raise Unavailable(f"ask on {subject}: {e}") from None

    async def flush(self, timeout: float = 10.0) -> None:
        """Wait until the server has seen all that was published."""
        try:
            await self.nc.flush(timeout=int(max(1, timeout)))
        except (nats.errors.Error, asyncio.TimeoutError) as e:
            raise Unavailable(f"flush: {e}") from None

    async def drain(self, subs: list[Subscription], timeout: float) -> None:
        """Give subscriptions back, all at once, and wait until what had come was handled."""

        async def one(sub: Subscription) -> None:
            try:
                drained: Awaitable[None] = sub.drain()  # type: ignore[no-untyped-call]
                await asyncio.wait_for(drained, max(0.1, timeout))
            except (nats.errors.Error, asyncio.TimeoutError) as e:
                log.warning("subscription to %s not drained: %s", sub.subject, e or type(e).__name__)

        await asyncio.gather(*(one(s) for s in subs))

    async def close(self) -> None:
        """Close the connection. What was published is sent first, where there is a connection."""
        if not self.nc.is_closed:
            await self.nc.close()

    async def _error(self, e: Exception) -> None:
        if self._dialling is not None:
            self._failure = e
            self._tries -= 1
            if self._tries <= 0 and not self.nc.is_connected:
                self._dialling.cancel()
            return
        if m := _REFUSED.search(str(e)):
            if len(self.refused) < 1000:
                self.refused[m[2]] = str(e)
            log.warning("NATS refused a subject; allow it in the permissions of this user: %s", e)
        else:
            log.warning("NATS: %s", e or type(e).__name__)

    async def _disconnected(self) -> None:
        if not self.nc.is_closed:
            log.warning("lost the connection to NATS; trying again until it is back")

    async def _reconnected(self) -> None:
        log.info("reconnected to NATS")
        for f in list(self.on_reconnect):
            f()

    async def _closed(self) -> None:
        self.closed.set()


def _check_subject(subject: str) -> None:
    """Refuse what would be more, or less, than a subject on the wire. Older versions of nats-py do not."""
    if not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable() or " " in subject:
        raise InvalidArguments(f"subject {quote(subject)}: expected 1 to {MAX_SUBJECT} characters without blanks")
