// A no-op worker on @nats-io/transport-node alone.
import { connect } from "@nats-io/transport-node";

const nc = await connect({ servers: process.env.TOOLBUS_NATS_URL });
nc.subscribe(`${process.env.TOOLBUS_PREFIX}.v1.call.noop`, {
  queue: "workers",
  callback: (_err, msg) => msg.respond(JSON.stringify(msg.json())),
});
