"""A bounded map that forgets: what was kept longer ago than its time, and the oldest of what is too much."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Item(Generic[K, V]):
    """One thing that is remembered. An item that is held is not forgotten until it is kept again."""

    __slots__ = ("at", "kept", "key", "size", "value")

    def __init__(self, key: K, value: V) -> None:
        self.key = key
        self.value = value
        self.kept = False
        self.size = 0
        self.at = 0.0


class Memory(Generic[K, V]):
    """``ttl`` is in seconds, ``max_bytes`` counts what ``keep`` is told. It is for one event loop."""

    def __init__(self, ttl: float, max_items: int, max_bytes: int) -> None:
        self._ttl = ttl
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: dict[K, Item[K, V]] = {}
        self._kept: OrderedDict[K, Item[K, V]] = OrderedDict()  # the oldest first
        self._bytes = 0

    def get(self, key: K, now: float) -> Item[K, V] | None:
        """The item of a key, or None where it is not known or was forgotten."""
        item = self._items.get(key)
        if item is None or (item.kept and now - item.at > self._ttl):
            return None
        return item

    def hold(self, key: K, value: V, now: float) -> Item[K, V]:
        """The item of a key, made with this value where there is none. Whoever holds it sees to it that it is kept."""
        item = self.get(key, now)
        if item is None:
            old = self._items.get(key)
            if old is not None:
                self._unlink(old)
            item = self._items[key] = Item(key, value)
        else:
            self._unlink(item)
        return item

    def keep(self, item: Item[K, V], size: int, now: float) -> None:
        """Make it the newest item, of that many bytes, and forget what is too much. What is too old goes with the next
        ``forget``; ``get`` does not find it until then.
        """
        self._unlink(item)
        item.kept, item.size, item.at = True, size, now
        self._kept[item.key] = item
        self._bytes += size
        if len(self._kept) > self._max_items or self._bytes > self._max_bytes:
            self.forget(now)

    def forget(self, now: float) -> None:
        """Drop what is too old or too much."""
        while self._kept:
            if len(self._kept) <= self._max_items and self._bytes <= self._max_bytes:
                oldest = next(iter(self._kept.values()))
                if now - oldest.at <= self._ttl:
                    return
            key, item = self._kept.popitem(last=False)
            item.kept = False
            self._bytes -= item.size
            del self._items[key]

    def __len__(self) -> int:
        return len(self._items)

    def _unlink(self, item: Item[K, V]) -> None:
        if item.kept:
            item.kept = False
            self._bytes -= item.size
            del self._kept[item.key]
