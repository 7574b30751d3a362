/** A value, or the promise of one. */
export type Eventually<T> = T | PromiseLike<T>;

/**
 * Goes on with what a step gives: at once, or when its promise is kept. Most steps of a call have nothing to wait for, and
 * a promise for each would cost more than the steps. Bad takes what the step throws or rejects with, and nothing else.
 */
export function next<T, R>(
  step: () => Eventually<T>,
  good: (value: T) => Eventually<R>,
  bad: (err: unknown) => R,
): Eventually<R> {
  let value: Eventually<T>;
  try {
    value = step();
  } catch (err) {
    return bad(err);
  }
  return isPromise(value) ? Promise.resolve(value).then(good, bad) : good(value);
}

function isPromise<T>(value: Eventually<T>): value is PromiseLike<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
