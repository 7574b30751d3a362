"""A no-op worker on the Python SDK: once on the event loop, once in threads."""

import sys
from typing import Any

from toolbus import tool
from toolbus.cli import main


@tool(effect="read")
async def noop(**args: Any) -> dict[str, Any]:
    """Gives back its arguments."""
    return args


@tool(effect="read")
def noop_sync(**args: Any) -> dict[str, Any]:
    """Gives back its arguments."""
    return args


if __name__ == "__main__":
    sys.exit(main(["run", "__main__"]))
