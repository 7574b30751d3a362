import { get, H, type Header, inbound, Names } from "./headers.ts";

/** What the headers of a call say; "" for what is not there. */
export interface Head {
  readonly call: string;
  readonly timeout: string;
  readonly key: string;
  readonly session: string;
  readonly tool: string;
  readonly progress: string;
  readonly frame: string;
  readonly blob: string;
  readonly contentType: string;
  /** All that may be passed on, as inbound says. */
  readonly all: Header;
  /** Whether they were found to be what checkHeader lets through. */
  readonly checked: boolean;
}

/** Is the head of any headers. */
export function headOf(h: Header): Head {
  return {
    call: get(h, H.call),
    timeout: get(h, H.timeout),
    key: get(h, H.key),
    session: get(h, H.session),
    tool: get(h, H.tool),
    progress: get(h, H.progress),
    frame: get(h, H.frame),
    blob: get(h, H.blob),
    contentType: get(h, H.contentType),
    all: inbound(h),
    checked: false,
  };
}

/**
 * Reads the header block of a message, or "" where it has none, in one go, as nearly all can be: short, of printable
 * ASCII, our names in their usual letters, once and with a value, nothing for the server. For all others it is undefined,
 * and headOf reads them.
 */
export function plainHead(block: string | undefined): Head | undefined {
  if (block === undefined) return undefined;
  if (block !== "" && (block.length > maxPlain || !plain.test(block))) return undefined;
  const head = new PlainHead(block);
  return head.read() ? head : undefined;
}

const maxPlain = 4096;
const plain = /^NATS\/1\.0\r\n(?:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}:[ -~]*\r\n)+\r\n$/;
const start = "NATS/1.0\r\n".length;
const ours: ReadonlySet<string> = new Set(Object.values(H).map((name) => name.toLowerCase()));

class PlainHead implements Head {
  call = "";
  timeout = "";
  key = "";
  session = "";
  tool = "";
  progress = "";
  frame = "";
  blob = "";
  contentType = "";
  readonly checked = true;
  private readonly block: string;
  private names: Header | undefined = undefined;
  private odd = false;

  constructor(block: string) {
    this.block = block;
  }

  get all(): Header {
    if (this.names) return this.names;
    const names = new Names();
    for (const line of this.block.slice(start, -"\r\n\r\n".length).split("\r\n")) {
      const colon = line.indexOf(":");
      if (colon < 0) break; // there is no header at all
      const name = line.slice(0, colon);
      names[name] ??= [];
      names[name].push(line.slice(colon + 1).trim());
    }
    this.names = names;
    return names;
  }

  /** Says no where the block is not as usual. */
  read(): boolean {
    const { block } = this;
    for (let at = start; at < block.length - 2; ) {
      const colon = block.indexOf(":", at);
      const end = block.indexOf("\r\n", colon);
      this.take(block.slice(at, colon), block.slice(colon + 1, end).trim());
      at = end + 2;
    }
    return !this.odd;
  }

  private take(name: string, value: string): void {
    switch (name) {
      case H.call:
        this.call = this.once(this.call, value);
        break;
      case H.timeout:
        this.timeout = this.once(this.timeout, value);
        break;
      case H.key:
        this.key = this.once(this.key, value);
        break;
      case H.session:
        this.session = this.once(this.session, value);
        break;
      case H.tool:
        this.tool = this.once(this.tool, value);
        break;
      case H.progress:
        this.progress = this.once(this.progress, value);
        break;
      case H.frame:
        this.frame = this.once(this.frame, value);
        break;
      case H.blob:
        this.blob = this.once(this.blob, value);
        break;
      case H.contentType:
        this.contentType = this.once(this.contentType, value);
        break;
      case H.traceparent:
        break;
      default: {
        const lower = name.toLowerCase();
        this.odd ||= ours.has(lower) || lower.startsWith("nats-");
      }
    }
  }

  private once(had: string, value: string): string {
    this.odd ||= had !== "" || value === "";
    return value;
  }
}
