package otel

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Every span, event and attribute is named here. What OpenTelemetry itself names comes from its Go package, in one version;
// the names for generative AI are our own constants, because that package has dropped them.
const schemaURL = semconv.SchemaURL

// The spans. Those of one tool have its name or its subject after these words.
const (
	spanTurn    = "turn"
	spanTool    = "execute_tool"
	spanSend    = "send"
	spanProcess = "process"
	spanLate    = "late_result"
)

// The conventions for generative AI: https://github.com/open-telemetry/semantic-conventions-genai.
const (
	genOperation    = attribute.Key("gen_ai.operation.name")
	genToolName     = attribute.Key("gen_ai.tool.name")
	genToolType     = attribute.Key("gen_ai.tool.type")
	genToolCallID   = attribute.Key("gen_ai.tool.call.id")
	genToolArgs     = attribute.Key("gen_ai.tool.call.arguments")
	genToolResult   = attribute.Key("gen_ai.tool.call.result")
	genConversation = attribute.Key("gen_ai.conversation.id")
)

// What has no convention.
const (
	ourTurn      = attribute.Key("toolbus.turn")
	ourCall      = attribute.Key("toolbus.call")
	ourCalls     = attribute.Key("toolbus.calls")    // how many
	ourStatus    = attribute.Key("toolbus.status")   // of a turn or of a call
	ourAttempt   = attribute.Key("toolbus.attempt")  // from 1
	ourAttempts  = attribute.Key("toolbus.attempts") // how many
	ourWorker    = attribute.Key("toolbus.worker")
	ourExecutor  = attribute.Key("toolbus.executor")
	ourExecution = attribute.Key("toolbus.execution") // whether a failed attempt ran
	ourClass     = attribute.Key("toolbus.class")     // transient or permanent
	ourTool      = attribute.Key("toolbus.tool")      // of an event: an alternative, or the breaker's
	ourFallback  = attribute.Key("toolbus.fallback_tool")
	ourDecision  = attribute.Key("toolbus.decision")
	ourBecause   = attribute.Key("toolbus.because")
	ourDelay     = attribute.Key("toolbus.delay_ms")
	ourBreaker   = attribute.Key("toolbus.breaker_state")
	ourDone      = attribute.Key("toolbus.progress.done")
	ourTotal     = attribute.Key("toolbus.progress.total")
	ourMessage   = attribute.Key("toolbus.progress.message") // on opt-in
	ourUnshown   = attribute.Key("toolbus.progress.unshown") // how many more there were
	ourCut       = attribute.Key("toolbus.content.cut")      // arguments or result were longer than they are here
)

// The events on spans.
const (
	eventDecision    = "toolbus.decision"
	eventRetry       = "toolbus.retry"
	eventAlternative = "toolbus.alternative"
	eventBreaker     = "toolbus.breaker"
	eventProgress    = "toolbus.progress"
	eventSentAgain   = "toolbus.sent_again" // the same attempt to another worker: the first refused it
	eventCancel      = "toolbus.cancel"
	eventDeadline    = "toolbus.deadline"
	eventAdded       = "toolbus.calls_added"
	eventSkipped     = "toolbus.skipped"
)
