package model

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
)

// perToken is a price of a dollar a token, for input and for output.
func perToken(input, output int64) float64 { return float64(input + output) }

func over(t *testing.T, err error, what string) *OverBudget {
	t.Helper()
	var o *OverBudget
	if !errors.As(err, &o) || o.What != what {
		t.Fatalf("error %v, want one over the budget of %s", err, what)
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != api.KindRefused || e.Message != err.Error() {
		t.Errorf("error %v is not the API's", err)
	}
	return o
}

func take(t *testing.T, b *Budget, n need) *hold {
	t.Helper()
	h, err := b.reserve(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestBudgetOfCalls(t *testing.T) {
	b := NewBudget(Limits{Calls: 2})
	first := take(t, b, need{output: 10})
	take(t, b, need{output: 10}).settle(Usage{Calls: 1})
	// The first one is not back, but is as good as used.
	_, err := b.reserve(t.Context(), need{model: "m", output: 10})
	if o := over(t, err, "calls"); o.Limit != 2 || o.Used != 2 {
		t.Errorf("%+v", o)
	}
	if want := `model "m": all 2 calls of the budget are used; raise the budget or ask for less`; err.Error() != want {
		t.Errorf("error %q", err)
	}
	first.settle(Usage{}) // it was not sent
	first.settle(Usage{Calls: 9})
	take(t, b, need{output: 10}).settle(Usage{Calls: 1})
	if u := b.Usage(); u.Calls != 2 {
		t.Errorf("usage %+v", u)
	}
}

func TestBudgetOfTokens(t *testing.T) {
	b := NewBudget(Limits{Tokens: 1000})
	h := take(t, b, need{input: 100, output: 5000})
	if h.output != 900 {
		t.Errorf("output of %d tokens", h.output)
	}
	h.settle(Usage{InputTokens: 50, CacheRead: 60, OutputTokens: 200})
	h = take(t, b, need{input: 100, output: 50})
	if h.output != 50 {
		t.Errorf("output of %d tokens", h.output)
	}
	h.settle(Usage{OutputTokens: 400})
	_, err := b.reserve(t.Context(), need{input: 100, output: 5000})
	if o := over(t, err, "tokens"); o.Limit != 1000 || o.Used != 710 || o.Need != 356 {
		t.Errorf("%+v", o)
	}
	take(t, b, need{input: 30, output: 5000}).settle(Usage{OutputTokens: 700}) // more than there was
	_, err = b.reserve(t.Context(), need{input: 1, output: 1})
	over(t, err, "tokens")
}

func TestBudgetOfMoney(t *testing.T) {
	b := NewBudget(Limits{Cost: 1000})
	h := take(t, b, need{input: 100, output: 5000, cost: perToken})
	if h.output != 900 || h.money != 1000 {
		t.Errorf("output of %d tokens for %v", h.output, h.money)
	}
	h.settle(Usage{Cost: 600})
	_, err := b.reserve(t.Context(), need{input: 200, output: 5000, cost: perToken})
	if o := over(t, err, "cost"); o.Limit != 1000 || o.Used != 600 || o.Need != 456 {
		t.Errorf("%+v", o)
	}
	// What a call costs may be known only afterwards. It gets all that is left.
	h = take(t, b, need{input: 1, output: 1})
	if h.money != 400 {
		t.Errorf("%v for the call", h.money)
	}
	h.settle(Usage{Cost: 500})
	_, err = b.reserve(t.Context(), need{input: 1, output: 1})
	over(t, err, "cost")
}

func TestBudgetOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(Limits{Until: time.Now().Add(time.Minute)}).Within(Limits{Until: time.Now().Add(time.Hour)})
		if want := time.Now().Add(time.Minute); !b.until().Equal(want) {
			t.Errorf("until %v, want %v", b.until(), want)
		}
		take(t, b, need{output: 1}).settle(Usage{})
		time.Sleep(time.Minute)
		_, err := b.reserve(t.Context(), need{output: 1})
		over(t, err, "time")
	})
}

