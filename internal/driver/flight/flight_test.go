package flight

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type nameKey struct{}

// answer is what one caller got.
type answer struct {
	got int
	err error
}

func ask(ctx context.Context, g *Group[int], key string, work func(context.Context) (int, error)) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		got, err := g.Do(ctx, key, work)
		c <- answer{got, err}
	}()
	return c
}

func TestAllWhoWaitGetOneResult(t *testing.T) {
	failed := errors.New("no such thing")
	for name, want := range map[string]answer{"done": {got: 7}, "failed": {err: failed}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group[int]
				goOn, times := make(chan struct{}), 0
				work := func(context.Context) (int, error) {
					times++
					<-goOn
					return want.got, want.err
				}
				var all []<-chan answer
				for range 5 {
					all = append(all, ask(t.Context(), &g, "a", work))
				}
				synctest.Wait()
				close(goOn)
				for _, c := range all {
					if got := <-c; got != want {
						t.Errorf("got %+v, want %+v", got, want)
					}
				}
				if times != 1 || len(g.all) != 0 {
					t.Errorf("done %d times, and %d are left", times, len(g.all))
				}
			})
		})
	}
}

func TestKeysAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		goOn := make(chan struct{})
		first := ask(t.Context(), &g, "a", func(context.Context) (int, error) { <-goOn; return 1, nil })
		synctest.Wait()
		if got, err := g.Do(t.Context(), "b", func(context.Context) (int, error) { return 2, nil }); got != 2 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
		close(goOn)
		if got := <-first; got != (answer{got: 1}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNothingIsRemembered(t *testing.T) {
	var g Group[int]
	for n, failed := range []error{nil, errors.New("no"), nil} {
		got, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return n, failed })
		if got != n || !errors.Is(err, failed) {
			t.Errorf("time %d: got %d, %v", n, got, err)
		}
	}
}

func TestWhoComesFirstMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		gone := errors.New("gone home")
		first, leave := context.WithCancelCause(context.WithValue(t.Context(), nameKey{}, "first"))
		goOn := make(chan struct{})
		one := ask(first, &g, "a", func(ctx context.Context) (int, error) {
			<-goOn
			if ctx.Value(nameKey{}) != "first" {
				t.Error("the work lacks the values of its first caller")
			}
			return 7, ctx.Err()
		})
		synctest.Wait()
		two := ask(t.Context(), &g, "a", nil)
		synctest.Wait()
		leave(gone)
		if got := <-one; !errors.Is(got.err, gone) {
			t.Errorf("the caller that left got %+v", got)
		}
		close(goOn)
		if got := <-two; got != (answer{got: 7}) {
			t.Errorf("the caller that stayed got %+v", got)
		}
	})
}

func TestTheLastWhoLeavesEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		ctx, leave := context.WithCancel(t.Context())
		ended := false
		work := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended = true
			return 0, ctx.Err()
		}
		all := []<-chan answer{ask(ctx, &g, "a", work), ask(ctx, &g, "a", work)}
		synctest.Wait()
		leave()
		for _, c := range all {
			if got := <-c; !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %+v", got)
			}
		}
		if !ended || len(g.all) != 0 {
			t.Errorf("it has ended: %t, and %d are left", ended, len(g.all))
		}
	})
}

func TestWhatWasDoneAllTheSameIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		ctx, leave := context.WithCancel(t.Context())
		got := ask(ctx, &g, "a", func(ctx context.Context) (int, error) { <-ctx.Done(); return 7, nil })
		synctest.Wait()
		leave()
		if got := <-got; got != (answer{got: 7}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestWhoComesWhileItIsCutBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		ctx, leave := context.WithCancel(t.Context())
		end := make(chan struct{})
		cut := ask(ctx, &g, "a", func(ctx context.Context) (int, error) { <-end; return 0, ctx.Err() })
		synctest.Wait()
		leave()
		synctest.Wait()

		impatient, giveUp := context.WithCancel(t.Context())
		left := ask(impatient, &g, "a", nil)
		next := ask(t.Context(), &g, "a", func(ctx context.Context) (int, error) { return 8, ctx.Err() })
		synctest.Wait()
		giveUp()
		if got := <-left; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the caller that gave up got %+v", got)
		}
		close(end)
		if got := <-cut; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the caller that left got %+v", got)
		}
		if got := <-next; got != (answer{got: 8}) {
			t.Errorf("the next got %+v", got)
		}
	})
}

func TestWhoHasLeftBeforeBeginsNothing(t *testing.T) {
	var g Group[int]
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone home")
	cancel(gone)
	_, err := g.Do(ctx, "a", func(context.Context) (int, error) { t.Error("it began"); return 0, nil })
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsOneOfWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		goOn := make(chan struct{})
		work := func(context.Context) (int, error) { <-goOn; panic("a broken archive") }
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				defer func() {
					why, _ := recover().(error)
					if why == nil || !strings.Contains(why.Error(), "a broken archive") || !strings.Contains(why.Error(), "TestAPanicIsOneOfWhoWaits") {
						t.Errorf("it does not say what happened, and where: %v", why)
					}
				}()
				_, _ = g.Do(t.Context(), "a", work)
			})
		}
		synctest.Wait()
		close(goOn)
		all.Wait()
		if got, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
			t.Errorf("the next got %d, %v", got, err)
		}
	})
}

func TestWorkThatDoesNotReturnIsAnError(t *testing.T) {
	var g Group[int]
	if _, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }); !errors.Is(err, errExit) {
		t.Errorf("got %v", err)
	}
}

func TestManyComeAndGo(t *testing.T) {
	var g Group[int]
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if n%3 == 0 {
				go cancel()
			}
			got, err := g.Do(ctx, "a", func(ctx context.Context) (int, error) { runtime.Gosched(); return 7, ctx.Err() })
			if err == nil && got != 7 || err != nil && n%3 != 0 {
				t.Errorf("caller %d got %d, %v", n, got, err)
			}
		})
	}
	all.Wait()
	if len(g.all) != 0 {
		t.Errorf("%d are left", len(g.all))
	}
}

// Work that stays goes on when all callers have left, and others join it; Close ends it.
func TestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Group[int]{Stays: true}
		goOn, times := make(chan struct{}), 0
		work := func(ctx context.Context) (int, error) {
			times++
			select {
			case <-goOn:
				return 7, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		first := ask(ctx, &g, "a", work)
		synctest.Wait()
		leave()
		if got := <-first; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the caller that left got %+v", got)
		}
		second := ask(t.Context(), &g, "a", work)
		synctest.Wait()
		close(goOn)
		if got := <-second; got != (answer{got: 7}) || times != 1 {
			t.Errorf("the later caller got %+v, and it was done %d times", got, times)
		}
		goOn = make(chan struct{})
		ctx, leave = context.WithCancel(t.Context())
		third := ask(ctx, &g, "a", work)
		synctest.Wait()
		leave()
		<-third
		fourth := ask(t.Context(), &g, "a", work)
		synctest.Wait()
		g.Close()
		if got := <-fourth; got.err != ErrClosed || times != 2 || len(g.all) != 0 {
			t.Errorf("at the end got %+v, %d times", got, times)
		}
		if _, err := g.Do(t.Context(), "a", work); err != ErrClosed || times != 2 {
			t.Errorf("after the end got %v, %d times", err, times)
		}
	})
}
