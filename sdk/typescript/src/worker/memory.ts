/**
 * A bounded map that forgets: what was kept longer ago than ttl, and the oldest of what is too much. An item that was
 * added or held and not yet kept stays until it is; its holder sees to it that these are few.
 */
export class Memory<I extends Item> {
  private readonly ttl: number;
  private readonly maxItems: number;
  private readonly maxBytes: number;
  private readonly items = new Map<string, I>();
  // The kept ones, linked: a Set that is emptied at its head would be gone through from its first grave each time.
  private oldest: Item | undefined;
  private newest: Item | undefined;
  private kept = 0;
  private bytes = 0;

  /** ttl is in milliseconds. */
  constructor(ttl: number, maxItems: number, maxBytes: number) {
    this.ttl = ttl;
    this.maxItems = maxItems;
    this.maxBytes = maxBytes;
  }

  /** Is the item of key, or undefined where it is not known or is too old, and then it is forgotten. */
  get(key: string, now: number): I | undefined {
    const it = this.items.get(key);
    if (!it?.kept || now - it.at <= this.ttl) return it;
    this.drop(it);
    return undefined;
  }

  /** Takes an item whose key has none, which is not forgotten until it is kept. */
  add(it: I): I {
    this.items.set(it.key, it);
    return it;
  }

  /** Sees to it that an item of ours is not forgotten until it is kept again. */
  hold(it: I): void {
    this.unlink(it);
  }

  /** Makes it the newest item, of that many bytes, and forgets what is too much. */
  keep(it: I, size: number, now: number): void {
    this.unlink(it);
    it.kept = true;
    it.size = size;
    it.at = Math.floor(now); // a fraction would be an object of its own
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
      this.drop(it);
    }
  }

  /** Is how many items there are. */
  get size(): number {
    return this.items.size;
  }

  private drop(it: Item): void {
    this.unlink(it);
    this.items.delete(it.key);
  }

  private unlink(it: Item): void {
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

/**
 * One entry of a Memory; extend it with what is to be remembered. There are thousands of them and they live long, which is
 * what collecting garbage costs most for: let it be one object.
 */
export class Item {
  readonly key: string;
  kept = false;
  size = 0;
  at = 0;
  older: Item | undefined = undefined;
  newer: Item | undefined = undefined;

  constructor(key: string) {
    this.key = key;
  }
}
