package executor

import "github.com/toolbus/toolbus/wire"

// ObserverFunc makes an Observer of a func.
type ObserverFunc func(*wire.Event)

// Event calls f.
func (f ObserverFunc) Event(ev *wire.Event) { f(ev) }
