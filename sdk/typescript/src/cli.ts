#!/usr/bin/env node
// npx toolbus run FILE...

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { type ServeOptions, serve, stderr } from "./serve.ts";
import type { Tool } from "./tool/define.ts";
import { sdkVersion } from "./version.ts";

const usage = `toolbus run FILE... [flags]   serve the tools that the files export

  --nats-url URL      NATS server, comma separated for several  (TOOLBUS_NATS_URL, nats://127.0.0.1:4222)
  --prefix NAME       first token of every subject               (TOOLBUS_PREFIX, tb)
  --creds FILE        NATS credentials                           (TOOLBUS_CREDS)
  --id ID             of this worker                             (TOOLBUS_ID, made up)
  --concurrency N     calls at once                              (TOOLBUS_CONCURRENCY, 4 per CPU)
  --grace MS          how long a stop waits for calls            (10000)
  --version, --help

Exit codes: 0 it went well, 1 it did not, 2 a mistake in flags or files, 3 NATS cannot be reached.`;

class UsageError extends Error {}

async function main(argv: string[]): Promise<void> {
  let parsed: ReturnType<typeof read>;
  try {
    parsed = read(argv);
  } catch (err) {
    throw new UsageError((err as Error).message);
  }
  const { values, positionals } = parsed;
  if (values.help) return console.log(usage);
  if (values.version) return console.log(sdkVersion);
  const [command, ...files] = positionals;
  if (command !== "run" || files.length === 0)
    throw new UsageError(`expected "toolbus run FILE...", got ${JSON.stringify(positionals.join(" "))}`);

  const tools: Tool[] = [];
  for (const file of files) tools.push(...(await load(file)));
  // A promise that a tool forgot must not take the other calls with it.
  process.on("unhandledRejection", (err) => stderr.error("a promise was rejected and nobody looked", { error: err }));
  const options: ServeOptions = {};
  if (values["nats-url"]) options.url = values["nats-url"];
  if (values.prefix) options.prefix = values.prefix;
  if (values.creds) options.creds = values.creds;
  if (values.id) options.id = values.id;
  if (values.concurrency) options.concurrency = whole("--concurrency", values.concurrency);
  if (values.grace) options.grace = whole("--grace", values.grace);
  await serve(tools, options);
}

function read(argv: string[]) {
  const text = { type: "string" } as const;
  const flag = { type: "boolean" } as const;
  const options = {
    "nats-url": text,
    prefix: text,
    creds: text,
    id: text,
    concurrency: text,
    grace: text,
    version: flag,
    help: flag,
  };
  return parseArgs({ args: argv, allowPositionals: true, options });
}

function whole(flag: string, value: string): number {
  if (!/^[1-9][0-9]{0,8}$/.test(value))
    throw new UsageError(`${flag}: expected a number from 1, got ${JSON.stringify(value)}`);
  return Number(value);
}

/** Is the tools that a file exports, alone or in lists. */
async function load(file: string): Promise<Tool[]> {
  let module: Record<string, unknown>;
  try {
    module = (await import(pathToFileURL(resolve(file)).href)) as Record<string, unknown>;
  } catch (err) {
    if ((err as { code?: string }).code === "ERR_UNKNOWN_FILE_EXTENSION") {
      throw new UsageError(
        `${file}: this Node (${process.version}) cannot run TypeScript; use Node 22.18 or later, or compile it, or: node --import tsx node_modules/toolbus/dist/cli.js run ${file}`,
      );
    }
    if (err instanceof SyntaxError && /import statement outside a module|token 'export'/.test(err.message))
      throw new UsageError(`${file}: ${err.message}: run "npm pkg set type=module"`);
    throw err;
  }
  const found = [...new Set(Object.values(module).flat())].filter(isTool);
  if (found.length === 0)
    throw new UsageError(`${file}: exports no tool; write "export const x = defineTool(…)" or "export default [x, y]"`);
  return found;
}

function isTool(v: unknown): v is Tool {
  const t = v as Partial<Tool> | undefined;
  return typeof t === "object" && t !== null && typeof t.handler === "function" && typeof t.digest === "string";
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (err: unknown) => {
    const message = err instanceof Error ? err.message : String(err);
    console.error(`toolbus: ${message}`);
    if (err instanceof UsageError) process.exit(2);
    process.exit(message.startsWith("cannot connect to NATS") ? 3 : 1);
  },
);
