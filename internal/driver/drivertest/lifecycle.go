package drivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

func (s *Suite) testLifecycle(t *testing.T) {
	d := s.New(0)
	if d.Info().Name == "" || len(d.Info().Scopes) == 0 {
		t.Errorf("info says nothing: %+v", d.Info())
	}
	spec := s.Spec(t, s.Program(t))
	spec.Session = "ses_123456789012"
	inst := s.StartSpec(t, d, spec)
	h := inst.Handle()
	if h.Driver != d.Info().Name || h.Server != spec.Server || h.Session != spec.Session {
		t.Errorf("handle %+v", h)
	}
	var again driver.Handle
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatalf("a handle must be JSON: %v", err)
	}
	if err := json.Unmarshal(b, &again); err != nil || !bytes.Equal(again.Data, h.Data) {
		t.Errorf("handle came back as %+v, %v", again, err)
	}
	p := Dial(t, inst)
	if transport := d.Info().Transport; p.link.HTTP != nil && (transport == nil || transport(spec) != "http") {
		t.Error("a server over HTTP is reported as reached in another way")
	}
	if m := d.Info().Mends; p.link.HTTP != nil && (m.Gone == "" || m.Locked == "" || m.Moved == "") {
		t.Errorf("there is no mend for a server over HTTP: %+v", m)
	}
	if got := p.Call(t, "echo", map[string]any{"text": "hello"}); got != "hello" {
		t.Errorf("echo said %q", got)
	}
	if isDone(inst) || inst.Err() != nil {
		t.Fatalf("it ended: %v", inst.Err())
	}
	if d.Info().Adopts && h.Dir == "" {
		t.Error("a handle to adopt by names no folder")
	}

	s.Stop(t, inst)
	Ended(t, inst)
	if err := inst.Err(); err != nil {
		t.Errorf("a stop is no error, yet: %v", err)
	}
	s.Stop(t, inst)
	if _, err := inst.Dial(ctx(t)); err == nil {
		t.Error("a stopped instance was dialled")
	}
	r, err := inst.Logs(100)
	if err != nil {
		t.Errorf("logs of a stopped instance: %v", err)
	} else {
		r.Close()
	}
	if err := inst.Leave(); err != nil {
		t.Errorf("leave after stop: %v", err)
	}
}

