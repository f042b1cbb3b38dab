package life

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func nothing() error { return nil }

func TestEndByItself(t *testing.T) {
	l := New("a")
	l.Exit()
	l.Ask() // too late
	l.End(func() error { return errors.New("fell over") })
	<-l.Done()
	if err := l.Err(); err == nil || err.Error() != "fell over" {
		t.Errorf("it ended with %v", err)
	}
	if err := l.MayDial(t.Context()); err == nil || err.Error() != "fell over" {
		t.Errorf("a dial says %v", err)
	}
}

func TestEndThatWasAskedFor(t *testing.T) {
	l := New("a")
	l.Ask()
	l.End(func() error { t.Error("why it ended was asked"); return nil })
	if err := l.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err := l.MayDial(t.Context()); err == nil || !strings.Contains(err.Error(), "is stopped") {
		t.Errorf("a dial says %v", err)
	}
}

func TestOneHoldAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("a")
		held := 0
		quiet := func() (func(), error) {
			if held++; held > 1 {
				t.Error("it is held twice")
			}
			return func() { held-- }, nil
		}
		release, err := l.HoldWith(t.Context(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.HoldWith(ctx, quiet); err == nil || !strings.Contains(err.Error(), `server "a" can't be held: another one holds it`) {
			t.Errorf("a second hold says %v", err)
		}
		release()
		release()
		again, err := l.HoldWith(t.Context(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		again()
		if held != 0 {
			t.Errorf("%d hold it in the end", held)
		}
	})
}

// TestHoldThatFails lets the instance go on, and is no error where it has ended.
func TestHoldThatFails(t *testing.T) {
	l := New("a")
	on := 0
	quiet := func() (func(), error) { return func() { on++ }, errors.New("no") }
	if _, err := l.HoldWith(t.Context(), quiet); err == nil || err.Error() != `server "a" can't be held: no` || on != 1 {
		t.Errorf("it says %v, and went on %d times", err, on)
	}
	l.End(nothing)
	release, err := l.HoldWith(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestSlowRelease waits a while for what does not go on, which is held until it does.
func TestSlowRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("a")
		away := make(chan struct{})
		release, err := l.HoldWith(t.Context(), func() (func(), error) { return func() { <-away }, nil })
		if err != nil {
			t.Fatal(err)
		}
		release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.HoldWith(ctx, nil); err == nil {
			t.Error("what does not go on yet was held again")
		}
		close(away)
		again, err := l.HoldWith(t.Context(), func() (func(), error) { return func() {}, nil })
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}

func TestStopTwice(t *testing.T) {
	l := New("a")
	stops := 0
	stop := func(err error) func() error { return func() error { stops++; return err } }
	if err := l.StopWith(stop(errors.New("stays"))); err == nil {
		t.Error("a stop that failed says nothing")
	}
	for range 2 {
		if err := l.StopWith(stop(nil)); err != nil {
			t.Error(err)
		}
	}
	if stops != 2 {
		t.Errorf("it was stopped %d times", stops)
	}
	if err := l.LeaveWith(func() { t.Error("what is removed was left") }); err != nil {
		t.Error(err)
	}
}

func TestStopOfWhatWasLeft(t *testing.T) {
	l := New("a")
	left := 0
	for range 2 {
		if err := l.LeaveWith(func() { left++; l.Part() }); err != nil {
			t.Error(err)
		}
	}
	if left != 1 {
		t.Errorf("it was left %d times", left)
	}
	if err := l.StopWith(func() error { t.Error("what was left was stopped"); return nil }); err == nil || !strings.Contains(err.Error(), "left to the next gateway") {
		t.Errorf("a stop says %v", err)
	}
	if l.MayHold() == nil {
		t.Error("what was left may be held")
	}
	if err := l.MayDial(t.Context()); err == nil {
		t.Error("what was left may be dialed")
	}
}
