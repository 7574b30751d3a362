"""Sizes, counts and times of version 1. Durations are in seconds unless the name says milliseconds."""

from __future__ import annotations

from typing import Final

VERSION: Final = 1

MAX_INLINE_SLACK: Final = 64 << 10
"""What stays free below the server's max_payload, in bytes. What needs more goes as a claim check."""

MAX_BLOB: Final = 64 << 20
MAX_CHUNKS: Final = 4096
MAX_DEPTH: Final = 64
MAX_CALLS: Final = 1000
MAX_EVENTS: Final = 10_000
MAX_TOOLS: Final = 1000
MAX_METADATA: Final = 16 << 10
MAX_VALUE: Final = 8 << 10
MAX_SUBJECT: Final = 512
MAX_ATTEMPT: Final = 1_000_000
MAX_MS: Final = (1 << 31) - 1
MAX_INT: Final = 1 << 53
MAX_NAME: Final = 64
MAX_ID: Final = 128
MAX_ARGS: Final = MAX_BLOB

HEARTBEAT_EVERY: Final = 1.0
ACCEPT_AFTER: Final = 0.025
CANCEL_GRACE: Final = 0.25
