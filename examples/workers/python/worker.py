"""A worker in Python that knows nothing of Toolbus, only NATS: docs/protocol.md at level plain. sdk/python has the rest."""

import asyncio
import json
import os
import signal
from typing import Any

import nats


def size(args: dict[str, Any]) -> dict[str, Any]:
    return {"bytes": len(args["data"].encode())}


async def main() -> None:
    nc = await nats.connect(os.environ.get("TOOLBUS_NATS_URL") or "nats://127.0.0.1:4222", max_reconnect_attempts=-1)
    prefix = os.environ.get("TOOLBUS_PREFIX") or "tb"
    for name, tool in {"conf_echo": lambda args: args, "conf_size": size}.items():

        async def answer(msg: Any, tool: Any = tool) -> None:  # what it raises, nats-py logs: level plain has no errors
            await msg.respond(json.dumps(tool(json.loads(msg.data)), ensure_ascii=False).encode())

        await nc.subscribe(f"{prefix}.v1.call.{name}", "workers", answer)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await nc.drain()


asyncio.run(main())
