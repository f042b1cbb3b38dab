package gate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHoldWaitsForWhatIsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		if err := g.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := make(chan func())
		go func() {
			release, err := g.Hold(t.Context())
			if err != nil {
				t.Error(err)
			}
			held <- release
		}()
		synctest.Wait()
		entered := make(chan error)
		go func() { entered <- g.Enter(t.Context()) }()
		synctest.Wait()
		select {
		case <-held:
			t.Fatal("held with a request inside")
		case <-entered:
			t.Fatal("a request entered what is being held")
		default:
		}
		g.Leave()
		release := <-held
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("a request entered a held gate")
		default:
		}
		release()
		release()
		if err := <-entered; err != nil {
			t.Error(err)
		}
		g.Leave()
	})
}

func TestTheEndOfPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		soon := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		if err := g.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Hold(soon()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hold with a request inside: %v", err)
		}
		// A hold that failed holds nothing.
		if err := g.Enter(soon()); err != nil {
			t.Errorf("enter: %v", err)
		}
		g.Leave()
		g.Leave()
		release, err := g.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Enter(soon()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("enter a held gate: %v", err)
		}
		if _, err := g.Hold(soon()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hold a held gate: %v", err)
		}
		release()
	})
}

func TestCloseSendsEverybodyAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		release, err := g.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		entered, held := make(chan error), make(chan error)
		go func() { entered <- g.Enter(t.Context()) }()
		go func() {
			_, err := g.Hold(t.Context())
			held <- err
		}()
		synctest.Wait()
		g.Close()
		g.Close()
		if err := <-entered; !errors.Is(err, ErrClosed) {
			t.Errorf("enter: %v", err)
		}
		if err := <-held; err != nil {
			t.Errorf("hold what has ended: %v", err)
		}
		release()
		if err := g.Enter(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("enter after the end: %v", err)
		}
	})
}
