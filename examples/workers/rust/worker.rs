//! A worker in Rust, with nothing of ours: docs/protocol.md at level *standard* on `async-nats`, and the tools of
//! conformance/README.md that go with it. Put yours into `call` and `TOOLS`.
//!
//! One task holds each call and runs its tool in a task of its own, which is aborted at a cancel or timeout: a tool stops
//! at its next `.await`. What is out of bounds is answered at once, so nothing queues up.

use std::{
    collections::HashMap,
    env,
    error::Error,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_nats::{Client, HeaderMap, Message, Subscriber};
use futures_util::StreamExt;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::{JoinError, JoinSet},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

const BEAT: Duration = Duration::from_secs(1);
const ACCEPT_AFTER: Duration = Duration::from_millis(25);
const PROGRESS_EVERY: Duration = Duration::from_millis(50);
const STOP_GRACE: Duration = Duration::from_millis(250);
const DRAIN_GRACE: Duration = Duration::from_secs(10);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30); // of a call that does not say; what a manifest means, too
const CANCEL_TTL: Duration = Duration::from_secs(10);
const MAX_CANCELS: usize = 10_000;
const MAX_MS: u64 = (1 << 31) - 1;

type Object = Map<String, Value>;

// --- the tools ---

/// The version of all tools.
const VERSION: &str = "0.1.0";

