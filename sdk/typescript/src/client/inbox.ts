import type { Msg } from "@nats-io/nats-core";

const maxFrames = 4096;
const maxBytes = 32 << 20;

/** Keeps messages until they are taken. Beyond its bounds the oldest go, so that the last, which has the outcome, never does. */
export class Inbox {
  private queue: Msg[] = [];
  private bytes = 0;
  private wake: (() => void) | undefined;
  /** Whether there was more than it keeps. */
  dropped = false;

  put(m: Msg): void {
    this.queue.push(m);
    this.bytes += m.data.length;
    while (this.queue.length > maxFrames || (this.bytes > maxBytes && this.queue.length > 1)) {
      this.bytes -= this.queue.shift()!.data.length;
      this.dropped = true;
    }
    this.wake?.();
  }

  /** Is the next message, or undefined where none came within ms or something else woke it. */
  async next(ms: number): Promise<Msg | undefined> {
    if (this.queue.length === 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = undefined;
    }
    const m = this.queue.shift();
    if (m) this.bytes -= m.data.length;
    return m;
  }

  /** Ends a wait. */
  rouse(): void {
    this.wake?.();
  }
}
