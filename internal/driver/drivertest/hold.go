package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// briefly is how long a test waits for something that must not happen.
const briefly = 100 * time.Millisecond

func hold(t testing.TB, inst driver.Instance) func() {
	t.Helper()
	release, err := inst.Hold(ctx(t))
	if err != nil {
		t.Fatalf("hold: %v", err)
	}
	return release
}

// later makes a call and returns where its answer will be.
func later(t testing.TB, p *Peer, text string) <-chan error {
	c := ctx(t)
	answer := make(chan error, 1)
	go func() {
		got, err := p.TryCall(c, "echo", map[string]any{"text": text})
		if err == nil && got != text {
			err = errors.New("echo said " + got)
		}
		answer <- err
	}()
	return answer
}

func (s *Suite) testHold(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	release := hold(t, inst)
	if p.link.Stream == nil { // what is far away is not held
		release()
		release()
		return
	}
	answer := later(t, p, "patient")
	// Another one waits for its turn, as long as it likes.
	short, cancel := context.WithTimeout(context.Background(), briefly)
	defer cancel()
	if _, err := inst.Hold(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second hold: %v", err)
	} else if prefix := fmt.Sprintf("server %q can't be held: ", inst.Handle().Server); !strings.HasPrefix(err.Error(), prefix) || strings.Count(err.Error(), "held") != 1 {
		t.Errorf("a second hold: %v, want what begins %q and says it once", err, prefix)
	}
	select {
	case err := <-answer:
		t.Fatalf("a call to an instance that is held was answered: %v", err)
	default:
	}
	second := make(chan func(), 1)
	go func() {
		release, err := inst.Hold(ctx(t))
		if err != nil {
			t.Errorf("the next hold: %v", err)
			release = func() {}
		}
		second <- release
	}()
	release()
	next := <-second
	release() // is not that of the next one
	short2, cancel2 := context.WithTimeout(context.Background(), briefly)
	defer cancel2()
	if _, err := inst.Hold(short2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third hold: %v", err)
	}
	next()
	next()
	if err := <-answer; err != nil {
		t.Errorf("the call after the hold: %v", err)
	}
	for range s.times(20, 5) { // nothing is stuck
		hold(t, inst)()
		if got := p.Call(t, "echo", map[string]any{"text": "on"}); got != "on" {
			t.Fatalf("echo said %q", got)
		}
	}
	if isDone(inst) {
		t.Errorf("holding ended it: %v", inst.Err())
	}
}

func (s *Suite) testHoldWithNoTime(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	c, cancel := context.WithCancel(context.Background())
	cancel()
	switch release, err := inst.Hold(c); {
	case err == nil: // it takes no time
		release()
	case !errors.Is(err, context.Canceled):
		t.Errorf("hold: %v", err)
	}
	if got := p.Call(t, "echo", map[string]any{"text": "on"}); got != "on" {
		t.Errorf("echo said %q", got)
	}
	hold(t, inst)()
}

func (s *Suite) testHoldStop(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	release := hold(t, inst)
	var answer <-chan error
	if p.link.Stream != nil {
		answer = later(t, p, "too late")
	}
	s.Stop(t, inst)
	if err := inst.Err(); err != nil {
		t.Errorf("a stop is no error, yet: %v", err)
	}
	if answer != nil {
		if err := <-answer; err == nil {
			t.Error("a call to an instance that was held and stopped was answered")
		}
	}
	release()
	release()
	hold(t, inst)()
	s.Stop(t, inst)
}

func (s *Suite) testHoldLeave(t *testing.T) {
	d := s.adopter(t)
	inst := s.Start(t, d)
	release := hold(t, inst)
	if err := inst.Leave(); err != nil {
		t.Fatalf("leave: %v", err)
	}
	again, err := d.Adopt(ctx(t), inst.Handle(), nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	defer s.Stop(t, again)
	held := hold(t, again)
	release() // of an earlier holder, which does nothing any more
	p := NewPeer(again, mustDial(t, again))
	answer := later(t, p, "back")
	short, cancel := context.WithTimeout(context.Background(), briefly)
	defer cancel()
	if _, err := again.Hold(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second hold: %v", err)
	}
	select {
	case err := <-answer:
		t.Fatalf("a call to an instance that is held was answered: %v", err)
	default:
	}
	held()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

func mustDial(t testing.TB, inst driver.Instance) driver.Link {
	t.Helper()
	link, err := inst.Dial(ctx(t))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return link
}

func (s *Suite) testHoldCrash(t *testing.T) {
	if s.Kill == nil {
		t.Skip("the driver's instances don't crash by themselves")
	}
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	release := hold(t, inst)
	answer := later(t, p, "never")
	s.Kill(t, inst)
	Ended(t, inst)
	if err := <-answer; err == nil {
		t.Error("a call to an instance that crashed was answered")
	}
	if inst.Err() == nil {
		t.Error("there is no reason for its end")
	}
	hold(t, inst)() // returns at once
	release()
	release()
	s.Stop(t, inst)
}

func (s *Suite) testHoldEnded(t *testing.T) {
	inst := s.Start(t, s.New(0))
	if _, err := Dial(t, inst).TryCall(ctx(t), "exit", nil); err == nil {
		t.Error("a call to exit was answered")
	}
	Ended(t, inst)
	for range 2 {
		release := hold(t, inst)
		release()
		release()
	}
	s.Stop(t, inst)
}

// A server that is in the middle of a message writes the rest afterwards.
func (s *Suite) testHoldBusy(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	for range s.times(3, 1) {
		clog(t, p)
		release := hold(t, inst)
		release()
		if _, err := p.answer("clog"); err != nil {
			t.Fatalf("the rest: %v", err)
		}
	}
	if got := p.Call(t, "echo", map[string]any{"text": "on"}); got != "on" {
		t.Errorf("echo said %q", got)
	}
}

func (s *Suite) testAdoptHeld(t *testing.T) {
	d := s.adopter(t)
	inst, err := d.Adopt(ctx(t), s.orphan(t, order{Spec: s.Spec(t, s.Program(t)), Held: true}), nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	t.Cleanup(func() { inst.Stop(context.Background()) })
	p := Dial(t, inst)
	if got := p.Call(t, "echo", map[string]any{"text": "awake"}); got != "awake" {
		t.Errorf("echo said %q", got)
	}
	hold(t, inst)()
	s.Stop(t, inst)
}
