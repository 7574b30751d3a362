package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A context that is asked late, or never before it ended, says what one says that was asked at once.
func TestViewAskedLate(t *testing.T) {
	deadline := func(*view) { time.Sleep(time.Second); synctest.Wait() }
	stop := func(v *view) { v.stop(errCancelled) }
	end := (*view).end
	cases := []struct {
		name  string
		steps []func(*view)
		err   error
		cause error
	}{
		{"nothing", nil, nil, nil},
		{"the deadline", []func(*view){deadline}, context.DeadlineExceeded, errTimeout},
		{"a stop", []func(*view){stop}, context.Canceled, errCancelled},
		{"the return", []func(*view){end}, context.Canceled, errReturned},
		{"a stop, then the deadline", []func(*view){stop, deadline}, context.Canceled, errCancelled},
		{"the deadline, then a stop", []func(*view){deadline, stop}, context.DeadlineExceeded, errTimeout},
		{"the deadline, then the return", []func(*view){deadline, end}, context.DeadlineExceeded, errTimeout},
		{"the return, then the deadline", []func(*view){end, deadline}, context.Canceled, errReturned},
		{"a stop, then the return", []func(*view){stop, end}, context.Canceled, errCancelled},
		{"the return, then a stop", []func(*view){end, stop}, context.Canceled, errReturned},
	}
	for _, c := range cases {
		for asked := range len(c.steps) + 1 {
			synctest.Test(t, func(t *testing.T) {
				v := &view{base: context.Background(), call: &Call{}, deadline: time.Now().Add(time.Second)}
				for i, step := range c.steps {
					if i == asked {
						v.Done()
					}
					step(v)
				}
				select {
				case <-v.Done():
				default:
					if c.err != nil {
						t.Errorf("%s, asked before step %d: not done", c.name, asked)
					}
				}
				if err, cause := v.Err(), context.Cause(v); err != c.err || cause != c.cause {
					t.Errorf("%s, asked before step %d: %v because of %v, want %v because of %v", c.name, asked, err, cause, c.err, c.cause)
				}
				if at, ok := v.Deadline(); !ok || at != v.deadline {
					t.Errorf("%s: Deadline = %v, %v", c.name, at, ok)
				}
				v.end()
			})
		}
	}
}

// What is made of a view ends with it, for its reason, and without a goroutine to watch.
func TestViewOfViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		v := &view{base: context.Background(), call: &Call{Tool: "t"}, deadline: time.Now().Add(time.Second)}
		child, cancel := context.WithTimeout(context.WithValue(v, key{}, "v"), time.Minute)
		defer cancel()
		if c, ok := FromContext(child); !ok || c.Tool != "t" {
			t.Errorf("FromContext = %v, %v", c, ok)
		}
		if at, _ := child.Deadline(); at != v.deadline {
			t.Errorf("Deadline = %v, want that of the call", at)
		}
		<-child.Done()
		if !errors.Is(child.Err(), context.DeadlineExceeded) || context.Cause(child) != errTimeout {
			t.Errorf("%v because of %v, want the call's timeout", child.Err(), context.Cause(child))
		}
		v.end()
	})
}

// Many who ask at once, also in print, and while the call ends, are told the same.
func TestViewIsShared(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			v := &view{base: context.Background(), call: &Call{}, deadline: time.Now().Add(time.Second)}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					<-v.Done()
					if err, cause := v.Err(), context.Cause(v); err != context.Canceled || cause != errCancelled && cause != errReturned {
						t.Errorf("%v because of %v", err, cause)
					}
				})
				all.Go(func() {
					child, cancel := context.WithTimeout(v, time.Minute)
					defer cancel()
					<-child.Done()
					if got, want := context.Cause(child), context.Cause(v); got != want {
						t.Errorf("the child ended because of %v, its parent of %v", got, want)
					}
				})
				all.Go(func() {
					over := make(chan struct{})
					context.AfterFunc(v, func() { close(over) })
					<-over
				})
				all.Go(func() { _ = fmt.Sprintf("%v %+v", v, context.WithValue(v, callKey{}, 1)) })
			}
			all.Go(func() { v.stop(errCancelled) })
			all.Go(v.end)
			all.Wait()
		})
	}
}
