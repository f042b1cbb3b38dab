package builtin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestOneLinkAtATime(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	for range 3 {
		cs := connect(t, inst, "2025-11-25", nil)
		if _, err := inst.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "link already") {
			t.Fatalf("second dial: err = %v", err)
		}
		if err := cs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-inst.Done():
		t.Fatal("the instance ended with its link")
	default:
	}
}

func TestLinkOutlivesDialContext(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := inst.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), frames{l.Stream}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs.Close()
}

func TestCloseCancelsCalls(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	cs := connect(t, inst, "2026-07-28", nil)
	failed := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "wait"})
		failed <- err
	}()
	<-f.entered
	// Closing the gateway's end cancels the call, so the session can end.
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the call survived the end of its link")
	}
	if _, err := inst.Dial(t.Context()); !errors.Is(err, driver.ErrGone) {
		t.Errorf("dial after stop: err = %v", err)
	}
	<-inst.Done()
	if err := inst.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
	if err := inst.Stop(t.Context()); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestStopWaitsForStuckCalls(t *testing.T) {
	f := newFixture()
	inst, err := f.driver.Start(t.Context(), driver.Spec{Server: "s", Builtin: "sample", StopGrace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cs := connect(t, inst, "2025-11-25", nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "stuck"})
	}()
	<-f.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := inst.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "calls still run") {
		t.Errorf("stop: err = %v", err)
	}
	select {
	case <-inst.Done():
		t.Error("done while a call runs")
	default:
	}
	close(f.free)
	<-inst.Done()
	<-ended
}

func TestPanicIsContained(t *testing.T) {
	f := newFixture()
	var logged bytes.Buffer
	inst, err := f.driver.Start(t.Context(), driver.Spec{Server: "s", Builtin: "sample", Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	cs := connect(t, inst, "2026-07-28", nil)
	_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "panic"})
	var we *jsonrpc.Error
	if !errors.As(err, &we) || we.Code != jsonrpc.CodeInternalError {
		t.Errorf("err = %v", err)
	}
	if res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"on"}}); err != nil || text(res) != "on" {
		t.Errorf("after the panic: %v, %v", res, err)
	}
	if err := inst.Leave(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "the tool is broken") || !strings.Contains(logged.String(), "builtin_test.go") {
		t.Errorf("log = %s", logged.String())
	}
}

func TestConcurrentStop(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	connect(t, inst, "2025-11-25", nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := inst.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if l, err := inst.Dial(t.Context()); err == nil {
				l.Stream.Close()
			}
		})
	}
	wg.Wait()
}
