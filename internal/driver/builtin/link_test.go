package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestManyCallers(t *testing.T) {
	f := newFixture()
	cs := connect(t, f.start(t), "2026-07-28", nil)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("%d/%d", i, j)
				res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{want}})
				if err != nil || text(res) != want {
					t.Errorf("echo %s: %v, %v", want, res, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestSlowReader has a server that sends without end and a gateway that does
// not read: the server must come to wait, and closing must free it.
func TestSlowReader(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	s := dial(t, inst)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"flood","arguments":{}}}`,
	} {
		if err := s.WriteFrame(t.Context(), []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	<-f.entered
	l := (*link)(s.(*stream))
	testkit.Eventually(t, "the queue is full", func() bool { return len(l.out) == queued })
	// Reading goes on where it stopped, in order.
	for want := -1; want < 100; {
		b, err := s.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Method string
			Params struct{ Progress float64 }
		}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if m.Method != "notifications/progress" {
			continue
		}
		if want++; int(m.Params.Progress) != want {
			t.Fatalf("progress %v, want %d", m.Params.Progress, want)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReadFrame(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("read after close: err = %v", err)
		}
	}
	if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)); !errors.Is(err, errLinkClosed) {
		t.Errorf("write after close: err = %v", err)
	}
}

// TestLastFrames reads what a server wrote before it was stopped.
func TestLastFrames(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	s := dial(t, inst)
	for _, id := range []string{"1", "2", "3"} {
		if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)); err != nil {
			t.Fatal(err)
		}
	}
	l := (*link)(s.(*stream))
	testkit.Eventually(t, "three answers", func() bool { return len(l.out) == 3 })
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := s.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last: err = %v", err)
		}
	}
}

// TestWriteHeedsContext writes to a link that nothing reads.
func TestWriteHeedsContext(t *testing.T) {
	s := (*stream)(newLink())
	ping := []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	for range queued {
		if err := s.WriteFrame(t.Context(), ping); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- s.WriteFrame(ctx, ping) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	go func() { failed <- s.WriteFrame(context.Background(), ping) }()
	s.Close()
	if err := <-failed; !errors.Is(err, errLinkClosed) {
		t.Errorf("err = %v", err)
	}
}

func TestBadFrames(t *testing.T) {
	f := newFixture()
	s := dial(t, f.start(t))
	defer s.Close()
	for _, bad := range []string{``, `{`, `null`, `[]`, `"x"`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0"}`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, strings.Repeat("[", 5000)} {
		if err := s.WriteFrame(t.Context(), []byte(bad)); err == nil {
			t.Errorf("%.40q is accepted", bad)
		}
	}
	// The session is as good as before.
	if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":"a","method":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	b, err := s.ReadFrame()
	if err != nil || !bytes.Contains(b, []byte(`"id":"a"`)) {
		t.Errorf("%s, %v", b, err)
	}
}

func BenchmarkCall(b *testing.B) {
	f := newFixture()
	inst, err := f.driver.Start(b.Context(), driver.Spec{Server: "s", Builtin: "sample"})
	if err != nil {
		b.Fatal(err)
	}
	defer inst.Stop(context.Background())
	l, err := inst.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	cs, err := c.Connect(b.Context(), frames{l.Stream}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer cs.Close()
	for b.Loop() {
		if _, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"x"}}); err != nil {
			b.Fatal(err)
		}
	}
}
