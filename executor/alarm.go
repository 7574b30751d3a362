package executor

import "time"

// An alarm wakes a run. Most runs end long before the time that theirs is set to: then it serves another. One that went off
// and has not been heard yet is never set again, so that it speaks once for each time, and to the run that set it.
type alarm struct {
	timer *time.Timer
	run   *run // changed only while the timer is stopped and has nothing left to say
}

// arm sets an alarm for r.
func (e *Executor) arm(r *run, d time.Duration) *alarm {
	a, _ := e.alarms.Get().(*alarm)
	if a == nil {
		a = &alarm{run: r}
		a.timer = time.AfterFunc(d, func() { a.run.due(a) })
		return a
	}
	a.run = r
	a.timer.Reset(d)
	return a
}

// disarm takes back an alarm that is stopped, and was heard if it ever went off. Nil is none.
func (e *Executor) disarm(a *alarm) {
	if a != nil {
		a.run = nil
		e.alarms.Put(a)
	}
}
