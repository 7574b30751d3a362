import static io.nats.client.support.JsonValueUtils.mapBuilder;

import io.nats.client.Connection;
import io.nats.client.ConnectionListener;
import io.nats.client.Dispatcher;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.impl.Headers;
import io.nats.client.support.JsonParseException;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * A worker in Java, with nothing of ours: docs/protocol.md at level <em>standard</em> on jnats, and the tools of
 * conformance/README.md that go with it. Put yours into {@link #TOOLS}.
 *
 * <p>One thread runs each call and is interrupted at a cancel or timeout. A tool that does not stop then is answered for,
 * and keeps its place. What is out of bounds is answered at once, so nothing queues up.
 */
public final class Worker {
    static final long BEAT_MS = 1000, ACCEPT_AFTER_MS = 25, STOP_GRACE_MS = 250, DRAIN_GRACE_MS = 10_000;
    static final long PROGRESS_EVERY_MS = 50, DEFAULT_TIMEOUT_MS = 30_000, CANCEL_TTL_MS = 10_000;
    static final int MAX_CANCELS = 10_000, MAX_DEPTH = 64, MAX_ATTEMPT = 1_000_000;

    // --- the tools ---

    interface Handler {
        /** Runs one call, whose arguments fit the schema, and gives the result. A Fault says how it failed. */
        JsonValue handle(Map<String, JsonValue> args, Run run) throws Exception;
    }

    /** A tool as it is announced. Effect read goes for all. The schema's keys are sorted, without blanks. */
    record Tool(String name, String description, String schema, Handler handler) {
        /** Canonical: the fields in the order of docs/manifest.md. */
        String manifest() {
            return "{\"id\":\"%s\",\"version\":\"%s\",\"description\":\"%s\",\"input_schema\":%s,\"effect\":\"read\"}"
                .formatted(name, VERSION, description, schema);
        }

        String digest() throws Exception {
            byte[] sum = MessageDigest.getInstance("SHA-256").digest(manifest().getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(sum, 0, 16);
        }
    }

    static final String VERSION = "0.1.0"; // of all tools
    static final String ANY = "{\"type\":\"object\"}";
    static final List<Tool> TOOLS = List.of(
        new Tool("conf_echo", "Answers with its arguments.", ANY, (args, run) -> new JsonValue(args)),
        new Tool("conf_size", "Says how long a text is, in bytes of UTF-8.",
            "{\"properties\":{\"data\":{\"type\":\"string\"}},\"required\":[\"data\"],\"type\":\"object\"}",
            (args, run) -> mapBuilder().put("bytes", args.get("data").string.getBytes(StandardCharsets.UTF_8).length).toJsonValue()),
        new Tool("conf_add", "Adds two integers.",
            "{\"additionalProperties\":false,\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
                + "\"required\":[\"a\",\"b\"],\"type\":\"object\"}",
            (args, run) -> mapBuilder().put("sum", number(args, "a") + number(args, "b")).toJsonValue()),
        new Tool("conf_fail", "Fails as it is told to.",
            "{\"properties\":{\"kind\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"}},\"required\":[\"kind\",\"message\"],\"type\":\"object\"}",
            (args, run) -> {
                throw new Fault("error", args);
            }),
        new Tool("conf_crash", "Fails in a way that nobody classified.", ANY, (args, run) -> {
            throw new IllegalStateException("conf_crash was asked to");
        }),
        new Tool("conf_sleep", "Sleeps, and tells how long it has.",
            "{\"properties\":{\"ms\":{\"type\":\"integer\"},\"progress_every_ms\":{\"type\":\"integer\"}},\"required\":[\"ms\"],\"type\":\"object\"}",
            Worker::sleep),
        new Tool("conf_context", "Answers what it was told.", ANY, (args, run) -> run.told()));

    static JsonValue sleep(Map<String, JsonValue> args, Run run) throws InterruptedException {
        long ms = Math.max(0, number(args, "ms")), every = number(args, "progress_every_ms");
        boolean deaf = args.containsKey("ignore_cancel") && Boolean.TRUE.equals(args.get("ignore_cancel").bool);
        long begun = System.nanoTime();
        for (long done = 0; done < ms; done = (System.nanoTime() - begun) / 1_000_000) {
            try {
                Thread.sleep(every > 0 ? Math.min(every, ms - done) : ms - done);
            } catch (InterruptedException e) {
                if (!deaf) throw e;
            }
            if (every > 0) run.progress(Math.min(ms, (System.nanoTime() - begun) / 1_000_000), ms);
        }
        return mapBuilder().put("slept", ms).toJsonValue();
    }

    static long number(Map<String, JsonValue> args, String name) {
        JsonValue v = args.get(name);
        return v == null || v.number == null ? 0 : v.number.longValue();
    }

    // --- faults ---

    /** What a call ends with instead of a result: a record of docs/errors.md, and the frame that carries it. */
    static final class Fault extends Exception {
        private static final long serialVersionUID = 1;
        final String frame;
        final Map<String, JsonValue> record;

        Fault(String frame, Map<String, JsonValue> record) {
            super(null, null, false, false);
            this.frame = frame;
            this.record = new LinkedHashMap<>(record);
        }

        Fault(String frame, String kind, String execution, String message) {
            this(frame, Map.of("kind", new JsonValue(kind), "execution", new JsonValue(execution), "message", new JsonValue(message)));
        }

        static Fault malformed(String header, String problem) {
            return new Fault("error", "invalid_arguments", "not_started", "header " + header + ": " + problem);
        }

        String text(String field) {
            JsonValue v = record.get(field);
            return v == null || v.string == null ? "" : v.string;
        }
    }

    /** The HTTP status of a kind, for plain NATS service clients. */
    static int status(String kind) {
        return switch (kind) {
            case "invalid_arguments", "truncated_call" -> 400;
            case "denied", "approval_required" -> 403;
            case "tool_not_found", "not_found" -> 404;
            case "loop_blocked" -> 409;
            case "failed", "invalid_result" -> 424;
            case "rate_limited" -> 429;
            case "cancelled" -> 499;
            case "unsupported" -> 501;
            case "unavailable", "overloaded", "circuit_open" -> 503;
            case "timeout", "worker_lost", "partial", "deadline" -> 504;
            default -> 500;
        };
    }

    // --- arguments ---

    /** All that is wrong with arguments. It knows as much of JSON Schema as TOOLS need; yours may need a library. */
    static Map<String, JsonValue> check(String schema, byte[] payload) throws Exception {
        JsonValue args = read(payload);
        JsonValue rules = JsonParser.parse(schema);
        JsonValue properties = rules.map.getOrDefault("properties", JsonValue.EMPTY_MAP);
        List<JsonValue> wrong = new ArrayList<>();
        for (JsonValue name : rules.map.getOrDefault("required", JsonValue.EMPTY_ARRAY).array) {
            if (!args.map.containsKey(name.string)) wrong.add(violation(name.string, "a value", "nothing"));
        }
        for (var arg : args.map.entrySet()) {
            if (wrong.size() >= 50) break;
            JsonValue property = properties.map.get(arg.getKey()), v = arg.getValue();
            String expected = property == null ? null : property.map.get("type").string;
            boolean fits = expected == null
                ? rules.map.get("additionalProperties") == null
                : expected.equals("string") ? v.string != null : v.number != null && v.number.doubleValue() % 1 == 0;
            if (!fits) wrong.add(violation(arg.getKey(), expected == null ? "no such argument" : expected, cut(v.toJson(), 80)));
        }
        if (wrong.isEmpty()) return args.map;
        String words = wrong.stream().limit(5).map(v -> v.map.get("pointer").string + ": expected " + v.map.get("expected").string
            + ", got " + v.map.get("got").string).collect(Collectors.joining("; "));
        Fault f = new Fault("error", "invalid_arguments", "not_started", "arguments: " + words);
        f.record.put("violations", new JsonValue(wrong));
        throw f;
    }

    static JsonValue violation(String name, String expected, String got) {
        String pointer = "/" + cut(name, 200).replace("~", "~0").replace("/", "~1");
        return mapBuilder().put("pointer", pointer).put("expected", expected).put("got", got).toJsonValue();
    }

    /** The JSON object in a payload; none is an empty one. */
    static JsonValue read(byte[] payload) throws Fault {
        String problem;
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(payload)).toString();
            if (text.isBlank()) return JsonValue.EMPTY_MAP;
            checkShape(text);
            JsonValue v = JsonParser.parse(text, JsonParser.Option.KEEP_NULLS);
            if (v.map != null) return v;
            problem = "it is another value";
        } catch (CharacterCodingException e) {
            problem = "it is not UTF-8";
        } catch (JsonParseException | RuntimeException e) {
            problem = cut(String.valueOf(e.getMessage()), 200);
        }
        throw new Fault("error", "invalid_arguments", "not_started", "arguments: expected a JSON object: " + problem);
    }

    /** Refuses what jnats would not: its parser recurses without a limit, and passes over what follows the value. */
    static void checkShape(String text) throws JsonParseException {
        int depth = 0;
        boolean quoted = false;
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (quoted && c == '\\') i++;
            else if (c == '"') quoted = !quoted;
            else if (!quoted && (c == '{' || c == '[') && ++depth > MAX_DEPTH) throw new JsonParseException("it is more than " + MAX_DEPTH + " deep");
            else if (!quoted && (c == '}' || c == ']') && --depth == 0 && !text.substring(i + 1).isBlank()) {
                throw new JsonParseException("something follows it");
            }
        }
    }

    static String cut(String s, int most) {
        return s.length() <= most ? s : s.substring(0, most) + "…";
    }

    // --- one call ---

    static final Pattern REF = Pattern.compile("([A-Za-z0-9_-]{1,128})/([A-Za-z0-9_-]{1,128})/([1-9][0-9]{0,6})");

    /** A Tb-Call: turn, call and attempt. */
    record Ref(String turn, String call, int attempt) {
        /** Null where it is malformed. */
        static Ref parse(String text) {
            Matcher m = REF.matcher(text);
            if (!m.matches() || Integer.parseInt(m.group(3)) > MAX_ATTEMPT) return null;
            return new Ref(m.group(1), m.group(2), Integer.parseInt(m.group(3)));
        }

        String key() {
            return turn + "/" + call;
        }
    }

    /** A call from its admission to its one answer. Its lock is held while a frame is published, so that nothing follows the end. */
    final class Run implements Runnable {
        final Tool tool;
        final Ref ref; // null for a bare request, which hears nothing but the end
        final String reply, progress, session, key, traceparent;
        final long until; // System.nanoTime
        final byte[] payload;
        Thread thread;
        Fault stop; // why it was told to stop
        boolean ended, accepted;
        long said; // the last progress
        ScheduledFuture<?> acceptTimer, limitTimer, graceTimer;

        Run(Tool tool, Ref ref, String reply, Message m) throws Fault {
            this.tool = tool;
            this.ref = ref;
            this.reply = reply;
            progress = header(m, "Tb-Progress").isEmpty() ? reply : header(m, "Tb-Progress");
            session = header(m, "Tb-Session");
            key = !header(m, "Tb-Key").isEmpty() ? header(m, "Tb-Key") : ref == null ? "" : ref.key();
            traceparent = header(m, "traceparent");
            payload = m.getData();
            String ms = header(m, "Tb-Timeout-Ms");
            if (!ms.isEmpty() && (!ms.matches("[0-9]{1,10}") || Long.parseLong(ms) < 1 || Long.parseLong(ms) > Integer.MAX_VALUE)) {
                throw Fault.malformed("Tb-Timeout-Ms", "expected milliseconds from 1 to " + Integer.MAX_VALUE);
            }
            until = System.nanoTime() + 1_000_000 * (ms.isEmpty() ? DEFAULT_TIMEOUT_MS : Long.parseLong(ms));
            if (!mayAnswer(progress, tool.name)) throw Fault.malformed("Tb-Progress", "expected a reply subject of the tool or an inbox");
            for (String name : List.of("Tb-Key", "Tb-Session")) {
                if (header(m, name).length() > 1024) throw Fault.malformed(name, "expected at most 1024 bytes, got " + header(m, name).length());
            }
        }

        long left() {
            return Math.max(0, (until - System.nanoTime()) / 1_000_000);
        }

        void start() {
            if (ref != null) acceptTimer = timers.schedule(this::accept, ACCEPT_AFTER_MS, TimeUnit.MILLISECONDS);
            Fault late = new Fault("error", "timeout", "stopped", tool.name + " did not answer within " + left() + " ms");
            limitTimer = timers.schedule(() -> stop(late), left(), TimeUnit.MILLISECONDS);
            threads.execute(this);
        }

        @Override
        public void run() {
            synchronized (this) {
                thread = Thread.currentThread();
                if (stop != null) thread.interrupt();
            }
            JsonValue result = null;
            Fault fault = null;
            try {
                result = tool.handler.handle(check(tool.schema, payload), this);
            } catch (Fault f) {
                fault = f;
            } catch (Throwable t) {
                fault = new Fault("error", "internal", "unknown", "the tool threw " + t.getClass().getSimpleName());
                StringWriter trace = new StringWriter();
                t.printStackTrace(new PrintWriter(trace));
                fault.record.put("detail", new JsonValue(cut(trace.toString(), 8000)));
            }
            free(this); // first: who has the answer may ask again at once
            end(result, fault);
        }

        /** Answers, once: an error after the tool was told to stop means that it stopped. */
        synchronized void end(JsonValue result, Fault fault) {
            Thread.interrupted(); // the answer is not to be disturbed; nobody interrupts an ended run
            if (ended) return;
            ended = true;
            for (var timer : Arrays.asList(acceptTimer, limitTimer, graceTimer)) {
                if (timer != null) timer.cancel(false);
            }
            if (fault != null && stop != null) fault = stop;
            answer(reply, tool, ref, result, fault);
        }

        /** Tells the tool to stop, and answers for it where it does not. */
        synchronized void stop(Fault why) {
            if (ended || stop != null) return;
            stop = why;
            if (thread != null) thread.interrupt();
            graceTimer = timers.schedule(() -> {
                stop = new Fault("error", why.record);
                stop.record.put("execution", new JsonValue("unknown"));
                end(null, stop);
            }, STOP_GRACE_MS, TimeUnit.MILLISECONDS);
        }

        synchronized void accept() {
            if (ended || accepted || ref == null) return;
            accepted = true;
            tell(progress, "accept", "");
        }

        /** Tells how far it is, at most 20 times a second. */
        synchronized void progress(long done, long total) {
            long now = System.nanoTime();
            if (ended || ref == null || Thread.currentThread().isInterrupted() || said != 0 && now - said < PROGRESS_EVERY_MS * 1_000_000) return;
            said = now;
            accept();
            tell(progress, "progress", mapBuilder().put("done", done).put("total", total).toJson());
        }

        JsonValue told() {
            return mapBuilder().put("turn", ref == null ? "" : ref.turn).put("call", ref == null ? "" : ref.call)
                .put("attempt", ref == null ? 0 : ref.attempt).put("session", session).put("key", key).put("timeout_ms", left())
                .put("traceparent", traceparent).toJsonValue();
        }
    }

    // --- the worker ---

    final Connection nats;
    final String root, id; // "tb.v1."
    final int capacity;
    final ExecutorService threads = Executors.newCachedThreadPool();
    final ScheduledExecutorService timers = Executors.newScheduledThreadPool(1);
    final List<JsonValue> lines = toolLines(); // of heartbeats
    final Map<String, Tool> tools = TOOLS.stream().collect(Collectors.toMap(Tool::name, t -> t));

    // Guarded by this.
    final Set<Run> runs = new HashSet<>();
    final Map<String, long[]> cancelled = new HashMap<>(); // calls that a cancel overtook: up to which attempt, and when
    boolean quiet, leaving;
    long seq;

    Worker(String url, String prefix, int capacity) throws Exception {
        this.capacity = capacity;
        root = prefix + ".v1.";
        nats = Nats.connect(new Options.Builder().server(url).connectionName("worker in Java").maxReconnects(-1)
            .reconnectWait(Duration.ofMillis(250)).pingInterval(Duration.ofSeconds(2))
            .connectionListener((c, event) -> {
                if (event == ConnectionListener.Events.RESUBSCRIBED) timers.execute(() -> beat("beat"));
            }).build());
        id = nats.createInbox().replace("_INBOX.", "");
    }

    void serve() throws Exception {
        // Calls come last, when all that may follow one is there.
        Dispatcher own = nats.createDispatcher(), calls = nats.createDispatcher();
        own.subscribe(root + "to." + id, m -> own(m, calls));
        own.subscribe(root + "rollcall", m -> timers.execute(() -> beat("beat")));
        for (Tool t : TOOLS) own.subscribe(root + "cancel." + t.name, m -> cancel(m, t));
        for (Tool t : TOOLS) calls.subscribe(root + "call." + t.name, "workers", m -> take(m, t.name, false));
        nats.flush(Duration.ofSeconds(10));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(calls)));
        timers.execute(() -> beat("hello"));
        timers.scheduleAtFixedRate(() -> beat("beat"), BEAT_MS, BEAT_MS, TimeUnit.MILLISECONDS);
    }

    /** A message that asks for a run. Chosen says that it came on our own subject, where a header names the tool. */
    void take(Message m, String name, boolean chosen) {
        String reply = m.getReplyTo();
        if (reply == null || !mayAnswer(reply, name)) return;
        Tool tool = tools.get(name);
        Ref ref = Ref.parse(header(m, "Tb-Call"));
        try {
            String said = header(m, "Tb-Tool"), type = header(m, "Content-Type").split(";", 2)[0].trim();
            if (!header(m, "Tb-Frame").isEmpty()) throw Fault.malformed("Tb-Frame", "expected none on a call");
            if (ref == null && !header(m, "Tb-Call").isEmpty()) throw Fault.malformed("Tb-Call", "expected <turn>/<call>/<attempt>");
            if (!said.isEmpty() && !said.equals(name)) throw Fault.malformed("Tb-Tool", "it names another tool than the subject, " + name);
            if (!type.isEmpty() && !type.equalsIgnoreCase("application/json")) {
                throw new Fault("error", "unsupported", "not_started", "header Content-Type: send application/json");
            }
            if (!header(m, "Tb-Blob").isEmpty()) {
                throw new Fault("error", "unsupported", "not_started", "header Tb-Blob: this worker reads no claim checks");
            }
            if (tool == null) {
                throw new Fault("nack", "tool_not_found", "not_started", name.isEmpty()
                    ? "header Tb-Tool is missing: a call to a worker of one's choice must name the tool" : "this worker has no tool " + cut(name, 80));
            }
            admit(new Run(tool, ref, reply, m), chosen);
        } catch (Fault f) {
            answer(reply, tool, ref, null, f);
        }
    }

    /** Gives a call its place, or says why not. One that leaves takes what the queue group had sent it by then. */
    synchronized void admit(Run r, boolean chosen) throws Fault {
        long[] gone = r.ref == null ? null : cancelled.get(r.ref.key());
        if (gone != null && r.ref.attempt <= gone[0] && fresh(gone)) {
            throw new Fault("stopped", "cancelled", "not_started", "the call was cancelled before it came");
        }
        if (quiet || leaving && chosen) throw new Fault("nack", "overloaded", "not_started", "this worker takes no more calls");
        if (runs.size() >= capacity) {
            throw new Fault("nack", "overloaded", "not_started", "this worker runs " + capacity + " calls, which is all it may");
        }
        runs.add(r);
        r.start();
    }

    synchronized void free(Run r) {
        runs.remove(r);
        notifyAll();
    }

    static boolean fresh(long[] gone) {
        return System.nanoTime() - gone[1] < CANCEL_TTL_MS * 1_000_000;
    }

    /** The caller chooses the reply subject, so it must be one that is made for answers. */
    boolean mayAnswer(String reply, String name) {
        if (reply.length() > 512 || !reply.matches("[!-)+-=?-~]+") || List.of(reply.split("\\.", -1)).contains("")) return false;
        String[] token = reply.split("\\.", 5);
        if (token.length > 1 && (token[0].equals("_INBOX") || token[0].startsWith("_INBOX_") || token[0].equals("_R_"))) return true;
        if (!(reply.startsWith(root + "reply.") || reply.startsWith(root + "res.")) || token.length < 5) return false;
        return tools.containsKey(name) ? token[3].equals(name) : tools.containsKey(token[3]);
    }

    /** Ends an attempt. */
    void answer(String reply, Tool tool, Ref ref, JsonValue result, Fault f) {
        String body = f == null ? result.toJson() : null;
        long most = nats.getMaxPayload() - (64 << 10);
        byte[] data = body == null ? null : body.getBytes(StandardCharsets.UTF_8);
        if (data != null && data.length > most) {
            f = new Fault("error", "invalid_result", "done", "the result has " + data.length + " bytes, at most " + most + " fit into a message");
        }
        if (f == null) {
            nats.publish(reply, data);
            return;
        }
        String line = cut(f.text("message").replaceAll("\\s+", " ").replaceAll("[^ -~]", "?").strip(), 200); // jnats sends ASCII
        Headers h = frame(f.frame).put("Nats-Service-Error", line.isEmpty() ? "it failed" : line)
            .put("Nats-Service-Error-Code", String.valueOf(status(f.text("kind"))));
        if (number(f.record, "retry_after_ms") > 0) h.put("Tb-Retry-After-Ms", String.valueOf(number(f.record, "retry_after_ms")));
        Map<String, JsonValue> record = new LinkedHashMap<>(f.record);
        record.put("worker", new JsonValue(id));
        if (tool != null) record.put("tool", new JsonValue(tool.name));
        if (ref != null) record.put("attempt", new JsonValue(ref.attempt));
        nats.publish(reply, h, new JsonValue(record).toJson().getBytes(StandardCharsets.UTF_8));
    }

    Headers frame(String frame) {
        return new Headers().put("Tb-Frame", frame).put("Tb-Worker", id);
    }

    /** Publishes a frame that ends nothing. */
    void tell(String to, String frame, String body) {
        nats.publish(to, frame(frame), body.getBytes(StandardCharsets.UTF_8));
    }

    /** A message on our own subject: a call, or a frame about calls. Unknown frames are passed over. */
    void own(Message m, Dispatcher calls) {
        String reply = m.getReplyTo();
        boolean answerable = reply != null && mayAnswer(reply, "");
        switch (header(m, "Tb-Frame")) {
            case "" -> take(m, header(m, "Tb-Tool"), true);
            case "cancel" -> cancel(m, null);
            case "drain" -> new Thread(() -> System.exit(0)).start();
            case "quarantine" -> {
                synchronized (this) {
                    quiet = true;
                }
                timers.execute(() -> beat("beat"));
            }
            case "ping" -> {
                Headers h = frame("pong");
                if (!header(m, "Tb-Call").isEmpty()) h.put("Tb-Running", runs(Ref.parse(header(m, "Tb-Call"))) ? "1" : "0");
                if (answerable) nats.publish(reply, h, null);
            }
            case "describe" -> {
                String all = TOOLS.stream().map(Tool::manifest).collect(Collectors.joining(","));
                if (answerable) tell(reply, "manifests", "{\"worker\":\"" + id + "\",\"manifests\":[" + all + "]}");
            }
            default -> { }
        }
    }

    synchronized boolean runs(Ref ref) {
        return ref != null && runs.stream().anyMatch(r -> ref.equals(r.ref) && !r.ended);
    }

    /** Stops an attempt and older ones of its call. Where it is not here it may be on its way. */
    void cancel(Message m, Tool tool) {
        Ref ref = Ref.parse(header(m, "Tb-Call"));
        if (ref == null) return;
        List<Run> found;
        synchronized (this) {
            found = runs.stream().filter(r -> r.ref != null && r.ref.key().equals(ref.key()) && (tool == null || tool == r.tool)).toList();
            if (found.isEmpty()) {
                if (cancelled.size() >= MAX_CANCELS) cancelled.values().removeIf(gone -> !fresh(gone));
                if (cancelled.size() < MAX_CANCELS) cancelled.put(ref.key(), new long[] {ref.attempt, System.nanoTime()});
            }
        }
        for (Run r : found) {
            if (r.ref.attempt <= ref.attempt) r.stop(new Fault("stopped", "cancelled", "stopped", "the call was cancelled"));
        }
    }

    static List<JsonValue> toolLines() throws Exception { // each tool, by the digest of its manifest
        List<JsonValue> lines = new ArrayList<>();
        for (Tool t : TOOLS) lines.add(mapBuilder().put("id", t.name).put("version", VERSION).put("digest", t.digest()).toJsonValue());
        return lines;
    }

    synchronized void beat(String state) {
        String beat = mapBuilder().put("worker", id).put("state", state).put("tools", new JsonValue(lines)).put("running", runs.size())
            .put("capacity", capacity).put("leaked", runs.stream().filter(r -> r.ended).count()).put("draining", quiet || leaving)
            .put("sdk", "example-java/0.1.0").put("every_ms", BEAT_MS).put("seq", ++seq).toJson();
        nats.publish(root + "hb." + id, beat.getBytes(StandardCharsets.UTF_8));
    }

    /** Takes no more calls, once the queue groups know, waits for those that run, and ends the process with 0. */
    void leave(Dispatcher calls) {
        try {
            synchronized (this) {
                leaving = true;
            }
            beat("beat");
            calls.drain(Duration.ofSeconds(5)).get(5, TimeUnit.SECONDS);
            long until = System.nanoTime() + DRAIN_GRACE_MS * 1_000_000;
            synchronized (this) {
                for (long left; !runs.isEmpty() && (left = (until - System.nanoTime()) / 1_000_000) > 0; ) wait(left);
            }
            timers.shutdownNow();
            beat("bye");
            nats.flush(Duration.ofSeconds(5));
        } catch (Exception e) {
            System.err.println("worker: leaving: " + e);
        }
        Runtime.getRuntime().halt(0); // exit says 143 after a signal
    }

    /** The first value of a header, its name in any case; "" where there is none. */
    static String header(Message m, String name) {
        List<String> all = m.getHeaders() == null ? null : m.getHeaders().getIgnoreCase(name);
        return all == null || all.isEmpty() ? "" : all.get(0);
    }

    static String setting(String name, String otherwise) {
        String v = System.getenv(name);
        return v == null || v.isEmpty() ? otherwise : v;
    }

    public static void main(String[] args) throws Exception {
        String concurrency = setting("TOOLBUS_CONCURRENCY", "16");
        if (!concurrency.matches("[1-9][0-9]{0,5}")) {
            System.err.println("worker: TOOLBUS_CONCURRENCY: expected a number from 1, got " + cut(concurrency, 40));
            System.exit(2);
        }
        new Worker(setting("TOOLBUS_NATS_URL", "nats://127.0.0.1:4222"), setting("TOOLBUS_PREFIX", "tb"), Integer.parseInt(concurrency)).serve();
    }
}
