// Package testkit is what tests of every package share: waiting for what another
// goroutine brings about, a log, a clock and comparisons of text. Only tests and
// suites of tests import it.
package testkit

import (
	"errors"
	"testing"
	"time"
)

// Patience ends a test that would hang. No test depends on how long it is.
const Patience = time.Minute

// Within returns what arrives on ch, or the zero value when ch is closed.
func Within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case v := <-ch:
		return v
	case <-late.C:
		t.Fatalf("never happened: %s", what)
		panic("unreachable")
	}
}

var errNot = errors.New("it is not so")

// Eventually waits until ok is true, for a state that nothing announces.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Succeeds(t, what, func() error {
		if ok() {
			return nil
		}
		return errNot
	})
}

// Succeeds is Eventually for what says why it is not so yet. It tries often at
// first and then less, as a try may be expensive.
func Succeeds(t testing.TB, what string, try func() error) {
	t.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(Patience); ; pause = min(pause*5/4, 20*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never happened: %s: %v", what, err)
		}
		time.Sleep(pause)
	}
}
