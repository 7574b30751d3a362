package wire

import (
	"strings"

	"github.com/toolbus/toolbus/tool"
)

// EventFrame is what a message with an Event says of itself, from an executor to the client of a turn.
const EventFrame Frame = "event"

// Frames to a turn, on its control subject, beside Cancel; and of the answers of executors to what they are asked.
const (
	AddFrame   Frame = "add"   // a TurnControl: more calls
	CloseFrame Frame = "close" // a TurnControl: no more calls will be added
	TurnFrame  Frame = "turn"  // a TurnReply
	LateFrame  Frame = "late"  // a LateRecord
	PageFrame  Frame = "page"  // a Page
)

// TurnToken stands where a tool's name would in the reply subject of a turn request. No tool has it: see tool.CheckName.
const TurnToken = tool.Reserved

// TurnOf is the turn of a subject that TurnCtl made. It is false for any other.
func (s Subjects) TurnOf(subject string) (turn string, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.root)
	if !ok {
		return "", false
	}
	if rest, ok = strings.CutPrefix(rest, "turn.ctl."); !ok || !isID(rest) {
		return "", false
	}
	return rest, true
}
