package worker

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/toolbus/toolbus/wire"
)

// ServiceName is how workers appear to NATS service discovery: `nats micro ls` lists each as an instance of it, with an
// endpoint per tool.
const ServiceName = "toolbus-worker"

// discovery answers $SRV.PING, INFO and STATS with the records of the micro package, but not with its Service. That
// would own the subscriptions for calls, and so: report a refused subscription to nobody, not say when a drain is over,
// count a call as done when its goroutine has begun, and set the handlers of a connection that is not ours. What is left
// of it is these three records.
func (w *Worker) discovery() map[string]func(*nats.Msg) {
	started := time.Now().UTC()
	identity := micro.ServiceIdentity{
		Name:     ServiceName,
		ID:       w.id,
		Version:  version,
		Metadata: map[string]string{"tb.worker": w.id, "tb.version": "1", "tb.sdk": SDK},
	}
	ping := micro.Ping{ServiceIdentity: identity, Type: micro.PingResponseType}
	info := func() any {
		return micro.Info{ServiceIdentity: identity, Type: micro.InfoResponseType, Description: "tools on the bus", Endpoints: w.endpoints()}
	}
	records := map[micro.Verb]func() any{
		micro.PingVerb:  func() any { return ping },
		micro.InfoVerb:  info,
		micro.StatsVerb: func() any { return w.serviceStats(identity, started) },
	}

	answers := map[string]func(*nats.Msg){}
	for verb, record := range records {
		answer := func(m *nats.Msg) {
			data, err := json.Marshal(record())
			if err != nil {
				w.log.Error("service record not encoded", "err", err)
				return
			}
			w.reply(m, nil, data)
		}
		for _, who := range [][2]string{{}, {ServiceName}, {ServiceName, w.id}} {
			if subject, err := micro.ControlSubject(verb, who[0], who[1]); err == nil {
				answers[subject] = answer
			}
		}
	}
	return answers
}

// endpoints lists the tools with their manifests, as long as all fit into half a message. What does not fit is without
// one; Describe has them all.
func (w *Worker) endpoints() []micro.EndpointInfo {
	room := w.bus.Inline() / 2
	cat := w.catalog.Load()
	list := make([]micro.EndpointInfo, 0, len(cat.order))
	for i, t := range cat.order {
		e := micro.EndpointInfo{
			Name:       t.name,
			Subject:    w.subjects.Call(t.name),
			QueueGroup: wire.QueueGroup,
			Metadata:   map[string]string{"tb.digest": cat.lines[i].Digest},
		}
		manifest := t.manifest.JSON()
		if room -= 2 * len(manifest); room > 0 { // its quotes will be escaped
			e.Metadata["tb.manifest"] = string(manifest)
		}
		list = append(list, e)
	}
	return list
}

// serviceStats count whole calls. The load, in data, is that of the worker: its tools share the places.
func (w *Worker) serviceStats(identity micro.ServiceIdentity, started time.Time) micro.Stats {
	s := w.Stats()
	load, _ := json.Marshal(map[string]any{"running": s.Running, "capacity": s.Capacity, "leaked": s.Leaked, "draining": s.Draining})

	w.mu.Lock()
	defer w.mu.Unlock()
	stats := micro.Stats{ServiceIdentity: identity, Type: micro.StatsResponseType, Started: started, Endpoints: []*micro.EndpointStats{}}
	for _, t := range w.catalog.Load().order {
		e := &micro.EndpointStats{
			Name:           t.name,
			Subject:        w.subjects.Call(t.name),
			QueueGroup:     wire.QueueGroup,
			NumRequests:    int(t.calls),
			NumErrors:      int(t.errors),
			LastError:      t.lastError,
			ProcessingTime: t.busy,
			Data:           load,
		}
		if t.calls > 0 {
			e.AverageProcessingTime = t.busy / time.Duration(t.calls)
		}
		stats.Endpoints = append(stats.Endpoints, e)
	}
	return stats
}
