"""Names of tools and ids of turns, calls, workers and executors: each is one token of a subject."""

from __future__ import annotations

import re
from typing import Final

from .errors import WireError, quote

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

RESERVED: Final = "_turn"
"""Stands where a tool's name would in the reply subject of a turn request. No tool has it."""


def is_name(text: str) -> bool:
    """Whether ``text`` may be the name of a tool in a subject."""
    return _NAME.fullmatch(text) is not None


def is_id(text: str) -> bool:
    """Whether ``text`` may be the id of a turn, call, worker or executor."""
    return _ID.fullmatch(text) is not None


def check_name(text: str) -> None:
    """Refuse what is no name of a tool."""
    if not is_name(text):
        raise WireError("name", f"tool name {quote(text)}: expected 1 to 64 letters A-Z a-z, digits, _ and -")
    if text == RESERVED:
        raise WireError("name", f"tool name {quote(text)} is reserved: choose another")


def check_id(text: str) -> None:
    """Refuse what is no id."""
    if not is_id(text):
        raise WireError("name", f"id {quote(text)}: expected 1 to 128 letters A-Z a-z, digits, _ and -")


def nearest(name: str, known: list[str], limit: int = 3) -> list[str]:
    """The known names that somebody who wrote ``name`` may have meant, the nearest first."""
    import difflib

    folded = {k.lower(): k for k in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name[:64].lower(), list(folded), n=limit, cutoff=0.6)
    return [folded[f] for f in found]
