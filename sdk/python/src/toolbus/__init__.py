"""Tools for AI agents over NATS.

A worker: ``@tool`` functions, served by ``python -m toolbus run module`` or by a ``Worker``. A client: ``Client.run`` hands
a turn, which is calls and a deadline, to an executor and brings back the outcome.
"""

from .bus import Bus
from .client import Client
from .context import Context, current
from .errors import (
    KINDS,
    ApprovalRequired,
    Bytes,
    Cancelled,
    CircuitOpen,
    Deadline,
    Denied,
    Failed,
    Internal,
    InvalidArguments,
    InvalidResult,
    LoopBlocked,
    NotFound,
    Overloaded,
    Partial,
    RateLimited,
    Timeout,
    ToolError,
    ToolNotFound,
    TruncatedCall,
    Unavailable,
    Unsupported,
    Upstream,
    WorkerLost,
    classify,
    error,
)
from .tools import Tool, tool
from .version import VERSION
from .wire.records import (
    Alternative,
    Call,
    Event,
    Outcome,
    Result,
    RetryPolicy,
    TurnRequest,
    Violation,
)
from .worker import Stats, Worker, serve

__version__ = VERSION

__all__ = [
    "KINDS",
    "Alternative",
    "ApprovalRequired",
    "Bus",
    "Bytes",
    "Call",
    "Cancelled",
    "CircuitOpen",
    "Client",
    "Context",
    "Deadline",
    "Denied",
    "Event",
    "Failed",
    "Internal",
    "InvalidArguments",
    "InvalidResult",
    "LoopBlocked",
    "NotFound",
    "Outcome",
    "Overloaded",
    "Partial",
    "RateLimited",
    "Result",
    "RetryPolicy",
    "Stats",
    "Timeout",
    "Tool",
    "ToolError",
    "ToolNotFound",
    "TruncatedCall",
    "TurnRequest",
    "Unavailable",
    "Unsupported",
    "Upstream",
    "Violation",
    "Worker",
    "WorkerLost",
    "__version__",
    "classify",
    "current",
    "error",
    "serve",
    "tool",
]
