#!/usr/bin/env python3
"""Count the words of a text: a Toolbus tool without an SDK.

The arguments come on standard input as one JSON object; the result goes to standard output.
Manifest and how to run it: wordcount.yaml.
"""

import json
import re
import sys
from collections import Counter

EX_DATAERR = 65  # invalid_arguments, says the worker to whoever called


def main() -> int:
    try:
        args = json.load(sys.stdin)
        text, top = args["text"], args.get("top", 5)
    except (ValueError, KeyError) as err:
        print(f"arguments: {err!r}", file=sys.stderr)
        return EX_DATAERR

    lines = text.splitlines()
    counts: Counter[str] = Counter()
    for n, line in enumerate(lines, 1):
        counts.update(word.lower() for word in re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", line))
        if n % 10_000 == 0:
            print(f"::progress {n}/{len(lines)} lines", file=sys.stderr, flush=True)

    # Equally frequent words come in the order of the alphabet, so that the same text gives the same result.
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
    json.dump(
        {
            "lines": len(lines),
            "words": counts.total(),
            "characters": len(text),
            "top": [{"word": word, "count": count} for word, count in frequent],
        },
        sys.stdout,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
