/** The version of this package. A test holds it to package.json. */
export const sdkVersion = "0.1.0";

/** What a worker's heartbeat says it is made of. */
export const sdk = `toolbus-ts/${sdkVersion}`;
