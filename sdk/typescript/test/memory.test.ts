import { expect, test } from "vitest";
import { Item, Memory } from "../src/worker/memory.ts";

test("a memory forgets what is old, and the oldest of what is too much", () => {
  const m = new Memory(100, 3, 1000);
  const hold = (key: string, at: number) => {
    const it = m.get(key, at);
    if (it) m.hold(it);
    return it ?? m.add(new Item(key));
  };
  const put = (key: string, at: number, size = 1) => m.keep(hold(key, at), size, at);
  const known = (at: number) => ["a", "b", "c", "d", "e"].filter((k) => m.get(k, at)).join("");
  put("a", 0);
  put("b", 1);
  put("c", 2);
  put("a", 3); // it is the newest now
  put("d", 4);
  expect([known(4), m.size]).toEqual(["acd", 3]);
  expect([known(103), m.size]).toEqual(["ad", 2]);
  m.forget(104);
  expect([known(104), m.size]).toEqual(["d", 1]);
  hold("e", 104); // stays until it is kept
  put("b", 105, 1001); // too large to be kept at all
  m.forget(1000);
  expect([known(1000), m.size]).toEqual(["e", 1]);
});
