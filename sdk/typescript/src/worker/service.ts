import { manifestJSON } from "../tool/canonical.ts";
import { sdk, sdkVersion } from "../version.ts";
import { queueGroup } from "../wire/subjects.ts";
import type { Served, Worker } from "./worker.ts";

/** How workers appear to NATS service discovery: `nats micro ls` lists each as an instance of it. */
const serviceName = "toolbus-worker";

/** Is the subjects of NATS service discovery, and what is answered there. */
export function discovery(worker: Worker, served: readonly Served[]): Map<string, () => object> {
  const started = new Date().toISOString();
  const identity = {
    name: serviceName,
    id: worker.id,
    version: sdkVersion,
    metadata: { "tb.worker": worker.id, "tb.version": "1", "tb.sdk": sdk },
  };
  const type = (verb: string) => `io.nats.micro.v1.${verb}_response`;
  const records: Record<string, () => object> = {
    PING: () => ({ ...identity, type: type("ping") }),
    INFO: () => ({
      ...identity,
      type: type("info"),
      description: "tools on the bus",
      endpoints: endpoints(worker, served),
    }),
    STATS: () => ({ ...identity, type: type("stats"), started, endpoints: served.map((s) => stats(worker, s)) }),
  };
  const answers = new Map<string, () => object>();
  for (const [verb, record] of Object.entries(records)) {
    for (const who of ["", `.${serviceName}`, `.${serviceName}.${worker.id}`])
      answers.set(`$SRV.${verb}${who}`, record);
  }
  return answers;
}

/** Lists the tools with their manifests, as long as all fit into half a message. */
function endpoints(worker: Worker, served: readonly Served[]): object[] {
  let room = worker.bus.inline / 2;
  return served.map(({ tool }) => {
    const manifest = manifestJSON(tool.manifest);
    room -= 2 * manifest.length; // its quotes will be escaped
    return {
      name: tool.name,
      subject: worker.bus.subjects.call(tool.name),
      queue_group: queueGroup,
      metadata: { "tb.digest": tool.digest, ...(room > 0 && { "tb.manifest": manifest }) },
    };
  });
}

/** Counts whole calls; times are in nanoseconds, as the records want them. The load is that of the worker. */
function stats(worker: Worker, s: Served): object {
  const { running, capacity, leaked, draining } = worker.stats();
  const ns = Math.round(s.busy * 1e6);
  return {
    name: s.tool.name,
    subject: worker.bus.subjects.call(s.tool.name),
    queue_group: queueGroup,
    num_requests: s.calls,
    num_errors: s.errors,
    last_error: s.lastError,
    processing_time: ns,
    average_processing_time: s.calls > 0 ? Math.round(ns / s.calls) : 0,
    data: { running, capacity, leaked, draining },
  };
}
