"""A tool of mode lines: started once, one line of JSON in and one out. Standard error is the log."""

import json
import re
import sys

for line in sys.stdin:
    call = json.loads(line)
    if call.get("cancel"):
        continue  # it is over before a cancel could be read
    text = call["args"]["text"]
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if slug:
        answer = {"id": call["id"], "result": {"slug": slug}}
    else:
        answer = {"id": call["id"], "error": {"kind": "invalid_arguments", "message": "the text has no letter or digit"}}
    print(json.dumps(answer), flush=True)
