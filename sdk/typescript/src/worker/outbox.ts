const maxLetters = 1000;
const maxBytes = 64 << 20;

/** The end of a call that could not be published. */
export interface Letter {
  reply: string;
  headers: Record<string, string>;
  data: Uint8Array | string;
}

/**
 * Keeps the ends of calls that could not be published, because the connection was away, until it is back. What does not
 * fit is lost: a caller that asks again with the same key gets the answer from memory.
 */
export class Outbox {
  private letters: Letter[] = [];
  private bytes = 0;

  put(l: Letter): void {
    if (this.letters.length >= maxLetters || this.bytes + l.data.length > maxBytes) return;
    this.letters.push(l);
    this.bytes += l.data.length;
  }

  empty(): Letter[] {
    const letters = this.letters;
    this.letters = [];
    this.bytes = 0;
    return letters;
  }

  get size(): number {
    return this.letters.length;
  }
}
