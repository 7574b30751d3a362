"""Why something from the bus was refused."""

from __future__ import annotations


class WireError(ValueError):
    """A refusal. ``code`` is the one word for it, the same in every language; ``str()`` is a sentence for people."""

    def __init__(self, code: str, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.offset = offset
        """The byte at which it went wrong; 0 also where that means nothing."""


def quote(text: str, shown: int = 60) -> str:
    """``text`` as it may stand in a message: escaped and cut."""
    if len(text) > shown:
        return f"{text[:shown]!a} and {len(text) - shown} characters more"
    return ascii(text)


def truncate(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` bytes of UTF-8, cut between characters and ended with … where something was cut."""
    if len(text) * 4 <= limit:
        return text
    data = text[: limit + 1].encode("utf-8", "replace")
    if len(data) <= limit and len(text) <= limit:
        return text
    return data[: max(0, limit - 3)].decode("utf-8", "ignore") + "…"
