"""Claim checks: payloads that do not fit a message, kept in pieces in a JetStream stream."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import Any, Final

from .bus import Bus
from .errors import Internal, InvalidArguments, NotFound, Overloaded, ToolError, Unavailable, Upstream
from .wire import headers, jsontext
from .wire.limits import MAX_BLOB, MAX_CHUNKS
from .wire.refs import BlobRef

_IN_FLIGHT: Final = 8
_PATIENCE: Final = 1.0  # seconds for which what was just put may be unknown to the replica that is asked
_ANSWER: Final = 5.0
_FULL: Final = (10047, 10077, 10122)  # JetStream's codes for a stream or store that takes no more
_EXISTS: Final = 10058


async def put(bus: Bus, data: bytes, ttl: int) -> BlobRef:
    """Store data under a claim check for ``ttl`` seconds, at most a day."""
    if len(data) > MAX_BLOB:
        raise InvalidArguments(f"payload of {len(data)} bytes is larger than the {MAX_BLOB} that a claim check may hold")
    size = bus.inline
    chunks = max(1, -(-len(data) // size))
    if chunks > MAX_CHUNKS:
        raise InvalidArguments(f"payload of {len(data)} bytes is {chunks} pieces, at most {MAX_CHUNKS} are allowed")
    ref = BlobRef(secrets.token_hex(11), len(data), chunks, hashlib.sha256(data).hexdigest())
    try:
        await _put_all(bus, ref, data, size, ttl)
    except Unavailable:
        await _create_stream(bus)
        await _put_all(bus, ref, data, size, ttl)
    return ref


async def _put_all(bus: Bus, ref: BlobRef, data: bytes, size: int, ttl: int) -> None:
    room = asyncio.Semaphore(_IN_FLIGHT)
    # Straight to the server: these speak to JetStream, so they are not among the headers that respond lets out.
    header = {"Nats-Expected-Last-Subject-Sequence": "0", "Nats-TTL": f"{ttl}s"}

    async def one(i: int) -> None:
        async with room:
            m = await bus.request(bus.subjects.blob(ref.id, i), data[i * size : (i + 1) * size], header, _ANSWER)
        _refusal(m.data)

    await _all(one, ref.chunks)


async def get(bus: Bus, ref: BlobRef) -> bytes:
    """Fetch and verify what a claim check stands for. NotFound where it ran out or was never whole."""
    room = asyncio.Semaphore(_IN_FLIGHT)
    parts: list[bytes] = [b""] * ref.chunks
    total = 0

    async def one(i: int) -> None:
        nonlocal total
        async with room:
            parts[i] = await _piece(bus, bus.subjects.blob(ref.id, i))
        total += len(parts[i])
        if total > ref.size:
            raise Internal(f"claim check: more is stored than the {ref.size} bytes that it says")

    await _all(one, ref.chunks)
    data = b"".join(parts)
    if len(data) != ref.size:
        raise Internal(f"claim check: {len(data)} bytes are stored, expected {ref.size}")
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise Internal("claim check: the digest of what is stored is another than the claim check says")
    return data


async def _all(one: Any, n: int) -> None:
    """Run ``one`` for 0 to n-1. The first that fails stops the others."""
    tasks = [asyncio.create_task(one(i)) for i in range(n)]
    try:
        await asyncio.gather(*tasks)
    except asyncio.TimeoutError as e:
        raise Upstream(f"claim check: {e}") from None
    finally:
        for t in tasks:
            t.cancel()


async def _piece(bus: Bus, subject: str) -> bytes:
    end = asyncio.get_running_loop().time() + _PATIENCE
    wait = 0.005
    stream = bus.subjects.blob_stream()
    while True:
        missing: ToolError
        try:
            m = await bus.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", timeout=_ANSWER)
            status = headers.get(m.headers, "Status")
            if status == "404":
                missing = NotFound("claim check: a piece is not there; it ran out, or was never stored whole")
            elif status:
                raise Upstream(f"claim check: status {status}: {headers.get(m.headers, 'Description')}")
            elif headers.get(m.headers, "Nats-Subject") != subject:
                raise Internal("claim check: the answer is about another piece")
            else:
                return m.data
        except Unavailable:
            missing = Unavailable(f"payloads above {bus.inline} bytes need JetStream with the stream {stream}")
        if asyncio.get_running_loop().time() > end:
            raise missing
        await asyncio.sleep(wait)
        wait = min(2 * wait, 0.1)


def _refusal(data: bytes) -> None:
    """Raise what JetStream's answer says, if it is an error."""
    try:
        answer = jsontext.loads(data)
        error = answer.get("error") if isinstance(answer, dict) else {"description": "no object"}
    except ValueError as e:
        error = {"description": str(e)}
    if not error:
        return
    text = f"{error.get('description', '')} ({error.get('err_code', '')})"
    if error.get("err_code") in _FULL:
        raise Overloaded(f"claim checks are full; try later: {text}")
    raise Upstream(f"claim check: JetStream says {text}")


async def _create_stream(bus: Bus) -> None:
    """Make the stream, as the executors would, where nobody has yet."""
    name = bus.subjects.blob_stream()
    config = {
        "name": name,
        "description": "toolbus: payloads that are too large for a message",
        "subjects": [bus.subjects.blobs()],
        "storage": "file",
        "retention": "limits",
        "num_replicas": 3 if bus.nc._server_info.get("cluster") else 1,
        "discard": "new",
        "max_bytes": 1 << 30,
        "max_age": 24 * 3600 * 10**9,
        "max_msgs": -1,
        "max_consumers": -1,
        "max_msg_size": -1,
        "allow_direct": True,
        "allow_msg_ttl": True,
    }
    try:
        m = await bus.request(f"$JS.API.STREAM.CREATE.{name}", jsontext.dumps(config), timeout=_ANSWER)
    except (Unavailable, asyncio.TimeoutError):
        raise Unavailable(
            f"payloads above {bus.inline} bytes need JetStream with the stream {name}, and nothing answers for it; "
            "enable JetStream, or send less"
        ) from None
    answer = jsontext.loads(m.data)
    error = answer.get("error") if isinstance(answer, dict) else None
    if error and error.get("err_code") != _EXISTS:
        raise Upstream(f"create stream {name}: {error.get('description', '')}")
