"""The subjects of one deployment, and where a worker may answer."""

from __future__ import annotations

import re
from typing import Final

from .errors import WireError, quote
from .limits import MAX_SUBJECT
from .names import is_id, is_name

QUEUE_WORKERS: Final = "workers"
"""The queue group of everybody who answers a tool's call subject."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
# Printable ASCII without blank, * and >, in tokens that are not empty.
_PLAIN: Final = re.compile(r"(?!\$)[!-)+-\-/-=?-~]+(?:\.[!-)+-\-/-=?-~]+)*")


class Subjects:
    """Makes subjects. ``prefix`` is the first token of all of them; empty means ``tb``.

    Names and ids that go in must have been checked: nothing is escaped here.
    """

    __slots__ = ("prefix", "root")

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix or "tb"
        if not _PREFIX.fullmatch(self.prefix):
            raise WireError("name", f"subject prefix {quote(prefix)}: use 1 to 32 letters A-Z a-z, digits, _ and -")
        self.root = f"{self.prefix}.v1."

    def call(self, tool: str) -> str:
        """The way in to a tool."""
        return f"{self.root}call.{tool}"

    def tool_of(self, subject: str) -> str | None:
        """The tool of a subject that ``call`` made, or None."""
        head = f"{self.root}call."
        rest = subject[len(head) :]
        return rest if subject.startswith(head) and is_name(rest) else None

    def to(self, worker: str) -> str:
        """One worker."""
        return f"{self.root}to.{worker}"

    def cancel(self, tool: str) -> str:
        """Every worker of a tool: cancel by call where the worker is not known."""
        return f"{self.root}cancel.{tool}"

    def heartbeat(self, worker: str) -> str:
        """Where a worker says that it lives."""
        return f"{self.root}hb.{worker}"

    def heartbeats(self) -> str:
        """All of ``heartbeat``."""
        return f"{self.root}hb.*"

    def rollcall(self) -> str:
        """Where workers are asked to beat now."""
        return f"{self.root}rollcall"

    def reply(self, tool: str, executor: str, n: str) -> str:
        """Where the answer to one attempt goes."""
        return f"{self.root}reply.{tool}.{executor}.{n}"

    def replies(self, executor: str) -> str:
        """All replies to one executor or client."""
        return f"{self.root}reply.*.{executor}.*"

    def parse_reply(self, subject: str) -> tuple[str, str, str] | None:
        """The way back from ``reply``: tool, executor and n. None for any other subject."""
        head = f"{self.root}reply."
        parts = subject[len(head) :].split(".")
        if not subject.startswith(head) or len(parts) != 3:
            return None
        tool, executor, n = parts
        return (tool, executor, n) if is_name(tool) and is_id(executor) and is_id(n) else None

    def turn_run(self) -> str:
        """Takes a turn request to run now."""
        return f"{self.root}turn.run"

    def turn_submit(self) -> str:
        """Takes a durable turn."""
        return f"{self.root}turn.submit"

    def turn_ctl(self, turn: str) -> str:
        """Speaks to whoever runs a turn."""
        return f"{self.root}turn.ctl.{turn}"

    def turn_ctls(self) -> str:
        """All of ``turn_ctl``."""
        return f"{self.root}turn.ctl.*"

    def turn_late(self) -> str:
        """Takes a question for a late result."""
        return f"{self.root}turn.late"

    def turn_trace(self) -> str:
        """Takes a question for a journal."""
        return f"{self.root}turn.trace"

    def log(self, turn: str) -> str:
        """The journal of a turn."""
        return f"{self.root}log.{turn}"

    def logs(self) -> str:
        """All of ``log``."""
        return f"{self.root}log.*"

    def late(self, turn: str, call: str) -> str:
        """Where a result is kept that came after its turn."""
        return f"{self.root}late.{turn}.{call}"

    def lates(self) -> str:
        """All of ``late``."""
        return f"{self.root}late.*.*"

    def late_of(self, call: str) -> str:
        """The late results of a call of any turn."""
        return f"{self.root}late.*.{call}"

    def res(self, tool: str, turn: str, call: str, attempt: int) -> str:
        """The reply subject of an attempt at a durable call."""
        return f"{self.root}res.{tool}.{turn}.{call}.{attempt}"

    def event(self, kind: str) -> str:
        """What observers listen to."""
        return f"{self.root}event.{kind}"

    def blob(self, blob_id: str, chunk: int) -> str:
        """One piece of a claim check, from 0."""
        return f"{self.root}blob.{blob_id}.{chunk}"

    def blobs(self) -> str:
        """All pieces of all claim checks."""
        return f"{self.root}blob.>"

    def blob_stream(self) -> str:
        """The stream that keeps claim checks."""
        return f"{self.prefix.upper()}_BLOBS"


class ReplyRule:
    """Where a worker may answer. The caller chooses the reply subject, and a worker that answers anywhere is somebody
    else's hand: with the reply ``$JS.API.STREAM.PURGE.X`` it would purge a stream.

    ``extra`` are further prefixes, each one or more whole tokens.
    """

    __slots__ = ("_extra", "_reply", "_res")

    def __init__(self, subjects: Subjects, *extra: str) -> None:
        self._reply = f"{subjects.root}reply."
        self._res = f"{subjects.root}res."
        self._extra = tuple(p.removesuffix(".") + "." for p in extra if _is_plain(p.removesuffix(".")))

    def allows(self, reply: str, tool: str) -> bool:
        """Whether a worker that was called as ``tool`` may publish to ``reply``."""
        if not _is_plain(reply):
            return False
        if reply.startswith(("_INBOX.", "_R_.")) or (reply.startswith("_INBOX_") and "." in reply):
            return True
        if is_name(tool) and reply.startswith((f"{self._reply}{tool}.", f"{self._res}{tool}.")):
            return True
        return reply.startswith(self._extra) if self._extra else False


def _is_plain(subject: str) -> bool:
    """Whether this is a subject to publish to that is not the server's own."""
    return len(subject) <= MAX_SUBJECT and _PLAIN.fullmatch(subject) is not None
