import { readFileSync } from "node:fs";
import type { ConnectionOptions, Msg, NatsConnection, Subscription } from "@nats-io/nats-core";
import { credsAuthenticator, connect as dial, nkeyAuthenticator, nuid } from "@nats-io/transport-node";
import { type Fault, InvalidArguments, Unavailable } from "../fault/fault.ts";
import { toNats } from "../wire/headers.ts";
import { maxInlineSlack } from "../wire/limits.ts";
import { checkId } from "../wire/names.ts";
import { isPlainSubject } from "../wire/reply.ts";
import { Subjects } from "../wire/subjects.ts";
import { truncate } from "../wire/text.ts";

/** How to connect. What is absent is taken from the environment, then from the default. */
export interface ConnectOptions {
  /** One server or several, comma separated. TOOLBUS_NATS_URL, default nats://127.0.0.1:4222. */
  url?: string;
  /** First token of every subject. TOOLBUS_PREFIX, default tb. */
  prefix?: string;
  /** Instance id; no two on a bus may share it. TOOLBUS_ID, default: made up. */
  id?: string;
  /** As the server shows it. */
  name?: string;
  /** A file with NATS credentials. TOOLBUS_CREDS. */
  creds?: string;
  /** A file with an NKey seed. TOOLBUS_NKEY. */
  nkey?: string;
  /** TOOLBUS_USER, and the password from the file TOOLBUS_PASSWORD_FILE; a url may hold both as well. */
  user?: string;
  password?: string;
  /** From the file TOOLBUS_TOKEN_FILE. */
  token?: string;
  /** A file with the certificate authorities of the server. TOOLBUS_TLS_CA. */
  tlsCA?: string;
  /** Files with our own certificate and its key. TOOLBUS_TLS_CERT and TOOLBUS_TLS_KEY. */
  tlsCert?: string;
  tlsKey?: string;
  /** Anything else that the NATS client takes. It wins. */
  nats?: ConnectionOptions;
}

/** What a handler of messages is given. */
export type OnMessage = (msg: Msg) => void;

/** Connects, or throws an Error that says what to do. End it with close. */
export async function connect(options: ConnectOptions = {}): Promise<Bus> {
  const env = process.env;
  const set = (value: string | undefined, name: string) => value || env[name] || "";
  const url = set(options.url, "TOOLBUS_NATS_URL") || "nats://127.0.0.1:4222";
  const subjects = new Subjects(set(options.prefix, "TOOLBUS_PREFIX"));
  const id = set(options.id, "TOOLBUS_ID") || nuid.next();
  checkId(id);
  const auth = { ...urlAuth(url), ...access(options, set) };
  try {
    const nc = await dial({
      servers: url.split(",").map((s) => s.trim()),
      name: options.name ?? "toolbus",
      timeout: 5000,
      maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: true, // refused credentials may be mended on the server
      reconnectTimeWait: 100,
      reconnectJitter: 100,
      reconnectJitterTLS: 200,
      pingInterval: 2000, // a half-open connection is found within 6 s
      maxPingOut: 2,
      inboxPrefix: `_INBOX_${id}`,
      noAsyncTraces: true, // they cost a stack trace for every request
      ...auth,
      ...options.nats,
    });
    return new Bus(nc, subjects, id);
  } catch (err) {
    const place = url.replace(/\/\/[^@/]*@/g, "//");
    throw new Error(
      `cannot connect to NATS at ${place}: ${truncate((err as Error).message, 200)}; start a server with "executor dev", or set TOOLBUS_NATS_URL or --nats-url`,
      { cause: err },
    );
  }
}

/** Is how we show who we are. Files are read here, once. */
function access(options: ConnectOptions, set: (value: string | undefined, name: string) => string): ConnectionOptions {
  const secret = (value: string | undefined, name: string): string => {
    const file = process.env[name];
    return value ?? (file ? readFileSync(file, "utf8").trim() : "");
  };
  const creds = set(options.creds, "TOOLBUS_CREDS");
  const nkey = set(options.nkey, "TOOLBUS_NKEY");
  const user = set(options.user, "TOOLBUS_USER");
  const token = secret(options.token, "TOOLBUS_TOKEN_FILE");
  const caFile = set(options.tlsCA, "TOOLBUS_TLS_CA");
  const certFile = set(options.tlsCert, "TOOLBUS_TLS_CERT");
  const keyFile = set(options.tlsKey, "TOOLBUS_TLS_KEY");
  const tls = { ...(caFile && { caFile }), ...(certFile && { certFile }), ...(keyFile && { keyFile }) };
  return {
    ...(creds && { authenticator: credsAuthenticator(readFileSync(creds)) }),
    ...(nkey && { authenticator: nkeyAuthenticator(Buffer.from(readFileSync(nkey, "utf8").trim())) }),
    ...(user && { user, pass: secret(options.password, "TOOLBUS_PASSWORD_FILE") }),
    ...(token && { token }),
    ...(Object.keys(tls).length > 0 && { tls }),
  };
}

