"""The golden vectors that every language replays byte for byte: wire/testdata of the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolbus.wire import check, codec, headers, records, refs, scan, subjects
from toolbus.wire.errors import WireError

TESTDATA = Path(__file__).resolve().parents[3] / "wire" / "testdata"
pytestmark = pytest.mark.skipif(not TESTDATA.is_dir(), reason="no wire/testdata: this is not a checkout of the repository")

TYPES: dict[str, type[records.Record]] = {
    "heartbeat": records.Heartbeat,
    "turn_request": records.TurnRequest,
    "turn_control": records.TurnControl,
    "turn_reply": records.TurnReply,
    "late_query": records.LateQuery,
    "late_record": records.LateRecord,
    "trace_query": records.TraceQuery,
    "page": records.Page,
    "progress": records.ProgressRecord,
    "fault": records.Fault,
    "describe": records.Describe,
    "event": records.Event,
    "outcome": records.Outcome,
}


def load(name: str) -> Any:
    path = TESTDATA / name
    return json.loads(path.read_text()) if path.exists() else []


def code_of(act: Any) -> str:
    try:
        act()
    except WireError as e:
        return e.code
    return ""


@pytest.mark.parametrize("v", load("records.json"), ids=lambda v: v["name"])
def test_records(v: dict[str, str]) -> None:
    cls, text, packed = TYPES[v["type"]], v["json"].encode(), bytes.fromhex(v["msgpack_hex"])
    for content_type, data in ((headers.JSON, text), (headers.MSGPACK, packed)):
        record = codec.unmarshal(content_type, data, cls)
        assert codec.decode(data, cls) == record
        assert codec.marshal(headers.JSON, record).decode() == v["json"]
        assert codec.marshal(headers.MSGPACK, record).hex() == v["msgpack_hex"]
        for cut in range(len(data)):
            with pytest.raises(WireError):
                codec.unmarshal(content_type, data[:cut], cls)
        with pytest.raises(WireError):
            codec.unmarshal(content_type, data + b"x", cls)


@pytest.mark.parametrize("v", load("hostile.json"), ids=lambda v: v["name"])
def test_hostile(v: dict[str, Any]) -> None:
    data = bytes.fromhex(v["hex"]) * max(1, v.get("repeat", 1)) + bytes.fromhex(v.get("tail_hex", ""))
    into = v["into"].removeprefix("checked ")

    def take() -> None:
        if into == "scan":
            scan.scan(data)
            return
        record = codec.unmarshal(headers.MSGPACK, data, TYPES[into])
        if v["into"].startswith("checked "):
            check.check(record)

    assert code_of(take) == v["code"]


def test_call_refs() -> None:
    vectors = load("callrefs.json")
    for v in vectors["good"]:
        ref = refs.CallRef.parse(v["text"])
        assert (ref.turn, ref.call, ref.attempt, ref.key) == (v["turn"], v["call"], v["attempt"], v["key"])
        assert str(ref) == v["text"]
    for text in vectors["bad"]:
        assert code_of(lambda text=text: refs.CallRef.parse(text)) == "call_ref", text


def test_blob_refs() -> None:
    vectors = load("blobref.json")
    for v in vectors["good"]:
        ref = refs.BlobRef.parse(v["text"])
        assert (ref.id, ref.size, ref.chunks, ref.sha256) == (v["id"], v["size"], v["chunks"], v["sha256"])
        assert str(ref) == v["text"]
    for text in vectors["bad"]:
        assert code_of(lambda text=text: refs.BlobRef.parse(text)) == "blob_ref", text


def snake(method: str) -> str:
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(method))


def test_subjects() -> None:
    vectors = load("subjects.json")
    for prefix in vectors["prefixes"]["good"]:
        subjects.Subjects(prefix)
    for prefix in vectors["prefixes"]["bad"]:
        assert code_of(lambda prefix=prefix: subjects.Subjects(prefix)) == "name", prefix
    for v in vectors["subjects"]:
        args = [int(a) if v["method"] in ("Blob", "Res") and a.isdigit() else a for a in map(str, v["args"])]
        assert getattr(subjects.Subjects(v["prefix"]), snake(v["method"]))(*args) == v["subject"]
    s = subjects.Subjects()
    for v in vectors["parse_reply"]:
        assert s.parse_reply(v["subject"]) == (tuple(v["parts"]) if v["ok"] else None), v
    for v in vectors["tool_of"]:
        assert s.tool_of(v["subject"]) == (v["parts"][0] if v["ok"] else None), v
    for v in vectors["reply_rule"]:
        rule = subjects.ReplyRule(subjects.Subjects(v.get("prefix", "")), *v.get("extra", []))
        assert rule.allows(v["reply"], v["tool"]) == v["allow"], v


def one(header: dict[str, list[str]]) -> dict[str, str]:
    """Headers as nats-py gives them: one value for each name."""
    return {k: v[0] for k, v in header.items() if v}


def test_headers() -> None:
    vectors = load("headers.json")
    for v in vectors["get"]:
        assert headers.get(one(v["header"]), v["name"]) == v["value"], v
    for v in vectors["set"]:
        assert code_of(lambda v=v: headers.check_pair(v["name"], v["value"])) == v["code"], v["name"]
    for v in vectors["content_type"]:
        if v["type"]:
            assert headers.content_type(one(v["header"])) == v["type"]
        else:
            assert code_of(lambda v=v: headers.content_type(one(v["header"]))) == "content_type"
    for v in vectors["frame"]:
        frame = headers.frame_of(one(v["header"]))
        assert (frame, headers.ends(frame)) == (v["frame"], v["ends"])
    for v in vectors["inbound"]:
        assert sorted(headers.inbound(one(v["header"]))) == v["left"]
    for v in vectors["filter"]:
        assert sorted(headers.outbound(one(v["header"]))) == v["left"]