/// Name, description and input schema of each. Effect `read` goes for all.
const TOOLS: &[(&str, &str, &str)] = &[
    ("conf_echo", "Answers with its arguments.", r#"{"type":"object"}"#),
    (
        "conf_size",
        "Says how long a text is, in bytes of UTF-8.",
        r#"{"properties":{"data":{"type":"string"}},"required":["data"],"type":"object"}"#,
    ),
    (
        "conf_add",
        "Adds two integers.",
        r#"{"additionalProperties":false,"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"type":"object"}"#,
    ),
    (
        "conf_fail",
        "Fails as it is told to.",
        r#"{"properties":{"kind":{"type":"string"},"message":{"type":"string"}},"required":["kind","message"],"type":"object"}"#,
    ),
    ("conf_crash", "Fails in a way that nobody classified.", r#"{"type":"object"}"#),
    (
        "conf_sleep",
        "Sleeps, and tells how long it has.",
        r#"{"properties":{"ms":{"type":"integer"},"progress_every_ms":{"type":"integer"}},"required":["ms"],"type":"object"}"#,
    ),
    ("conf_context", "Answers what it was told.", r#"{"type":"object"}"#),
];

/// Runs one tool, whose arguments fit its schema. `told` is what the call says beside them.
async fn call(tool: String, args: Object, told: Told, progress: mpsc::Sender<Value>) -> Result<Value, Fault> {
    let number = |name: &str| args.get(name).and_then(Value::as_f64).unwrap_or(0.0) as i64;
    match tool.as_str() {
        "conf_echo" => Ok(Value::Object(args)),
        "conf_size" => Ok(json!({"bytes": args["data"].as_str().map_or(0, str::len)})),
        "conf_add" => Ok(json!({"sum": number("a").saturating_add(number("b"))})),
        "conf_fail" => Err(Fault { frame: "error", record: args }),
        "conf_crash" => panic!("conf_crash was asked to"),
        "conf_sleep" => {
            let ms = number("ms").max(0);
            let step = Duration::from_millis(match number("progress_every_ms") {
                n if n > 0 => n as u64,
                _ => ms as u64,
            });
            let begun = Instant::now();
            let whole = Duration::from_millis(ms as u64);
            while let Some(left) = whole.checked_sub(begun.elapsed()).filter(|d| !d.is_zero()) {
                sleep(step.min(left)).await;
                let done = begun.elapsed().min(whole).as_millis() as u64;
                _ = progress.try_send(json!({"done": done, "total": ms})); // full: it comes too often
            }
            Ok(json!({"slept": ms}))
        }
        _ => Ok(json!({
            "turn": told.turn, "call": told.call, "attempt": told.attempt, "session": told.session, "key": told.key,
            "timeout_ms": told.deadline.saturating_duration_since(Instant::now()).as_millis() as u64,
            "traceparent": told.traceparent,
        })),
    }
}

/// What a call says beside its arguments.
struct Told {
    turn: String,
    call: String,
    attempt: u64,
    session: String,
    key: String,
    traceparent: String,
    deadline: Instant,
}

// --- faults ---

/// What a call ends with instead of a result: a record of docs/errors.md, and the frame that carries it.
struct Fault {
    frame: &'static str,
    record: Object,
}

fn fault(kind: &str, execution: &str, message: impl Into<String>) -> Fault {
    let mut record = Object::new();
    record.insert("kind".into(), kind.into());
    record.insert("message".into(), message.into().into());
    record.insert("execution".into(), execution.into());
    Fault { frame: "error", record }
}

fn nack(kind: &str, message: impl Into<String>) -> Fault {
    Fault { frame: "nack", ..fault(kind, "not_started", message) }
}

fn malformed(header: &str, problem: impl std::fmt::Display) -> Fault {
    fault("invalid_arguments", "not_started", format!("header {header}: {problem}"))
}

/// The HTTP status of a kind, for plain NATS service clients.
fn status(kind: &str) -> &'static str {
    match kind {
        "invalid_arguments" | "truncated_call" => "400",
        "denied" | "approval_required" => "403",
        "tool_not_found" | "not_found" => "404",
        "loop_blocked" => "409",
        "failed" | "invalid_result" => "424",
        "rate_limited" => "429",
        "cancelled" => "499",
        "unsupported" => "501",
        "unavailable" | "overloaded" | "circuit_open" => "503",
        "timeout" | "worker_lost" | "partial" | "deadline" => "504",
        _ => "500",
    }
}

// --- arguments ---

/// All that is wrong with arguments. It knows as much of JSON Schema as `TOOLS` needs; yours may need the crate jsonschema.
fn check(schema: &Value, payload: &[u8]) -> Result<Object, Fault> {
    let args = match payload.trim_ascii() {
        [] => Object::new(),
        text => match serde_json::from_slice(text) {
            Ok(Value::Object(args)) => args,
            Ok(_) => {
                return Err(fault("invalid_arguments", "not_started", "arguments: expected a JSON object, got another value"));
            }
            Err(e) => return Err(fault("invalid_arguments", "not_started", format!("arguments: expected a JSON object: {e}"))),
        },
    };
    let mut wrong = Vec::new();
    let mut say = |name: &str, expected: &str, got: String| {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        wrong.push(json!({"pointer": pointer, "expected": expected, "got": got.chars().take(80).collect::<String>()}));
    };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !args.contains_key(name) {
            say(name, "a value", "nothing".into());
        }
    }
    for (name, value) in args.iter().take(1000) {
        let expected = schema["properties"][name]["type"].as_str();
        let fits = match expected {
            Some("string") => value.is_string(),
            Some("integer") => value.as_f64().is_some_and(|n| n.fract() == 0.0),
            _ => expected.is_some() || schema["additionalProperties"] != json!(false),
        };
        if !fits {
            say(name, expected.unwrap_or("no such argument"), value.to_string());
        }
    }
    if wrong.is_empty() {
        return Ok(args);
    }
    wrong.truncate(50);
    let words: Vec<_> =
        wrong.iter().take(5).map(|v| format!("{}: expected {}, got {}", v["pointer"], v["expected"], v["got"])).collect();
    let mut f = fault("invalid_arguments", "not_started", format!("arguments: {}", words.join("; ")));
    f.record.insert("violations".into(), wrong.into());
    Err(f)
}

// --- the worker ---

/// A tool as it is announced.
struct Tool {
    name: &'static str,
    schema: Value,
    manifest: String, // canonical: the fields in the order of docs/manifest.md, keys in schemas sorted, no blanks
    digest: String,   // the first 16 bytes of its SHA-256
}

struct Worker {
    nats: Client,
    root: String, // "tb.v1."
    id: String,
    capacity: usize,
    tools: Vec<Tool>,
    seq: AtomicU64, // of heartbeats
    wish: Notify,   // for a heartbeat now
    leave: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    runs: HashMap<u64, Run>,
    cancelled: HashMap<String, (u64, Instant)>, // calls that a cancel overtook: up to which attempt, and when
    quiet: bool,                                // takes no more
}

struct Run {
    tool: &'static str,
    call: String, // <turn>/<call>; empty for a bare request
    attempt: u64,
    stop: Option<oneshot::Sender<()>>,
}

/// A call that was read and found good.
struct Request {
    tool: &'static str,
    call: String,
    attempt: u64,
    reply: String,
    progress: String,
    timeout: Duration,
    args: Object,
    told: Told,
}

impl Worker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A message that asks for a run. Without a tool it came on the worker's own subject, where the header says it.
    async fn take(self: &Arc<Self>, m: Message, tool: Option<&'static str>) {
        let reply = m.reply.as_ref().map_or(String::new(), |s| s.to_string());
        let name = tool.unwrap_or_else(|| header(&m, "Tb-Tool"));
        if !self.may_answer(&reply, name) {
            return;
        }
        let (name, attempt) = (name.to_string(), parse_ref(header(&m, "Tb-Call")).map_or(0, |r| r.1));
        let refused = match self.read(&m, &name, reply.clone()) {
            Ok(q) => match self.admit(&q, tool.is_none()) {
                Ok((n, stop)) => {
                    tokio::spawn(self.clone().run(n, q, stop));
                    return;
                }
                Err(f) => f,
            },
            Err(f) => f,
        };
        self.answer(&reply, &name, attempt, Err(refused)).await;
    }

    /// The caller chooses the reply subject, so it must be one that is made for answers.
    fn may_answer(&self, reply: &str, tool: &str) -> bool {
        let first = reply.split('.').next().unwrap_or("");
        let inbox = ["_INBOX", "_R_"].contains(&first) || first.starts_with("_INBOX_");
        let known = self.tools.iter().any(|t| t.name == tool);
        let below = |kind: &str| {
            let rest = reply.strip_prefix(&self.root).and_then(|s| s.strip_prefix(kind)).unwrap_or("");
            let to = rest.split_once('.').map_or("", |(t, _)| t);
            if known { to == tool } else { self.tools.iter().any(|t| t.name == to) }
        };
        reply.len() <= 512
            && reply.contains('.')
            && reply.split('.').all(|token| !token.is_empty())
            && reply.bytes().all(|b| b.is_ascii_graphic() && b != b'*' && b != b'>')
            && (inbox || below("reply.") || below("res."))
    }

    /// Reads the headers and arguments of a call, and refuses what is wrong with them.
    fn read(&self, m: &Message, name: &str, reply: String) -> Result<Request, Fault> {
        let get = |name: &str| header(m, name).to_string();
        let (frame, reference, said) = (get("Tb-Frame"), get("Tb-Call"), get("Tb-Tool"));
        if !frame.is_empty() {
            return Err(malformed("Tb-Frame", "expected none on a call"));
        }
        let (call, attempt) = match reference.as_str() {
            "" => (String::new(), 0),
            text => parse_ref(text).ok_or_else(|| malformed("Tb-Call", "expected <turn>/<call>/<attempt>"))?,
        };
        if !said.is_empty() && said != name {
            return Err(malformed("Tb-Tool", format!("it names another tool than the subject, {name}")));
        }
        let kind = get("Content-Type").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        if !["", "application/json"].contains(&kind.as_str()) {
            return Err(fault("unsupported", "not_started", "header Content-Type: send application/json"));
        }
        if !get("Tb-Blob").is_empty() {
            return Err(fault("unsupported", "not_started", "header Tb-Blob: this worker reads no claim checks"));
        }
        let limit = match get("Tb-Timeout-Ms").as_str() {
            "" => DEFAULT_TIMEOUT,
            text => match text.parse::<u64>() {
                Ok(ms) if (1..=MAX_MS).contains(&ms) => Duration::from_millis(ms),
                _ => return Err(malformed("Tb-Timeout-Ms", format!("expected milliseconds from 1 to {MAX_MS}"))),
            },
        };
        let (key, session) = (get("Tb-Key"), get("Tb-Session"));
        for (header, value) in [("Tb-Key", &key), ("Tb-Session", &session)] {
            if value.len() > 1024 {
                return Err(malformed(header, format!("expected at most 1024 bytes, got {}", value.len())));
            }
        }
        let progress = match get("Tb-Progress") {
            s if s.is_empty() => reply.clone(),
            s if self.may_answer(&s, name) => s,
            _ => return Err(malformed("Tb-Progress", "expected a reply subject of the tool or an inbox")),
        };
        let Some(tool) = self.tools.iter().find(|t| t.name == name) else {
            return Err(nack(
                "tool_not_found",
                match name {
                    "" => "header Tb-Tool is missing: a call to a worker of one's choice must name the tool".into(),
                    _ => format!("this worker has no tool {name:.80}"),
                },
            ));
        };
        let (turn, id) = call.split_once('/').unwrap_or_default();
        let told = Told {
            turn: turn.into(),
            call: id.into(),
            attempt,
            session,
            key: if key.is_empty() { call.clone() } else { key },
            traceparent: get("traceparent"),
            deadline: Instant::now() + limit,
        };
        let args = check(&tool.schema, &m.payload)?;
        Ok(Request { tool: tool.name, call, attempt, reply, progress, timeout: limit, args, told })
    }

    /// Gives a call its place, or says why not. One that leaves takes what the queue group had sent it by then.
    fn admit(&self, q: &Request, chosen: bool) -> Result<(u64, oneshot::Receiver<()>), Fault> {
        let mut s = self.lock();
        if s.cancelled.get(&q.call).is_some_and(|(upto, at)| q.attempt <= *upto && at.elapsed() < CANCEL_TTL) {
            let f = fault("cancelled", "not_started", "the call was cancelled before it came");
            return Err(Fault { frame: "stopped", ..f });
        }
        if s.quiet || chosen && *self.leave.borrow() {
            return Err(nack("overloaded", "this worker takes no more calls"));
        }
        if s.runs.len() >= self.capacity {
            return Err(nack("overloaded", format!("this worker runs {} calls, which is all it may", s.runs.len())));
        }
        let (stop, stopped) = oneshot::channel();
        s.last += 1;
        let n = s.last;
        s.runs.insert(n, Run { tool: q.tool, call: q.call.clone(), attempt: q.attempt, stop: Some(stop) });
        Ok((n, stopped))
    }

    /// Holds one call until its end, which is answered once.
    async fn run(self: Arc<Self>, n: u64, q: Request, mut stop: oneshot::Receiver<()>) {
        let (say, mut said) = mpsc::channel(1);
        let mut task = tokio::spawn(call(q.tool.into(), q.args, q.told, say));
        let limit = sleep(q.timeout);
        let accept = sleep(ACCEPT_AFTER);
        tokio::pin!(limit, accept);
        let bare = q.call.is_empty(); // it hears nothing but the end
        let (mut accepted, mut last) = (bare, None::<Instant>);
        let stopped = loop {
            let frame = tokio::select! {
                biased;
                ended = &mut task => break Err(ended),
                Ok(()) = &mut stop => break Ok(Fault { frame: "stopped", ..fault("cancelled", "stopped", "the call was cancelled") }),
                () = &mut limit => break Ok(fault("timeout", "stopped", format!("{} did not answer within {:?}", q.tool, q.timeout))),
                () = &mut accept, if !accepted => None,
                Some(p) = said.recv(), if !bare => Some(p),
            };
            if !accepted {
                accepted = true;
                self.tell(&q.progress, "accept", String::new()).await;
            }
            if let Some(p) = frame.filter(|_| last.is_none_or(|t| t.elapsed() >= PROGRESS_EVERY)) {
                last = Some(Instant::now());
                self.tell(&q.progress, "progress", p.to_string()).await;
            }
        };
        let end = match stopped {
            Err(ended) => ended.unwrap_or_else(|e| Err(broken(e))),
            Ok(mut f) => {
                task.abort();
                if timeout(STOP_GRACE, &mut task).await.is_err() {
                    f.frame = "error";
                    f.record.insert("execution".into(), "unknown".into()); // it has not come to an .await
                }
                Err(f)
            }
        };
        self.lock().runs.remove(&n); // first: who has the answer may ask again at once
        self.answer(&q.reply, q.tool, q.attempt, end).await;
    }

    /// Ends an attempt.
    async fn answer(&self, reply: &str, tool: &str, attempt: u64, end: Result<Value, Fault>) {
        let mut h = HeaderMap::new();
        let mut body = match end {
            Ok(value) => value.to_string(),
            Err(mut f) => {
                let text = |name: &str| f.record.get(name).and_then(Value::as_str).unwrap_or("");
                let words = Some(text("message")).filter(|m| !m.trim().is_empty()).unwrap_or("it failed");
                let line: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(128).collect();
                h.insert("Tb-Frame", f.frame);
                h.insert("Tb-Worker", self.id.as_str());
                h.insert("Nats-Service-Error", line.trim());
                h.insert("Nats-Service-Error-Code", status(text("kind")));
                if let Some(ms) = f.record.get("retry_after_ms").and_then(Value::as_u64).filter(|ms| *ms > 0) {
                    h.insert("Tb-Retry-After-Ms", ms.to_string());
                }
                f.record.insert("worker".into(), self.id.as_str().into());
                if self.tools.iter().any(|t| t.name == tool) {
                    f.record.insert("tool".into(), tool.into());
                }
                if attempt > 0 {
                    f.record.insert("attempt".into(), attempt.into());
                }
                Value::Object(f.record).to_string()
            }
        };
        let most = self.nats.max_payload().saturating_sub(64 << 10);
        if body.len() > most {
            h = HeaderMap::new();
            h.insert("Tb-Frame", "error");
            h.insert("Tb-Worker", self.id.as_str());
            let f = fault(
                "invalid_result",
                "done",
                format!("the result has {} bytes, at most {most} fit into a message", body.len()),
            );
            body = Value::Object(f.record).to_string();
        }
        self.send(reply, h, body).await;
    }

    /// Publishes a frame that ends nothing.
    async fn tell(&self, to: &str, frame: &str, body: String) {
        let mut h = HeaderMap::new();
        h.insert("Tb-Frame", frame);
        h.insert("Tb-Worker", self.id.as_str());
        self.send(to, h, body).await;
    }

    async fn send(&self, to: &str, h: HeaderMap, body: String) {
        let sent = match h.is_empty() {
            true => self.nats.publish(to.to_string(), body.into()).await,
            false => self.nats.publish_with_headers(to.to_string(), h, body.into()).await,
        };
        if let Err(e) = sent {
            eprintln!("worker: not sent to {to}: {e}");
        }
    }

    /// A message on the worker's own subject: a call, or a frame about calls. Unknown frames are passed over.
    async fn own(self: &Arc<Self>, m: Message) {
        let reply = m.reply.as_ref().map_or(String::new(), |s| s.to_string());
        match header(&m, "Tb-Frame") {
            "" => self.take(m, None).await,
            "cancel" => self.cancel(&m, None),
            "drain" => _ = self.leave.send_replace(true),
            "quarantine" => {
                self.lock().quiet = true;
                self.wish.notify_one();
            }
            "ping" if self.may_answer(&reply, "") => {
                let mut h = HeaderMap::new();
                h.insert("Tb-Frame", "pong");
                h.insert("Tb-Worker", self.id.as_str());
                let named = header(&m, "Tb-Call");
                if !named.is_empty() {
                    let runs = parse_ref(named)
                        .is_some_and(|(call, n)| self.lock().runs.values().any(|r| r.call == call && r.attempt == n));
                    h.insert("Tb-Running", if runs { "1" } else { "0" });
                }
                self.send(&reply, h, String::new()).await;
            }
            "describe" if self.may_answer(&reply, "") => {
                let all: Vec<_> = self.tools.iter().map(|t| t.manifest.as_str()).collect();
                self.tell(&reply, "manifests", format!(r#"{{"worker":"{}","manifests":[{}]}}"#, self.id, all.join(","))).await;
            }
            _ => {}
        }
    }

    /// Stops an attempt and older ones of its call. Where it is not here it may be on its way.
    fn cancel(&self, m: &Message, tool: Option<&str>) {
        let Some((call, attempt)) = parse_ref(header(m, "Tb-Call")) else { return };
        let mut s = self.lock();
        let mut here = false;
        for r in s.runs.values_mut().filter(|r| r.call == call && tool.is_none_or(|t| t == r.tool)) {
            here = true;
            if r.attempt <= attempt {
                _ = r.stop.take().map(|stop| stop.send(()));
            }
        }
        if here {
            return;
        }
        if s.cancelled.len() >= MAX_CANCELS {
            s.cancelled.retain(|_, (_, at)| at.elapsed() < CANCEL_TTL);
        }
        if s.cancelled.len() < MAX_CANCELS {
            s.cancelled.insert(call, (attempt, Instant::now()));
        }
    }

    async fn beat(&self, state: &str) {
        let (running, quiet) = {
            let s = self.lock();
            (s.runs.len(), s.quiet || *self.leave.borrow())
        };
        let tools: Vec<_> = self.tools.iter().map(|t| json!({"id": t.name, "version": VERSION, "digest": t.digest})).collect();
        let beat = json!({
            "worker": self.id, "state": state, "tools": tools, "running": running, "capacity": self.capacity, "draining": quiet,
            "sdk": "example-rust/0.1.0", "every_ms": BEAT.as_millis() as u64, "seq": self.seq.fetch_add(1, Relaxed) + 1,
        });
        self.send(&format!("{}hb.{}", self.root, self.id), HeaderMap::new(), beat.to_string()).await;
    }

    /// Waits until it is told to leave, no more calls can come, and those that run have ended.
    async fn drained(&self, mut calls: JoinSet<()>) {
        _ = self.leave.subscribe().wait_for(|leave| *leave).await;
        self.wish.notify_one();
        while calls.join_next().await.is_some() {}
        let until = Instant::now() + DRAIN_GRACE;
        while !self.lock().runs.is_empty() && Instant::now() < until {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn broken(e: JoinError) -> Fault {
    let mut f = fault("internal", "unknown", "the tool panicked");
    f.record.insert("detail".into(), e.to_string().into());
    f
}

/// The first value of a header, its name in any case.
fn header<'a>(m: &'a Message, name: &str) -> &'a str {
    let all = m.headers.iter().flat_map(|h| h.iter());
    let mut found = all.filter(|(k, _)| AsRef::<str>::as_ref(*k).eq_ignore_ascii_case(name));
    found.next().and_then(|(_, v)| v.first()).map_or("", |v| v.as_str())
}

/// `<turn>/<call>` and the attempt of a Tb-Call.
fn parse_ref(text: &str) -> Option<(String, u64)> {
    let id = |s: &str| (1..=128).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let [turn, call, n] = text.split('/').collect::<Vec<_>>()[..] else { return None };
    let attempt = n.parse::<u64>().ok().filter(|a| (1..=1_000_000).contains(a) && a.to_string() == n)?;
    (id(turn) && id(call)).then(|| (format!("{turn}/{call}"), attempt))
}

fn tool(&(name, description, schema): &(&'static str, &str, &str)) -> Tool {
    let manifest = format!(
        r#"{{"id":"{name}","version":"{VERSION}","description":"{description}","input_schema":{schema},"effect":"read"}}"#
    );
    let digest = Sha256::digest(&manifest)[..16].iter().map(|b| format!("{b:02x}")).collect();
    Tool { name, schema: serde_json::from_str(schema).expect("the schema is JSON"), manifest, digest }
}

/// Hands on the calls of a tool until the worker leaves; then those that had come by then.
async fn listen(mut sub: Subscriber, w: Arc<Worker>, tool: &'static str) {
    let mut leave = w.leave.subscribe();
    let mut leaving = false;
    loop {
        tokio::select! {
            Ok(()) = leave.changed(), if !leaving => {
                leaving = true;
                _ = sub.drain().await;
            }
            m = sub.next() => match m {
                Some(m) => w.take(m, Some(tool)).await,
                None => return,
            },
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, otherwise: &str| env::var(name).ok().filter(|v| !v.is_empty()).unwrap_or(otherwise.into());
    let url = setting("TOOLBUS_NATS_URL", "nats://127.0.0.1:4222");
    let capacity = setting("TOOLBUS_CONCURRENCY", "16").parse().ok().filter(|n| *n > 0);
    let capacity = capacity.ok_or("TOOLBUS_CONCURRENCY: expected a number from 1")?;
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let nats =
        async_nats::ConnectOptions::new().name("worker in Rust").ping_interval(Duration::from_secs(2)).connect(url).await?;

    let w = Arc::new(Worker {
        id: nats.new_inbox().replace("_INBOX.", ""),
        root: setting("TOOLBUS_PREFIX", "tb") + ".v1.",
        capacity,
        tools: TOOLS.iter().map(tool).collect(),
        seq: AtomicU64::new(0),
        wish: Notify::new(),
        leave: watch::Sender::new(false),
        state: Mutex::default(),
        nats: nats.clone(),
    });

    // Calls come last, when all that may follow one is there.
    let mut own = nats.subscribe(format!("{}to.{}", w.root, w.id)).await?;
    let mut rollcall = nats.subscribe(format!("{}rollcall", w.root)).await?;
    tokio::spawn({
        let w = w.clone();
        async move {
            while let Some(m) = own.next().await {
                w.own(m).await
            }
        }
    });
    tokio::spawn({
        let w = w.clone();
        async move {
            while rollcall.next().await.is_some() {
                w.wish.notify_one()
            }
        }
    });
    let mut calls = JoinSet::new();
    for t in &w.tools {
        let mut cancels = nats.subscribe(format!("{}cancel.{}", w.root, t.name)).await?;
        let (w2, name) = (w.clone(), t.name);
        tokio::spawn(async move {
            while let Some(m) = cancels.next().await {
                w2.cancel(&m, Some(name))
            }
        });
        let sub = nats.queue_subscribe(format!("{}call.{}", w.root, t.name), "workers".into()).await?;
        calls.spawn(listen(sub, w.clone(), t.name));
    }
    nats.flush().await?;
    w.beat("hello").await;

    let mut every = interval(BEAT);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    every.tick().await; // the first one is due at once
    let drained = w.drained(calls);
    tokio::pin!(drained);
    loop {
        tokio::select! {
            () = &mut drained => break,
            _ = every.tick() => {}
            () = w.wish.notified() => {}
            _ = term.recv() => { w.leave.send_replace(true); }
            _ = tokio::signal::ctrl_c() => { w.leave.send_replace(true); }
        }
        w.beat("beat").await;
    }
    w.beat("bye").await;
    nats.flush().await?;
    Ok(())
}
