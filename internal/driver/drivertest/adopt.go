package drivertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// ownerVar makes the test binary the gateway that dies: it holds an order.
const ownerVar = "TINE_DRIVERTEST_OWNER"

type order struct {
	Spec driver.Spec
	Torn bool // leave a message half written and one half read
	Held bool // die while holding it
	// Key and Value, where they are set, are what it shall remember.
	Key, Value string
	// Beside is a command that runs when it dies, and has said that it is ready.
	Beside []string
}

// own starts an instance, tells its handle, and waits to be killed.
func (s *Suite) own(text string) {
	h, err := s.carryOut(text)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(h); err == nil {
			fmt.Println(string(b))
			select {}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func (s *Suite) carryOut(text string) (driver.Handle, error) {
	go func() { // should the test die before us
		time.Sleep(2 * testkit.Patience)
		os.Exit(1)
	}()
	o := order{Spec: driver.Spec{Options: s.Options}}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return driver.Handle{}, err
	}
	c := context.Background()
	inst, err := s.New(0).Start(c, o.Spec)
	if err != nil {
		return driver.Handle{}, err
	}
	link, err := inst.Dial(c)
	if err != nil {
		return driver.Handle{}, err
	}
	p := NewPeer(inst, link)
	if _, err := p.TryCall(c, "echo", map[string]any{"text": "mine"}); err != nil {
		return driver.Handle{}, err
	}
	if o.Key != "" {
		if err := s.put(c, p, o.Key, o.Value); err != nil {
			return driver.Handle{}, err
		}
	}
	if len(o.Beside) > 0 {
		ready := make(chan struct{})
		go inst.(driver.Execer).Exec(c, o.Spec, driver.Command{Argv: o.Beside, Stdout: &until{text: "ready", then: func() { close(ready) }}})
		<-ready
	}
	if o.Held {
		if _, err := inst.Hold(c); err != nil {
			return driver.Handle{}, err
		}
	}
	if o.Torn {
		defer needed(inst)()
		if err := link.Stream.WriteFrame(c, callFrame("clog", "spill", map[string]any{"bytes": 4 << 20})); err != nil {
			return driver.Handle{}, err
		}
		if _, err := link.Stream.ReadFrame(); err != nil {
			return driver.Handle{}, err
		}
		short, cancel := context.WithTimeout(c, 200*time.Millisecond)
		defer cancel()
		if err := blocked(short, link.Stream); !errors.Is(err, context.DeadlineExceeded) {
			return driver.Handle{}, fmt.Errorf("a write without a reader: %w", err)
		}
	}
	return inst.Handle(), nil
}

// Orphan starts an instance in another process, kills that process with no
// warning, and returns the handle.
func (s *Suite) Orphan(t testing.TB, torn bool) driver.Handle {
	t.Helper()
	return s.orphan(t, order{Spec: s.Spec(t, s.Program(t)), Torn: torn})
}

func (s *Suite) orphan(t testing.TB, o order) driver.Handle {
	t.Helper()
	o.Spec.Log = nil
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), s.Env...), ownerVar+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatalf("the other process: %v", err)
	}
	// Time for the server to see that no gateway is there, if it can.
	time.Sleep(100 * time.Millisecond)
	var h driver.Handle
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatalf("the other process: %s", bytes.TrimSpace(line))
	}
	return h
}

func (s *Suite) adopter(t *testing.T) driver.Driver {
	t.Helper()
	d := s.New(0)
	if !d.Info().Adopts || s.Mortal {
		t.Skip("the driver's instances do not outlive the gateway")
	}
	return d
}

func (s *Suite) testAdopt(t *testing.T) {
	d := s.adopter(t)
	h := s.Orphan(t, false)
	for range 2 { // once more after leaving it
		inst, err := d.Adopt(ctx(t), h, nil)
		if err != nil {
			t.Fatalf("adopt: %v", err)
		}
		t.Cleanup(func() { inst.Stop(context.Background()) })
		got := inst.Handle()
		if got.Driver != h.Driver || got.Server != h.Server || got.Dir != h.Dir || !bytes.Equal(got.Data, h.Data) {
			t.Errorf("the handle was %+v and is %+v", h, got)
		}
		p := Dial(t, inst)
		if got := p.Call(t, "echo", map[string]any{"text": "yours"}); got != "yours" {
			t.Errorf("echo said %q", got)
		}
		p.Call(t, "log", map[string]any{"text": "to the new owner"})
		testkit.Eventually(t, "the log", func() bool { return bytes.Contains([]byte(logs(t, inst, 1000)), []byte("to the new owner")) })
		if isDone(inst) {
			t.Fatalf("it ended: %v", inst.Err())
		}
		if err := inst.Leave(); err != nil {
			t.Fatalf("leave: %v", err)
		}
	}
	inst, err := d.Adopt(ctx(t), h, nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	s.Stop(t, inst)
	if err := inst.Err(); err != nil {
		t.Errorf("a stop is no error, yet: %v", err)
	}
}

func (s *Suite) testAdoptTorn(t *testing.T) {
	d := s.adopter(t)
	inst, err := d.Adopt(ctx(t), s.Orphan(t, true), nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	t.Cleanup(func() { inst.Stop(context.Background()) })
	link, err := inst.Dial(ctx(t))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	p := NewPeer(inst, link)
	if !s.Unheard {
		if _, err := p.answer("clog"); err != nil {
			t.Fatalf("what the dead gateway did not read: %v", err)
		}
	}
	for range 3 {
		if got := p.Call(t, "echo", map[string]any{"text": "whole"}); got != "whole" {
			t.Errorf("echo said %q", got)
		}
	}
	s.Stop(t, inst)
}

func (s *Suite) testAdoptEnded(t *testing.T) {
	d := s.adopter(t)
	h := s.Orphan(t, false)
	inst, err := d.Adopt(ctx(t), h, nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	// The end of an adopted instance is seen like that of any other.
	if _, err := Dial(t, inst).TryCall(ctx(t), "exit", map[string]any{"text": "farewell"}); err == nil {
		t.Error("a call to exit was answered")
	}
	Ended(t, inst)
	if err := inst.Err(); err == nil || !bytes.Contains([]byte(driver.Words(err)), []byte("farewell")) {
		t.Errorf("the end was reported as: %v", err)
	}
	if err := inst.Leave(); err != nil {
		t.Errorf("leave: %v", err)
	}
	if _, err := d.Adopt(ctx(t), h, nil); !errors.Is(err, driver.ErrGone) {
		t.Errorf("adopted after its end: %v", err)
	}
	s.gone(t, h)
}
