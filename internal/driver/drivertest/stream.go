package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// clog makes the server busy with writing: it reads nothing until what it wrote is
// read. What is written to it meanwhile stays where it is.
func clog(t testing.TB, p *Peer) {
	t.Helper()
	if err := p.link.Stream.WriteFrame(ctx(t), callFrame("clog", "spill", map[string]any{"bytes": 4 << 20})); err != nil {
		t.Fatalf("clog: %v", err)
	}
}

// blocked writes messages until one does not go through, and returns its error.
func blocked(c context.Context, link driver.Stream) error {
	big := callFrame("lost", "echo", map[string]any{"text": strings.Repeat("l", 1<<20)})
	for range 64 {
		if err := link.WriteFrame(c, big); err != nil {
			return err
		}
	}
	return nil
}

func (s *Suite) testStopWhileWriting(t *testing.T) {
	inst := s.Start(t, s.New(0))
	defer needed(inst)()
	p := Dial(t, inst)
	clog(t, p)
	failed := make(chan error)
	go func() { failed <- blocked(context.Background(), p.link.Stream) }()
	small := make(chan error) // result of a write that waits for its turn
	go func() {
		for {
			if err := p.link.Stream.WriteFrame(context.Background(), callFrame("lost", "echo", nil)); err != nil {
				small <- err
				return
			}
		}
	}()
	s.Stop(t, inst)
	if err := <-failed; err == nil {
		t.Error("a write to an instance that was stopped did not fail")
	}
	if err := <-small; err == nil {
		t.Error("a waiting write to an instance that was stopped did not fail")
	}
}

func (s *Suite) testStopWhileReading(t *testing.T) {
	inst := s.Start(t, s.New(0))
	p := Dial(t, inst)
	failed := make(chan error)
	go func() {
		_, err := p.link.Stream.ReadFrame()
		failed <- err
	}()
	s.Stop(t, inst)
	if err := <-failed; err == nil {
		t.Error("a read from an instance that was stopped did not fail")
	}
}

func (s *Suite) testCallers(t *testing.T) {
	inst := s.Start(t, s.New(0))
	defer needed(inst)()
	p := Dial(t, inst)
	const callers, calls = 16, 30
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range calls {
				id := fmt.Sprintf("%d-%d", i, n)
				pad := strings.Repeat("p", (i*calls+n)*977%3000)
				if n%10 == 0 { // larger than a pipe
					pad = strings.Repeat("p", 100_000+i)
				}
				if err := p.link.Stream.WriteFrame(ctx(t), callFrame(id, "echo", map[string]any{"text": id + pad})); err != nil {
					t.Errorf("write %s: %v", id, err)
				}
			}
		})
	}
	seen := make(map[string]bool)
	for range callers * calls {
		b, err := p.link.Stream.ReadFrame()
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		r, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		id, _ := r.ID.(string)
		got, err := text(r.Result)
		if err != nil || seen[id] || strings.TrimRight(got, "p") != id {
			t.Fatalf("answer %q: %.100q, %v", id, got, err)
		}
		seen[id] = true
	}
	wg.Wait()
}

func (s *Suite) testBig(t *testing.T) {
	p := Dial(t, s.Start(t, s.New(0)))
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for range s.times(5, 2) {
		if got := p.Call(t, "echo", map[string]any{"text": big}); got != big {
			t.Fatalf("1 MiB came back as %d bytes", len(got))
		}
	}
}

// Sizes around those of buffers, where off-by-one errors live.
func (s *Suite) testSizes(t *testing.T) {
	p := Dial(t, s.Start(t, s.New(0)))
	for _, about := range []int{0, 4096, 64 << 10} {
		for n := max(0, about-110); n < about+5; n++ {
			want := strings.Repeat("s", n)
			if got := p.Call(t, "echo", map[string]any{"text": want}); got != want {
				t.Fatalf("%d bytes came back as %d", n, len(got))
			}
		}
	}
}

func (s *Suite) testTooLarge(t *testing.T) {
	const limit = 1 << 20
	p := Dial(t, s.Start(t, s.New(limit)))
	for n, size := range []int{limit, limit + 1, 3 * limit, 5*limit + 12345} {
		p.Call(t, "line", map[string]any{"bytes": size}) // the envelope makes it larger
		if p.TooLarge != n+1 {
			t.Fatalf("a line of %d bytes: %d frames were too large, want %d", size, p.TooLarge, n+1)
		}
		if got := p.Call(t, "echo", map[string]any{"text": "next"}); got != "next" {
			t.Fatalf("echo said %q", got)
		}
	}
	// What fits still does.
	if got := p.Call(t, "big", map[string]any{"bytes": limit - 200}); len(got) != limit-200 || p.TooLarge != 4 {
		t.Errorf("a large message came as %d bytes, %d too large", len(got), p.TooLarge)
	}
}

