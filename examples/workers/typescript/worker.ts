// A worker in TypeScript that knows nothing of Toolbus, only NATS: docs/protocol.md at level plain. sdk/typescript has the
// rest.
import { connect } from "@nats-io/transport-node";

const tools: Record<string, (args: any) => unknown> = {
  conf_echo: (args) => args,
  conf_size: (args) => ({ bytes: Buffer.byteLength(args.data) }),
};

const servers = process.env.TOOLBUS_NATS_URL || "nats://127.0.0.1:4222";
const nc = await connect({ servers, maxReconnectAttempts: -1 });
for (const [name, tool] of Object.entries(tools)) {
  nc.subscribe(`${process.env.TOOLBUS_PREFIX || "tb"}.v1.call.${name}`, {
    queue: "workers",
    callback: (err, msg) => {
      if (err) return console.error(name, err);
      try {
        msg.respond(JSON.stringify(tool(msg.json())));
      } catch (e) {
        console.error(name, e); // level plain has no errors: the caller waits in vain
      }
    },
  });
}
process.on("SIGTERM", () => nc.drain());
