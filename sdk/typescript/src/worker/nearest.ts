/** Gives up to three of the known names that somebody who wrote name may have meant, the nearest first. */
export function nearest(name: string, known: readonly string[]): string[] {
  const wanted = name.slice(0, 64).toLowerCase();
  return known
    .map((k) => ({ k, d: distance(wanted, k.toLowerCase()) }))
    .filter(({ d }) => d !== undefined)
    .sort((a, b) => a.d! - b.d! || (a.k < b.k ? -1 : 1))
    .slice(0, 3)
    .map(({ k }) => k);
}

/** Counts the slips between two names; a part counts as two. Undefined where they have nothing in common. */
function distance(a: string, b: string): number | undefined {
  const slips = levenshtein(a, b);
  const [short, long] = a.length < b.length ? [a, b] : [b, a];
  if (short.length >= 3 && long.includes(short)) return Math.min(slips, 2);
  return slips <= Math.max(1, Math.floor(short.length / 3)) ? slips : undefined;
}

function levenshtein(a: string, b: string): number {
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    last = row;
  }
  return last[b.length]!;
}