func TestBudgetWithinABudget(t *testing.T) {
	parent := NewBudget(Limits{Tokens: 1000, Calls: 3})
	a, b := parent.Within(Limits{Tokens: 600}), parent.Within(Limits{})
	grandchild := b.Within(Limits{Calls: 2})
	take(t, a, need{input: 10, output: 9000}).settle(Usage{Calls: 1, InputTokens: 10, OutputTokens: 580})
	if h := take(t, grandchild, need{output: 9000}); h.output != 410 {
		t.Errorf("output of %d tokens", h.output)
	} else {
		h.settle(Usage{Calls: 1, OutputTokens: 110})
	}
	_, err := a.reserve(t.Context(), need{input: 5, output: 9000})
	if o := over(t, err, "tokens"); o.Limit != 600 {
		t.Errorf("%+v", o)
	}
	take(t, b, need{output: 10}).settle(Usage{Calls: 1, OutputTokens: 10})
	_, err = grandchild.reserve(t.Context(), need{output: 10})
	if o := over(t, err, "calls"); o.Limit != 3 {
		t.Errorf("%+v", o)
	}
	for i, want := range []struct {
		b      *Budget
		tokens int64
	}{{parent, 710}, {a, 590}, {b, 120}, {grandchild, 110}} {
		if got := want.b.Usage().Tokens(); got != want.tokens {
			t.Errorf("budget %d used %d tokens, want %d", i, got, want.tokens)
		}
	}
}

// A call waits for what others have reserved, as they rarely use all of it.
func TestBudgetThatIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []need{{input: 10, output: 600}, {input: 10, output: 600, cost: perToken}} {
			parent := NewBudget(Limits{Tokens: 1000, Cost: 1000})
			first := take(t, parent.Within(Limits{}), n)
			got := make(chan *hold, 1)
			go func() {
				h, err := parent.Within(Limits{}).reserve(t.Context(), n)
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
			synctest.Wait()
			if len(got) != 0 {
				t.Fatal("more was reserved than there is")
			}
			first.settle(Usage{OutputTokens: 20, Cost: 20})
			(<-got).settle(Usage{})

			first = take(t, parent, n)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := parent.reserve(ctx, n); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			cancel()
			first.settle(Usage{})
		}
	})
}

func TestBudgetWithoutLimits(t *testing.T) {
	var none *Budget
	var zero Budget
	for _, b := range []*Budget{none, &zero, none.Within(Limits{}), zero.Within(Limits{})} {
		h := take(t, b, need{input: math.MaxInt32, output: 7, cost: perToken})
		if h.output != 7 || b.limitsCost() || !b.until().IsZero() {
			t.Errorf("hold %+v", h.amount)
		}
		h.settle(Usage{Calls: 1})
	}
	if none.Usage() != (Usage{}) || zero.Usage().Calls != 2 {
		t.Errorf("usage %+v", zero.Usage())
	}
}

// Many calls at once neither exceed a budget nor leave some of it reserved.
func TestBudgetForManyAtOnce(t *testing.T) {
	parent := NewBudget(Limits{Tokens: 20_000, Cost: 20_000, Calls: 70})
	var refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		child := parent.Within(Limits{Tokens: 15_000})
		wg.Go(func() {
			for j := range 20 {
				n := need{input: 10, output: int64(300 + 100*i), cost: perToken}
				if j%5 == 0 {
					n.cost = nil
				}
				h, err := child.reserve(t.Context(), n)
				if err != nil {
					refused.Add(1)
					continue
				}
				used := 10 + h.output*int64(j%3)/2
				if used > 10+h.output {
					t.Errorf("uses %d of %d", used, h.output)
				}
				if h.money < float64(used) && n.cost != nil {
					t.Errorf("%v are reserved for %d", h.money, used)
				}
				h.settle(Usage{Calls: 1, OutputTokens: min(used, 10+h.output), Cost: min(float64(used), h.money)})
			}
		})
	}
	wg.Wait()
	u := parent.Usage()
	if u.Tokens() > 20_000 || u.Cost > 20_000+costSlack || u.Calls > 70 || refused.Load() == 0 {
		t.Errorf("usage %+v, %d refused", u, refused.Load())
	}
	if parent.held != (reservation{}) {
		t.Errorf("still reserved: %+v", parent.held)
	}
}
