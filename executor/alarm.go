package executor

import "time"

// An alarm wakes a run. Most runs end long before the time that theirs is set to: then it serves another.
type alarm struct {
	timer *time.Timer
	run   *run // changed only while the timer is stopped and will not fire
}

// arm sets an alarm for r.
func (e *Executor) arm(r *run, d time.Duration) *alarm {
	a, _ := e.alarms.Get().(*alarm)
	if a == nil {
		a = &alarm{run: r}
		a.timer = time.AfterFunc(d, func() { a.run.due() })
		return a
	}
	a.run = r
	a.timer.Reset(d)
	return a
}

// disarm stops an alarm. One that goes off meanwhile serves nobody else: its run has nothing left to do then.
func (e *Executor) disarm(a *alarm) {
	if a.timer.Stop() {
		a.run = nil
		e.alarms.Put(a)
	}
}
