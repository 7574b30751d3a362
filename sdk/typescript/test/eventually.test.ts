import { expect, test } from "vitest";
import { next } from "../src/worker/eventually.ts";

const fail = () => {
  throw new Error("no");
};
const good = (n: number) => n + 1;
const bad = (err: unknown) => `bad: ${(err as Error).message}`;

test("what is there needs no promise", () => {
  expect(next<number, unknown>(() => 1, good, bad)).toBe(2);
  expect(next<number, unknown>(fail, good, bad)).toBe("bad: no");
});

test("a promise is waited for, and so is anything with then", async () => {
  await expect(next<number, unknown>(async () => 1, good, bad)).resolves.toBe(2);
  await expect(next<number, unknown>(async () => fail(), good, bad)).resolves.toBe("bad: no");
  // Query builders and others have one, and are no promises
  const thenable = { then: (give: (n: number) => void) => give(1) } as PromiseLike<number>;
  await expect(next<number, unknown>(() => thenable, good, bad)).resolves.toBe(2);
});

test("bad does not hear what good throws", async () => {
  expect(() => next(() => 1, fail, bad)).toThrow("no");
  await expect(next(async () => 1, fail, bad)).rejects.toThrow("no");
});
