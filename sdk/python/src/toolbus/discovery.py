"""NATS service discovery: ``nats micro ls`` lists each worker as an instance, with an endpoint for each tool."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nats.aio.msg import Msg

from . import manifest
from .errors import ToolError
from .version import SDK, VERSION
from .wire import jsontext
from .wire.errors import truncate
from .wire.subjects import QUEUE_WORKERS

if TYPE_CHECKING:
    from .worker import Worker

SERVICE: Final = "toolbus-worker"


@dataclass(slots=True)
class _Count:
    calls: int = 0
    errors: int = 0
    busy: float = 0.0
    last: str = ""


class Discovery:
    """Answers $SRV.PING, INFO and STATS with the records of NATS services."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._started = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        self._counts = {name: _Count() for name in worker.tools}
        self._identity = {
            "name": SERVICE,
            "id": worker.id,
            "version": VERSION,
            "metadata": {"tb.worker": worker.id, "tb.version": "1", "tb.sdk": SDK},
        }
        self._info = jsontext.dumps(
            {
                **self._identity,
                "type": "io.nats.micro.v1.info_response",
                "description": "tools on the bus",
                "endpoints": self._endpoints(),
            }
        )

    def note(self, tool: str, took: float, fault: ToolError | None) -> None:
        """Count a call that ended."""
        c = self._counts[tool]
        c.calls += 1
        c.busy += took
        if fault is not None:
            c.errors += 1
            c.last = truncate(f"{fault.kind}: {fault.message}", 200)

    def subjects(self) -> dict[str, Callable[[Msg], None]]:
        """What to listen to, and what answers there."""
        ping = jsontext.dumps({**self._identity, "type": "io.nats.micro.v1.ping_response"})
        records: dict[str, Callable[[], bytes]] = {
            "PING": lambda: ping,
            "INFO": lambda: self._info,
            "STATS": self._stats,
        }
        return {
            f"$SRV.{verb}{who}": lambda m, record=record: self._worker.reply(m.reply, None, record())  # type: ignore[misc]
            for verb, record in records.items()
            for who in ("", f".{SERVICE}", f".{SERVICE}.{self._worker.id}")
        }

    def _endpoints(self) -> list[dict[str, Any]]:
        """The tools with their manifests, as long as all fit into half a message; describe has them all."""
        room = self._worker.bus.inline // 2
        found = []
        for t in self._worker.tools.values():
            metadata = {"tb.digest": t.digest}
            text = manifest.canonical(t.manifest)
            room -= 2 * len(text)
            if room > 0:
                metadata["tb.manifest"] = text.decode()
            found.append({**self._endpoint(t.name), "metadata": metadata})
        return found

    def _endpoint(self, name: str) -> dict[str, Any]:
        return {"name": name, "subject": self._worker.bus.subjects.call(name), "queue_group": QUEUE_WORKERS}

    def _stats(self) -> bytes:
        s = self._worker.stats
        load = {"running": s.running, "capacity": s.capacity, "leaked": s.leaked, "draining": s.draining}
        endpoints = [
            {
                **self._endpoint(name),
                "num_requests": c.calls,
                "num_errors": c.errors,
                "last_error": c.last,
                "data": load,
                "processing_time": int(c.busy * 1e9),
                "average_processing_time": int(c.busy * 1e9) // c.calls if c.calls else 0,
            }
            for name, c in self._counts.items()
        ]
        return jsontext.dumps(
            {
                **self._identity,
                "type": "io.nats.micro.v1.stats_response",
                "started": self._started,
                "endpoints": endpoints,
            }
        )
