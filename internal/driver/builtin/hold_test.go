package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestHoldUnderLoad freezes again and again under callers that never stop: what
// is frozen is whole, and nothing changes while it is held.
func TestHoldUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.seed("a", nil)
	w.use("a", func(inst driver.Instance, cs *mcp.ClientSession) {
		var acknowledged atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		defer callers.Wait()
		defer stop()
		for c := range 4 {
			callers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if err := remember(cs, fmt.Sprintf("%d/%d", c, i)); err != nil {
						t.Error(err)
						return
					}
					acknowledged.Add(1)
				}
			})
		}
		for i := range 20 {
			release, err := inst.Hold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			before := acknowledged.Load()
			snap, err := w.Freeze(t.Context(), w.spec("a"), inst, "")
			if err != nil {
				t.Fatal(err)
			}
			again, err := w.Freeze(t.Context(), w.spec("a"), inst, "")
			if err != nil {
				t.Fatal(err)
			}
			one, _ := thaw(snap)
			two, _ := thaw(again)
			if one.Layer != two.Layer {
				t.Error("it changed while it was held")
			}
			release()
			release()
			child := fmt.Sprint("child", i)
			w.seed(child, &snap)
			w.discard(snap)
			w.discard(again)
			w.use(child, func(_ driver.Instance, cs *mcp.ClientSession) {
				if got, err := recall(cs); err != nil || int64(len(got)) < before {
					t.Errorf("the child knows %d, %v; %d were acknowledged", len(got), err, before)
				}
			})
			for now := acknowledged.Load(); acknowledged.Load() < now+8 && !t.Failed(); {
				if err := cs.Ping(t.Context(), nil); err != nil {
					t.Fatal(err) // the parent does not go on
				}
			}
		}
	})
}

func TestHolds(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	cs := connect(t, inst, "2025-11-25", nil)
	ended := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "stuck"})
		ended <- err
	}()
	<-f.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inst.Hold(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still running") {
		t.Errorf("hold during a call: err = %v", err)
	}
	// A hold that failed holds nothing.
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"on"}}); err != nil {
		t.Error(err)
	}
	held := make(chan func())
	go func() {
		release, err := inst.Hold(context.Background())
		if err != nil {
			t.Error(err)
		}
		held <- release
	}()
	close(f.free)
	first := <-held
	if err := <-ended; err != nil {
		t.Errorf("the call that was running: %v", err)
	}
	if _, err := inst.Hold(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another one") {
		t.Errorf("second hold: err = %v", err)
	}

	// Calls wait, and one that is cancelled stops to.
	callCtx, giveUp := context.WithCancel(t.Context())
	gone, waiting := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := cs.CallTool(callCtx, &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"never"}})
		gone <- err
	}()
	go func() {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"later"}})
		waiting <- err
	}()
	giveUp()
	if err := <-gone; err == nil {
		t.Error("a call was answered while the instance was held")
	}
	second := make(chan func())
	go func() {
		release, err := inst.Hold(context.Background())
		if err != nil {
			t.Error(err)
		}
		second <- release
	}()
	select {
	case <-waiting:
		t.Error("a call was answered while the instance was held")
	case <-second:
		t.Error("two hold it at once")
	default:
	}
	first()
	(<-second)()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// TestHoldAndListen has a subscription open, which is a request that does not
// end in the era that has them.
func TestHoldAndListen(t *testing.T) {
	w := newWorld(t)
	spec := w.seed("a", nil)
	inst, err := w.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Stop(context.Background())
	heard := make(chan struct{}, 100)
	cs := connect(t, inst, "2026-07-28", &mcp.ClientOptions{
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { heard <- struct{}{} },
	})
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "memory://knowledge-graph"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for subscribed := false; !subscribed; {
		if err := errors.Join(remember(cs, "x"), ctx.Err()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
			subscribed = true
		default:
		}
	}
	release, err := inst.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestStopWhileHeld ends an instance that is held, with calls that wait.
func TestStopWhileHeld(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	cs := connect(t, inst, "2026-07-28", nil)
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"x"}})
		failed <- err
	}()
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the call was answered")
	}
	release()
}
