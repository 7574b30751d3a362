"""What else a tool may do: models, progress, pieces, typed faults, the caller's cancel."""

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from toolbus import Context, RateLimited, tool


class Query(BaseModel):
    """All the arguments, as one model."""

    words: Annotated[str, Field(min_length=1, description="what to look for")]
    most: Annotated[int, Field(ge=1, le=100)] = 10


class Hit(BaseModel):
    """One thing that was found."""

    title: str
    score: float


@tool(effect="read", timeout=20, idle_timeout=5, retry={"max_attempts": 3}, tags=["demo"])
async def search(query: Query, ctx: Context) -> list[Hit]:
    """Finds things, slowly, and says how far it is."""
    if query.words == "everything":
        raise RateLimited("one thing at a time", retry_after=1.5)
    hits: list[Hit] = []
    for n in range(query.most):
        await asyncio.sleep(0.02)  # a cancel ends it here
        hits.append(Hit(title=f"{query.words} {n + 1}", score=1 / (n + 1)))
        ctx.progress(n + 1, query.most, hits[-1].title)
        ctx.partial(hits[-1])
    ctx.logger.info("found %d", len(hits))
    return hits


@tool(effect="read", timeout=60)
def crunch(ctx: Context, rounds: int) -> dict[str, int]:
    """Computes in a thread, and stops when it is told to."""
    done = 0
    while done < rounds and not ctx.cancelled.is_set():
        done += sum(1 for _ in range(10_000)) // 10_000
    return {"done": done}
