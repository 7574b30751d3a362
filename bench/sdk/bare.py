"""A no-op worker on nats-py alone."""

import asyncio
import json
import os
from typing import Any

import nats


async def main() -> None:
    nc = await nats.connect(os.environ["TOOLBUS_NATS_URL"])

    async def noop(msg: Any) -> None:
        args = json.loads(msg.data)
        await msg.respond(json.dumps(args).encode())

    await nc.subscribe(os.environ["TOOLBUS_PREFIX"] + ".v1.call.noop", "workers", noop)
    await asyncio.Event().wait()


asyncio.run(main())