/** Is the user that a url holds, which the NATS client does not look for. */
function urlAuth(url: string): ConnectionOptions {
  const m = /\/\/([^:@/]+)(?::([^@/]*))?@/.exec(url);
  if (!m) return {};
  const user = decodeURIComponent(m[1]!);
  return m[2] === undefined ? { token: user } : { user, pass: decodeURIComponent(m[2]) };
}

/** A connection to NATS: what workers and clients need of it. What is sent while it is away fails, and never goes later. */
export class Bus {
  readonly nc: NatsConnection;
  readonly subjects: Subjects;
  readonly id: string;
  /** Whether the server is there, as far as we know. */
  connected = true;
  private readonly resumed = new Set<() => void>();

  constructor(nc: NatsConnection, subjects: Subjects, id: string) {
    this.nc = nc;
    this.subjects = subjects;
    this.id = id;
    void this.watch();
  }

  /** Is how many bytes fit into one message beside its headers. */
  get inline(): number {
    return Math.max(1024, (this.nc.info?.max_payload ?? 1 << 20) - maxInlineSlack);
  }

  /** Calls f after every reconnect, until the returned function is called. */
  onReconnect(f: () => void): () => void {
    this.resumed.add(f);
    return () => this.resumed.delete(f);
  }

  private async watch(): Promise<void> {
    for await (const s of this.nc.status()) {
      if (s.type === "disconnect") this.connected = false;
      if (s.type !== "reconnect") continue;
      this.connected = true;
      for (const f of this.resumed) f();
    }
    this.connected = false;
  }

  /** Publishes a message. What it returns is why it was not sent, now or later. */
  publish(
    subject: string,
    headers: Record<string, string>,
    data: Uint8Array | string,
    reply?: string,
  ): Fault | undefined {
    if (!isPlainSubject(subject) || (reply !== undefined && !isPlainSubject(reply))) {
      return new InvalidArguments(`subject ${truncate(JSON.stringify(subject), 80)} is none to publish to`);
    }
    if (!this.connected) return new Unavailable("there is no connection to NATS");
    try {
      const h = toNats(headers);
      this.nc.publish(
        subject,
        typeof data === "string" ? Buffer.from(data) : data, // cheaper than the client's TextEncoder
        h || reply !== undefined ? { ...(h && { headers: h }), ...(reply !== undefined && { reply }) } : undefined,
      );
      return undefined;
    } catch (err) {
      const message = (err as Error).message;
      if (this.nc.isClosed() || this.nc.isDraining())
        return new Unavailable(`could not write to NATS: ${message}`, { cause: err });
      return new InvalidArguments(`message to ${subject} could not be sent: ${message}`, { cause: err });
    }
  }

  /** Subscribes. It throws nothing; a refusal comes to refused. A message that on throws at is passed to failed. */
  subscribe(
    subject: string,
    queue: string,
    on: OnMessage,
    refused: (err: Error) => void,
    failed: (err: unknown) => void,
  ): Subscription {
    return this.nc.subscribe(subject, {
      ...(queue && { queue }),
      callback: (err, msg) => {
        if (err) return refused(err);
        try {
          on(msg);
        } catch (err) {
          failed(err);
        }
      },
    });
  }

  /** Is one answer to a request. It throws what the NATS client throws. */
  request(
    subject: string,
    data: Uint8Array | string,
    timeout: number,
    headers: Record<string, string> = {},
  ): Promise<Msg> {
    const h = toNats(headers);
    return this.nc.request(subject, data, { timeout, ...(h && { headers: h }) });
  }

  /** Ends the connection. */
  async close(): Promise<void> {
    await this.nc.close();
  }
}
