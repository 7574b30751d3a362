// Starts `executor dev` of this repository for the tests: a NATS server with JetStream and an executor. Where Go is not
// there, TOOLBUS_TEST_EXECUTOR may name the program; else what needs it is skipped, loudly.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    url: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dir = mkdtempSync(join(tmpdir(), "toolbus-ts-"));
  const clean = () => rmSync(dir, { recursive: true, force: true });
  const program = process.env["TOOLBUS_TEST_EXECUTOR"] || build(dir);
  if (!program) {
    console.error("\nSKIPPED: everything that needs a server: there is no Go to build the executor with\n");
    project.provide("url", "");
    return async () => clean();
  }
  const child = spawn(program, ["dev", "--port", "-1", "--store-dir", join(dir, "store")], {
    stdio: ["ignore", "pipe", "pipe"],
    cwd: dir,
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  let said = "";
  const url = await new Promise<string>((resolve, reject) => {
    const look = (line: string) => {
      said += `${line}\n`;
      const m = /nats:\/\/[0-9.:a-z]+:[0-9]+/.exec(line);
      if (m) resolve(m[0]);
    };
    createInterface(child.stdout).on("line", look);
    createInterface(child.stderr).on("line", look);
    void ended.then(() => reject(new Error(`executor dev ended before it was there:\n${said}`)));
  });
  project.provide("url", url);
  return async () => {
    child.kill("SIGTERM");
    await ended;
    clean();
  };
}

function build(dir: string): string {
  const out = join(dir, "executor");
  try {
    execFileSync("go", ["build", "-o", out, "./cmd/executor"], {
      cwd: new URL("../../..", import.meta.url),
      stdio: "inherit",
    });
    return out;
  } catch (err) {
    if ((err as { code?: string }).code === "ENOENT") return "";
    throw err;
  }
}