func (s *Suite) testHuge(t *testing.T) {
	p := Dial(t, s.Start(t, s.New(64<<20)))
	p.Call(t, "line", map[string]any{"bytes": 100_000_000})
	if p.TooLarge != 1 {
		t.Errorf("%d frames were too large, want 1", p.TooLarge)
	}
	if got := p.Call(t, "echo", map[string]any{"text": "on"}); got != "on" {
		t.Errorf("echo said %q", got)
	}
}

func (s *Suite) testEndless(t *testing.T) {
	inst := s.Start(t, s.New(1<<20))
	defer needed(inst)()
	p := Dial(t, inst)
	if err := p.link.Stream.WriteFrame(ctx(t), callFrame("e", "endless", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.link.Stream.ReadFrame(); !errors.As(err, new(*driver.FrameTooLarge)) {
		t.Fatalf("got %v, want FrameTooLarge", err)
	}
	failed := make(chan error)
	go func() {
		_, err := p.link.Stream.ReadFrame() // goes on for ever
		failed <- err
	}()
	s.Stop(t, inst)
	if err := <-failed; err == nil {
		t.Error("an endless line gave a frame")
	}
}

func (s *Suite) testNotReading(t *testing.T) {
	inst := s.Start(t, s.New(0))
	defer needed(inst)()
	p := Dial(t, inst)
	for range 2 {
		clog(t, p)
		c, cancel := context.WithCancel(context.Background())
		failed, waiting := make(chan error, 1), make(chan error, 1)
		go func() { failed <- blocked(c, p.link.Stream) }()
		// A write that waits for its turn is ended by its own context, not by that of the
		// one before it.
		own, cancelOwn := context.WithCancel(context.Background())
		asked := &askedContext{Context: own, asked: make(chan struct{})}
		go func() {
			for {
				if err := p.link.Stream.WriteFrame(asked, callFrame("lost", "echo", nil)); err != nil {
					waiting <- err
					return
				}
			}
		}()
		<-asked.asked
		cancelOwn()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("a write with a cancelled context: %v", err)
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("a write without a reader: %v", err)
		}
		// Once it is read, the half message is not the beginning of the next.
		if err := p.link.Stream.WriteFrame(drained(t, p), callFrame("after", "echo", map[string]any{"text": "after"})); err != nil {
			t.Fatalf("the next write: %v", err)
		}
		raw, err := p.answer("after")
		if err != nil {
			t.Fatalf("the next call: %v", err)
		}
		if got, err := text(raw); err != nil || got != "after" {
			t.Errorf("the next call returned %q, %v", got, err)
		}
	}
}

// askedContext reports when its Done is first asked for.
type askedContext struct {
	context.Context
	asked chan struct{}
	once  sync.Once
}

func (c *askedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}

// drained reads until the server has written all it had to.
func drained(t testing.TB, p *Peer) context.Context {
	t.Helper()
	if _, err := p.answer("clog"); err != nil {
		t.Fatalf("drain: %v", err)
	}
	return ctx(t)
}

func (s *Suite) testBanners(t *testing.T) {
	p := Dial(t, s.Start(t, s.New(0), "banner"))
	p.Call(t, "say", map[string]any{"text": "\n\nnot a message\r\n  \t\nnull\n42\n\"text\"\n"})
	p.Call(t, "say", map[string]any{"text": "\ufeff  {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}  \r\n"})
	if p.Other != 1 || p.Stray < 4 {
		t.Errorf("%d messages and %d lines beside the answers, want 1 and 4 besides the banner", p.Other, p.Stray)
	}
}

func (s *Suite) testLineBreaks(t *testing.T) {
	p := Dial(t, s.Start(t, s.New(0)))
	for _, pad := range []int{0, 200_000} {
		f := callFrame("broken", "echo", map[string]any{"text": "x" + strings.Repeat("y", pad)})
		f = bytes.Replace(f, []byte(`,"method"`), []byte(",\r\n\t\n\"method\""), 1)
		before := bytes.Clone(f)
		if err := p.link.Stream.WriteFrame(ctx(t), f); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f, before) {
			t.Error("the caller's frame was changed")
		}
		raw, err := p.answer("broken")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := text(raw); err != nil || len(got) != pad+1 {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
}
