import { type ConnectOptions, connect } from "./bus/connect.ts";
import type { Tool } from "./tool/define.ts";
import type { Logger } from "./worker/context.ts";
import { Worker, type WorkerOptions } from "./worker/worker.ts";

/** How to serve tools. What is absent is taken from the environment, then from the default. */
export interface ServeOptions extends ConnectOptions, WorkerOptions {
  /** Ends the worker as SIGTERM does. */
  signal?: AbortSignal;
}

/**
 * Connects, serves tools until SIGTERM, SIGINT or a drain frame comes, drains and disconnects. A second signal ends the
 * grace. TOOLBUS_CONCURRENCY says how many calls run at once. Where @opentelemetry/api is installed, calls are traced.
 */
export async function serve(tools: readonly Tool[], options: ServeOptions = {}): Promise<void> {
  const { signal, ...rest } = options;
  const log = rest.log ?? stderr;
  const bus = await connect({ name: "toolbus worker", ...rest });
  const hurry = new AbortController();
  let worker: Worker | undefined;
  let asked = 0;
  const stop = () => {
    if (++asked > 1) hurry.abort();
    void worker?.shutdown(hurry.signal);
  };
  try {
    const around = rest.around ?? (await tracing());
    worker = new Worker(bus, tools, {
      ...rest,
      log,
      concurrency: rest.concurrency ?? fromEnv(),
      ...(around && { around }),
    });
    void worker.ready().then(() => log.info("ready", { worker: bus.id, tools: tools.map((t) => t.name) }));
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    await worker.run(signal);
  } finally {
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
    await bus.close();
  }
}

async function tracing(): Promise<WorkerOptions["around"] | undefined> {
  try {
    return (await import("./otel.ts")).spans();
  } catch (err) {
    if ((err as { code?: string }).code === "ERR_MODULE_NOT_FOUND") return undefined;
    throw err;
  }
}

function fromEnv(): number {
  const given = process.env["TOOLBUS_CONCURRENCY"];
  if (!given) return 0;
  if (!/^[1-9][0-9]{0,6}$/.test(given))
    throw new Error(`TOOLBUS_CONCURRENCY: expected a number from 1, got ${JSON.stringify(given)}`);
  return Number(given);
}

const write =
  (level: string) =>
  (message: string, fields: Record<string, unknown> = {}) => {
    const line = { time: new Date().toISOString(), level, msg: message, ...fields };
    process.stderr.write(
      `${JSON.stringify(line, (_, v: unknown) => (v instanceof Error ? (v.stack ?? v.message) : v))}\n`,
    );
  };

/** Writes a line of JSON to stderr for each message; debug says nothing. */
export const stderr: Logger = { debug() {}, info: write("info"), warn: write("warn"), error: write("error") };