func (s *Suite) testMany(t *testing.T) {
	d := s.New(0)
	var wg sync.WaitGroup
	for i := range s.times(8, 4) {
		spec := s.Spec(t, s.Program(t))
		wg.Go(func() {
			inst, err := d.Start(ctx(t), spec)
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			defer func() {
				var stops sync.WaitGroup
				for range 3 { // at once, too
					stops.Go(func() {
						if err := inst.Stop(ctx(t)); err != nil {
							t.Errorf("stop: %v", err)
						}
					})
				}
				stops.Wait()
				s.gone(t, inst.Handle())
			}()
			link, err := inst.Dial(ctx(t))
			if err != nil {
				t.Errorf("dial: %v", err)
				return
			}
			p := NewPeer(inst, link)
			if err := p.shakeHands(ctx(t)); err != nil {
				t.Errorf("initialize: %v", err)
				return
			}
			for n := range 20 {
				want := fmt.Sprintf("%d of %d", n, i)
				if got, err := p.TryCall(ctx(t), "echo", map[string]any{"text": want}); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func (s *Suite) testStartCancelled(t *testing.T) {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	spec := s.Spec(t, s.Program(t))
	inst, err := s.New(0).Start(c, spec)
	if err == nil {
		inst.Stop(ctx(t))
		t.Fatal("it started")
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.gone(t, driver.Handle{Server: spec.Server, Dir: spec.Dir})
}

func (s *Suite) testStopWithNoTime(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	if p.link.Stream != nil && !s.Foreign {
		p.Call(t, "stubborn", nil)
	}
	c, cancel := context.WithCancel(context.Background())
	cancel()
	if err := inst.Stop(c); err != nil {
		t.Errorf("stop: %v", err)
	}
	Ended(t, inst)
	s.gone(t, inst.Handle())
}

func (s *Suite) testLeave(t *testing.T) {
	d := s.New(0)
	inst := s.Start(t, d)
	p := Dial(t, inst)
	p.Call(t, "echo", map[string]any{"text": "x"})
	for range 2 {
		if err := inst.Leave(); err != nil {
			t.Fatalf("leave: %v", err)
		}
	}
	if p.link.Stream != nil {
		if _, err := p.link.Stream.ReadFrame(); err == nil {
			t.Error("the link of an instance that was left still works")
		}
	}
	if !d.Info().Adopts || s.Mortal {
		Ended(t, inst)
		s.gone(t, inst.Handle())
		return
	}
	if isDone(inst) {
		t.Fatalf("leaving ended it: %v", inst.Err())
	}
	inst, err := d.Adopt(ctx(t), inst.Handle(), nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if got := Dial(t, inst).Call(t, "echo", map[string]any{"text": "back"}); got != "back" {
		t.Errorf("echo said %q", got)
	}
	s.Stop(t, inst)
}

func (s *Suite) testAdoptNothing(t *testing.T) {
	d := s.New(0)
	inst := s.Start(t, d)
	h := inst.Handle()
	s.Stop(t, inst)
	odd := h
	odd.Data = json.RawMessage(`{"never": "ours"}`)
	for _, h := range []driver.Handle{h, odd, {Driver: h.Driver, Server: h.Server}} {
		if _, err := d.Adopt(ctx(t), h, nil); !errors.Is(err, driver.ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	}
}

func (s *Suite) testOneLink(t *testing.T) {
	inst := s.Start(t, s.New(0))
	for n := range 3 {
		p := Dial(t, inst)
		if _, err := inst.Dial(ctx(t)); err == nil {
			t.Fatal("a second link was opened")
		}
		if got := p.Call(t, "echo", map[string]any{"text": "x"}); got != "x" {
			t.Errorf("echo said %q", got)
		}
		// A reader that waits is sent away by Close.
		failed := make(chan error)
		go func() {
			_, err := p.link.Stream.ReadFrame()
			failed <- err
		}()
		for range n + 1 {
			if err := p.link.Stream.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if err := <-failed; err == nil {
			t.Error("a closed link gave a frame")
		}
		if err := p.link.Stream.WriteFrame(ctx(t), []byte(`{}`)); err == nil {
			t.Error("a closed link took a frame")
		}
	}
}

func (s *Suite) testLogs(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	p.Call(t, "log", map[string]any{"text": "first words"})
	p.Call(t, "log", map[string]any{"text": "second words"})
	testkit.Eventually(t, "the log", func() bool {
		return strings.Contains(logs(t, inst, 1<<20), "first words\nsecond words\n")
	})
	if got := logs(t, inst, 20); got != "second words\n" {
		t.Errorf("the last 20 bytes are %q", got)
	}
	if got := logs(t, inst, 0); got != "" {
		t.Errorf("the last 0 bytes are %q", got)
	}
}

func logs(t testing.TB, inst driver.Instance, max int64) string {
	t.Helper()
	r, err := inst.Logs(max)
	if err != nil {
		t.Fatalf("logs: %v", err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read the logs: %v", err)
	}
	return string(b)
}

func (s *Suite) testCrash(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	_, err := p.TryCall(ctx(t), "exit", map[string]any{"code": 7, "text": "the disk is on fire"})
	if !errors.Is(err, io.EOF) {
		t.Errorf("the call gave %v, want EOF", err)
	}
	Ended(t, inst)
	err = inst.Err()
	words := driver.Words(err)
	if err == nil || !strings.Contains(err.Error(), "7") || !strings.Contains(words, "the disk is on fire") {
		t.Errorf("the end was reported as: %v, with the words %q", err, words)
	}
	if err != nil && strings.Contains(err.Error(), "fire") {
		t.Errorf("the text of the error has what the server wrote: %v", err)
	}
	if got := logs(t, inst, 1000); !strings.Contains(got, "the disk is on fire") {
		t.Errorf("logs %q", got)
	}
	if _, err := inst.Dial(ctx(t)); err == nil {
		t.Error("a crashed instance was dialled")
	}
	if err := p.link.Stream.WriteFrame(ctx(t), []byte(`{}`)); err == nil {
		t.Error("a crashed instance took a frame")
	}
	s.Stop(t, inst)
	if inst.Err() == nil {
		t.Error("a stop afterwards made the crash forgotten")
	}
}

// What a server wrote before it died is read, though it is dead by then.
func (s *Suite) testLastMessage(t *testing.T) {
	inst := s.Start(t, s.New(0))
	defer needed(inst)()
	p := Dial(t, inst)
	for _, f := range [][]byte{callFrame("a", "echo", map[string]any{"text": "last"}), callFrame("b", "exit", nil)} {
		if err := p.link.Stream.WriteFrame(ctx(t), f); err != nil {
			t.Fatal(err)
		}
	}
	Ended(t, inst)
	raw, err := p.answer("a")
	if err != nil {
		t.Fatalf("the last message: %v", err)
	}
	if got, err := text(raw); err != nil || got != "last" {
		t.Errorf("got %q, %v", got, err)
	}
	for range 2 {
		if _, err := p.link.Stream.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last message: %v", err)
		}
	}
}

func (s *Suite) testStubborn(t *testing.T) {
	spec := s.Spec(t, s.Program(t))
	spec.StopGrace = 50 * time.Millisecond
	inst := s.StartSpec(t, s.New(0), spec)
	Dial(t, inst).Call(t, "stubborn", nil)
	s.Stop(t, inst)
	if err := inst.Err(); err != nil {
		t.Errorf("a stop is no error, yet: %v", err)
	}
}
