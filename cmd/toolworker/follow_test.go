package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A change that the worker could not take, as NATS was away, is not lost; and the log hears of it once.
func TestKeepUpTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		changed := make(chan struct{}, 1)
		changed <- struct{}{}
		tries := 0
		var said strings.Builder
		keepUp(ctx, changed, slog.New(slog.NewTextHandler(&said, nil)), func() (string, error) {
			if tries++; tries < 4 {
				return "", errors.New("flush: timeout")
			}
			return "tool a", nil
		})
		if tries != 4 {
			t.Errorf("tools were set %d times, want 4: until it went well", tries)
		}
		if log := said.String(); strings.Count(log, "keeps the old ones") != 1 || !strings.Contains(log, "tool a") {
			t.Errorf("the log says\n%s, want one complaint, and the tools", log)
		}
	})
}
