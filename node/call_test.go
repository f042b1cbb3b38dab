package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An answered call ends when its answer's body was read, and without that a second later.
// A call without an answer ends at once.
func TestLifetime(t *testing.T) {
	for _, limit := range []time.Duration{30 * time.Second, -1} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{opts: Options{CallTimeout: limit}}
			begin := func() *lifetime {
				ctx, cancel := context.WithCancel(t.Context())
				b := s.lifetime(ctx)
				unbind := b.unbind
				b.unbind = func() bool { defer cancel(); return unbind() } // as callers do
				b.bodyOpened()
				return b
			}
			ended := func(b *lifetime) bool {
				synctest.Wait()
				return b.ctx.Err() != nil
			}

			b := begin()
			b.bodyEnded() // such as one that asked for input
			b.bodyOpened()
			b.done(true)
			if ended(b) {
				t.Error("an answered call ended before its body")
			}
			b.bodyEnded()
			if !ended(b) {
				t.Error("an answered call goes on after its body")
			}

			b = begin()
			b.bodyEnded()
			if ended(b) {
				t.Error("a call ended before it was answered")
			}
			b.done(true)
			if !ended(b) {
				t.Error("a call whose body was read goes on after its answer")
			}

			b = begin()
			b.done(true)
			time.Sleep(time.Second)
			if !ended(b) {
				t.Error("a call whose body has no end goes on")
			}

			b = begin()
			b.done(false)
			if !ended(b) {
				t.Error("a call without an answer goes on")
			}

			b = begin()
			time.Sleep(time.Minute)
			if ended(b) != (limit > 0) {
				t.Errorf("a minute later, a call with a limit of %v: %v", limit, context.Cause(b.ctx))
			}
			b.done(false)
		})
	}
}
