package demo

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/fault"
)

func TestTrip(t *testing.T) {
	for _, tc := range []struct{ name, args, want string }{
		{"flight_search", `{"from":"ZRH","to":"LIS"}`, `{"flights":[{"id":"TB347","from":"ZRH","to":"LIS","departs":"07:55","price":86},{"id":"TB141","from":"ZRH","to":"LIS","departs":"09:25","price":148},{"id":"TB238","from":"ZRH","to":"LIS","departs":"16:40","price":245}]}`},
		{"flight_cache", `{"from":"ZRH","to":"LIS"}`, `{"flights":[{"id":"TB347","from":"ZRH","to":"LIS","departs":"07:55","price":86}],"cached":true}`},
		{"hotel_search", `{"city":"Lisbon","nights":2}`, `{"hotels":[{"id":"H56","name":"Hotel Station","city":"Lisbon","price":256},{"id":"H33","name":"Hotel Old Town","city":"Lisbon","price":298},{"id":"H15","name":"Hotel Harbour","city":"Lisbon","price":414}]}`},
		{"hotel_cache", `{"city":"Lisbon","nights":2}`, `{"hotels":[{"id":"H56","name":"Hotel Station","city":"Lisbon","price":256}],"cached":true}`},
		{"weather", `{"city":"Lisbon"}`, `{"city":"Lisbon","sky":"some clouds","celsius":26}`},
		{"book_trip", `{"flight":"TB101"}`, `{"booking":"BK80547","flight":"TB101"}`},
	} {
		got, f := call(t, Config{}, tc.name, tc.args)
		again, _ := call(t, Config{}, tc.name, tc.args)
		if f != nil || got != tc.want || again != got {
			t.Errorf("%s %s = %s and %s, %v, want %s both times", tc.name, tc.args, got, again, f, tc.want)
		}
		_, f = call(t, Config{}, tc.name, tc.args[:len(tc.args)-1]+`,"fail":"permanent"}`)
		wantFault(t, tc.name, f, fault.Failed, "fails for good")
		_, f = call(t, Config{}, tc.name, tc.args[:len(tc.args)-1]+`,"fail":"transient"}`)
		wantFault(t, tc.name, f, fault.Upstream, "does not answer")
		_, f = call(t, Config{}, tc.name, tc.args[:len(tc.args)-1]+`,"fail":"often"}`)
		wantFault(t, tc.name, f, fault.InvalidArguments, "fail")
	}
}

func TestTripTakesItsTime(t *testing.T) {
	for _, tc := range []struct {
		delayMs int64
		took    time.Duration
		want    error
	}{
		{0, 0, nil},
		{700, 700 * time.Millisecond, nil},
		{5000, 1500 * time.Millisecond, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := weather(ctx, weatherArgs{knobs: knobs{DelayMs: tc.delayMs}, City: "Lisbon"})
			if took := time.Since(start); took != tc.took || !errors.Is(err, tc.want) {
				t.Errorf("delay_ms %d: %v after %v, want %v after %v", tc.delayMs, err, took, tc.want, tc.took)
			}
		})
	}
	if _, err := weather(t.Context(), weatherArgs{knobs: knobs{DelayMs: 60_001}}); fault.Of(err).Kind != fault.InvalidArguments {
		t.Errorf("a delay of more than a minute: %v, want invalid_arguments", err)
	}
}
