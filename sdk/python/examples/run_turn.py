"""A client: a turn of two calls, its events as they come. Needs `executor dev` and ``python -m toolbus run sky``."""

import asyncio

from toolbus import Call, Client


async def main() -> None:
    """Run it."""
    async with await Client.connect() as client:
        calls = [Call("a", "sky", {"city": "Lisbon"}), Call("b", "sky", {"city": "Oslo"})]
        async for event in client.stream(calls):
            print(event.type, event.call)
            if event.outcome is not None:
                print(event.outcome.status, [r.value for r in event.outcome.results])


if __name__ == "__main__":
    asyncio.run(main())
