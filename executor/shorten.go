package executor

import (
	"fmt"
	"slices"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// shorten sends an outcome that could not be sent as it is, for f: without its largest values, and at last without any,
// nor what else may be long. Whoever waits for it learns how each call ended in any case.
func (s *stream) shorten(p parcel, f *fault.Fault) *fault.Fault {
	tries := []int{s.e.bus.Inline() / 2, 0}
	if len(p.body) > wire.MaxBlob {
		tries = append([]int{wire.MaxBlob / 2}, tries...)
	}
	for _, most := range tries {
		ev := *p.ev
		ev.Outcome = lessened(ev.Outcome, most, f)
		body, err := wire.Marshal(s.codec, &ev)
		if err != nil {
			return fault.New(fault.Internal, "%v", err)
		}
		if f = s.e.answer(p.to, wire.EventFrame, body); f == nil {
			return nil
		}
	}
	return f
}

// lessened is the outcome with at most so many bytes of values, the smallest of them; f is why. A call whose value is left
// out has failed for its caller, though it was done. Without any values the attempts are left out too.
func lessened(out *wire.Outcome, most int, f *fault.Fault) *wire.Outcome {
	less := *out
	less.Results = slices.Clone(out.Results)
	bySize := make([]*tool.Result, len(less.Results))
	for i := range less.Results {
		bySize[i] = &less.Results[i]
	}
	slices.SortStableFunc(bySize, func(a, b *tool.Result) int { return len(a.Value) - len(b.Value) })
	kind := f.Kind
	if kind == fault.InvalidArguments { // of the store: it is too large
		kind = fault.InvalidResult
	}
	left, lost := most, 0
	for _, r := range bySize {
		if most == 0 {
			r.Attempts = nil
			r.Sentence = fault.Truncate(r.Sentence, leastWords)
			if r.Fault != nil {
				r.Fault = &fault.Fault{Kind: r.Fault.Kind, Message: fault.Truncate(r.Fault.Message, leastWords), Execution: r.Fault.Execution, Tool: r.Fault.Tool}
			}
		}
		if left -= len(r.Value); left >= 0 || len(r.Value) == 0 {
			continue
		}
		own := fault.New(kind, "%s answered, and its %d bytes could not be sent: %s", r.Tool, len(r.Value), fault.Truncate(f.Message, leastWords))
		own.Execution, own.Tool = fault.Done, r.Tool
		r.Status, r.Value, r.ContentType, r.Fault, r.Sentence = tool.Failed, nil, "", own, own.Message
		lost++
	}
	if lost > 0 {
		less.Sentence += fmt.Sprintf("; but the values of %s could not be sent: %s", plural(lost, "call"), fault.Truncate(f.Message, leastWords))
		if less.Status != wire.CancelledTurn {
			less.Status = wire.Escalated
		}
	}
	return &less
}
