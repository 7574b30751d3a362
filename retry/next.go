package retry

import (
	"fmt"
	"math"
	"time"
)

// NoDeadline is the Step.Remaining of a turn that has no deadline.
const NoDeadline time.Duration = math.MaxInt64

// A Step is where one call stands when an attempt has failed.
type Step struct {
	Attempt int           // attempts made so far, from 1
	Since   time.Duration // since the first failure; 0 at that failure itself
	Roll    float64       // the dice for the next attempt: Roll(seed, call, Attempt+1)
	Hint    time.Duration // the worker asked for at least this wait (retry-after); 0 where it did not

	// Remaining is the time until the deadline. Zero or less means that none is left; see NoDeadline.
	Remaining time.Duration
}

// Next is whether there is another attempt, after which delay, and why. A hint is a floor: jitter then only adds to it,
// up to JitterPercent and as far as there is room. An attempt has to start before the deadline, and at most MaxTotal
// after the first failure.
func (p Policy) Next(in Step) (delay time.Duration, ok bool, because string) {
	p = p.inRange()
	since := max(in.Since, 0)
	left := p.MaxTotal - since
	switch {
	case in.Attempt >= p.MaxAttempts && p.MaxAttempts == 1:
		return 0, false, "the only attempt is used up"
	case in.Attempt >= p.MaxAttempts:
		return 0, false, fmt.Sprintf("all %d attempts are used up", p.MaxAttempts)
	case in.Remaining <= 0:
		return 0, false, "no time is left before the deadline"
	case in.Hint > max(left, 0):
		return 0, false, fmt.Sprintf("the tool asked for a wait of %s, and %s are left of the retry time of %s",
			short(in.Hint), short(max(left, 0)), short(p.MaxTotal))
	}

	delay = p.Delay(in.Attempt+1, in.Roll)
	why := ""
	if in.Hint > 0 && delay < p.hinted(in, left) {
		delay, why = p.hinted(in, left), ", as the tool asked"
	}
	switch {
	case delay > left:
		return 0, false, fmt.Sprintf("the retry time of %s is used up: %s since the first failure, and the next wait is %s",
			short(p.MaxTotal), short(since), short(delay))
	case delay >= in.Remaining:
		return 0, false, fmt.Sprintf("the wait of %s does not fit: %s are left before the deadline",
			short(delay), short(in.Remaining))
	}
	return delay, true, fmt.Sprintf("attempt %d of %d after %s%s", in.Attempt+1, p.MaxAttempts, short(delay), why)
}

// hinted is the wait that the tool asked for with jitter on top, which is left out as far as it would not fit.
func (p Policy) hinted(in Step, left time.Duration) time.Duration {
	jitter := time.Duration(float64(in.Hint) * p.JitterPercent / 100 * within(in.Roll, 0, 1))
	return max(in.Hint, min(in.Hint+jitter, left, in.Remaining-1))
}

// short is d as people write it, to the millisecond unless it is less than one.
func short(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}
