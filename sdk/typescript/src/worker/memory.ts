/**
 * A bounded map that forgets: what was kept longer ago than ttl, and the oldest of what is too much. An item that was
 * held and not yet kept stays until it is; its holder sees to it that these are few.
 */
export class Memory<V> {
  private readonly ttl: number;
  private readonly maxItems: number;
  private readonly maxBytes: number;
  private readonly items = new Map<string, Item<V>>();
  // The kept ones, linked: a Set that is emptied at its head would be gone through from its first grave each time.
  private oldest: Item<V> | undefined;
  private newest: Item<V> | undefined;
  private kept = 0;
  private bytes = 0;

  /** ttl is in milliseconds. */
  constructor(ttl: number, maxItems: number, maxBytes: number) {
    this.ttl = ttl;
    this.maxItems = maxItems;
    this.maxBytes = maxBytes;
  }

  /** Is the item of key, or undefined where it is not known or was forgotten. */
  get(key: string, now: number): Item<V> | undefined {
    const it = this.items.get(key);
    return it?.kept && now - it.at > this.ttl ? undefined : it;
  }

  /** Is the item of key, made where there is none, and not forgotten until it is kept again. */
  hold(key: string, now: number, make: () => V): Item<V> {
    let it = this.get(key, now);
    if (it) {
      this.unlink(it);
      return it;
    }
    const old = this.items.get(key);
    if (old) this.unlink(old);
    it = { key, val: make(), kept: false, size: 0, at: now, older: undefined, newer: undefined };
    this.items.set(key, it);
    return it;
  }

  /** Makes it the newest item, of that many bytes, and forgets what is too much. */
  keep(it: Item<V>, size: number, now: number): void {
    this.unlink(it);
    it.kept = true;
    it.size = size;
    it.at = now;
    it.older = this.newest;
    if (this.newest) this.newest.newer = it;
    else this.oldest = it;
    this.newest = it;
    this.kept++;
    this.bytes += size;
    this.forget(now);
  }

  /** Drops what is too old or too much. */
  forget(now: number): void {
    for (let it = this.oldest; it; it = this.oldest) {
      if (this.kept <= this.maxItems && this.bytes <= this.maxBytes && now - it.at <= this.ttl) return;
      this.unlink(it);
      this.items.delete(it.key);
    }
  }

  /** Is how many items there are. */
  get size(): number {
    return this.items.size;
  }

  private unlink(it: Item<V>): void {
    if (!it.kept) return;
    if (it.older) it.older.newer = it.newer;
    else this.oldest = it.newer;
    if (it.newer) it.newer.older = it.older;
    else this.newest = it.older;
    it.older = it.newer = undefined;
    it.kept = false;
    this.kept--;
    this.bytes -= it.size;
  }
}

/** One entry of a Memory. */
export interface Item<V> {
  readonly key: string;
  val: V;
  kept: boolean;
  size: number;
  at: number;
  older: Item<V> | undefined;
  newer: Item<V> | undefined;
}
