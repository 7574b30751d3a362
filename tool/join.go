package tool

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// A Join says how many of the calls that one waits for must have given a value before it begins: JoinAll, JoinAny, a
// number in digits, or JoinAvailable. A value is a success, a fallback's, a default or a partial one.
type Join string

// The joins that are not numbers. The empty Join is JoinAll.
const (
	JoinAll       Join = "all"       // each of them
	JoinAny       Join = "any"       // the first
	JoinAvailable Join = "available" // what is there when all have ended, or at Call.JoinByMs
)

// Need is how many of n calls must have given a value, and false where j is no join. JoinAvailable needs none.
func (j Join) Need(n int) (int, bool) {
	switch j {
	case "", JoinAll:
		return n, true
	case JoinAny:
		return min(1, n), true
	case JoinAvailable:
		return 0, true
	}
	k, err := strconv.Atoi(string(j))
	return k, err == nil && k >= 1 && strconv.Itoa(k) == string(j)
}

// UnmarshalJSON takes a number as well as a text, so that a person may write join: 2.
func (j *Join) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && (b[0] == '-' || '0' <= b[0] && b[0] <= '9') {
		*j = Join(b)
		return nil
	}
	s := string(*j) // which null leaves as it is
	if err := json.Unmarshal(b, &s); err != nil || len(s) > 32 {
		return fmt.Errorf("join: expected all, any, available or a number, got %s", plain(string(b), maxShown))
	}
	*j = Join(s)
	return nil
}
