package model

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// Limits are what may be used. Zero is no limit.
type Limits struct {
	Calls  int64
	Tokens int64
	Cost   float64 // in US dollars
	Until  time.Time
}

// A Budget limits what calls use together. A call takes from its budget and from all
// budgets that this one is within. Before it is sent, it reserves what it may use at
// most, and its output is limited to what is there. Afterwards only what it used is
// taken. If other calls have reserved what it needs, it waits for them.
//
// The tokens of a prompt are an estimate until the reply counts them, so a limit may
// be exceeded by the error of one estimate a call. The next call is then refused.
//
// The zero value has no limits. Methods may run at once; nil has no limits either.
type Budget struct {
	parent *Budget
	limits Limits
	family *family // shared by all budgets of a tree
	alone  family  // the family of the zero value

	used Usage // guarded by the family, as are these
	held reservation
}

// A family is the lock of a tree of budgets.
type family struct {
	mu      sync.Mutex
	changed chan struct{} // closed when a reservation is given back
}

// reservation is what calls in progress may still use.
type reservation struct {
	calls, tokens int64
	cost          float64
}

// NewBudget returns a budget that is within no other.
func NewBudget(l Limits) *Budget { return &Budget{limits: l} }

// Within returns a budget with its own limits that takes from b.
func (b *Budget) Within(l Limits) *Budget {
	if b == nil {
		return NewBudget(l)
	}
	return &Budget{parent: b, limits: l, family: b.tree()}
}

func (b *Budget) tree() *family {
	if b.family != nil {
		return b.family
	}
	return &b.alone
}

// Usage returns what the calls that have ended used, those of budgets within b too.
func (b *Budget) Usage() Usage {
	if b == nil {
		return Usage{}
	}
	f := b.tree()
	f.mu.Lock()
	defer f.mu.Unlock()
	return b.used
}

// until is when the time of b or of one around it ends; zero for never.
func (b *Budget) until() time.Time {
	var first time.Time
	for ; b != nil; b = b.parent {
		if t := b.limits.Until; !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// limitsCost reports whether money is limited.
func (b *Budget) limitsCost() bool {
	for ; b != nil; b = b.parent {
		if b.limits.Cost > 0 {
			return true
		}
	}
	return false
}

// limitsOutput reports whether tokens or money are limited.
func (b *Budget) limitsOutput() bool {
	for p := b; p != nil; p = p.parent {
		if p.limits.Tokens > 0 {
			return true
		}
	}
	return b.limitsCost()
}

// An OverBudget is the error of a call that its budget does not allow. It unwraps to
// an *api.Error.
type OverBudget struct {
	Model string
	What  string // calls, tokens, cost or time
	// Limit and Used are calls, tokens or US dollars, and Need is what the call wants.
	// They are zero for time.
	Limit, Used, Need float64
	Until             time.Time // for time
}

func (e *OverBudget) Error() string {
	left := max(e.Limit-e.Used, 0)
	var why string
	switch e.What {
	case "time":
		why = fmt.Sprintf("the time of the budget ended at %s", e.Until.Format(time.RFC3339))
	case "calls":
		why = fmt.Sprintf("all %.0f calls of the budget are used", e.Limit)
	case "cost":
		why = fmt.Sprintf("$%.4f of the budget of $%.4f are left, and the call may cost $%.4f", left, e.Limit, e.Need)
	default:
		why = fmt.Sprintf("%.0f of the %.0f %s of the budget are left, and the call needs about %.0f", left, e.Limit, e.What, e.Need)
	}
	return fmt.Sprintf("model %q: %s; raise the budget or ask for less", e.Model, why)
}

// Unwrap returns the error as the API has it.
func (e *OverBudget) Unwrap() error {
	return &api.Error{Kind: api.KindRefused, Message: e.Error()}
}

// A need is what a call may use.
type need struct {
	model         string
	input, output int64 // in tokens; output is what is wished for
	// cost is what so many tokens cost; nil if that is not known before the call, which
	// then takes all the money that is left.
	cost func(input, output int64) float64
}

// leastOutput is the output that makes a call worth its prompt.
const leastOutput = 256

// A hold is the reservation of one call.
type hold struct {
	budget *Budget
	amount reservation
	output int64   // how many tokens the reply may have
	money  float64 // what the budget has left; zero if it is not limited
	once   sync.Once
}

// reserve takes what a call may use. The caller settles it when the call has ended.
func (b *Budget) reserve(ctx context.Context, n need) (*hold, error) {
	if b == nil {
		return &hold{output: n.output}, nil
	}
	f := b.tree()
	for {
		f.mu.Lock()
		h, err := b.tryLocked(n, time.Now())
		if h != nil || err != nil {
			f.mu.Unlock()
			return h, err
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLocked reserves, or refuses. It returns neither a hold nor an error if what the
// call needs is reserved by others and may come back.
func (b *Budget) tryLocked(n need, now time.Time) (*hold, error) {
	output := n.output
	least := min(leastOutput, max(n.output, 1))
	for p := b; p != nil; p = p.parent {
		over := &OverBudget{Model: n.model, Until: p.limits.Until}
		l := p.limits
		switch {
		case !l.Until.IsZero() && !now.Before(l.Until):
			over.What = "time"
			return nil, over
		case l.Calls > 0 && p.used.Calls+p.held.calls >= l.Calls:
			// A reserved call is as good as made, so there is nothing to wait for.
			over.What, over.Limit, over.Used, over.Need = "calls", float64(l.Calls), float64(p.used.Calls+p.held.calls), 1
			return nil, over
		case l.Tokens > 0 && p.used.Tokens()+n.input+least > l.Tokens:
			over.What, over.Limit, over.Used, over.Need = "tokens", float64(l.Tokens), float64(p.used.Tokens()), float64(n.input+least)
			return nil, over
		case l.Cost > 0 && (n.cost == nil && p.used.Cost >= l.Cost || n.cost != nil && p.used.Cost+n.cost(n.input, least) > l.Cost):
			over.What, over.Limit, over.Used = "cost", l.Cost, p.used.Cost
			if n.cost != nil {
				over.Need = n.cost(n.input, least)
			}
			return nil, over
		}
		if l.Tokens > 0 {
			output = min(output, l.Tokens-p.used.Tokens()-n.input)
		}
		if l.Cost > 0 && n.cost != nil {
			output = affordable(n, l.Cost-p.used.Cost, least, output)
		}
	}
	h := &hold{budget: b, output: output, money: b.moneyLeft(), amount: reservation{calls: 1, tokens: n.input + output}}
	h.amount.cost = h.money
	if n.cost != nil {
		h.amount.cost = n.cost(n.input, output)
	}
	for p := b; p != nil; p = p.parent {
		if l := p.limits.Tokens; l > 0 && p.used.Tokens()+p.held.tokens+h.amount.tokens > l {
			return nil, nil
		}
		if l := p.limits.Cost; l > 0 && p.used.Cost+p.held.cost+h.amount.cost > l+costSlack {
			return nil, nil
		}
	}
	for p := b; p != nil; p = p.parent {
		p.held.add(h.amount, 1)
	}
	return h, nil
}

// costSlack is for sums of floating-point numbers that should be equal.
const costSlack = 1e-9

// affordable is the largest output, between least and most, that the money pays for.
func affordable(n need, money float64, least, most int64) int64 {
	for least < most {
		middle := least + (most-least+1)/2
		if n.cost(n.input, middle) > money {
			most = middle - 1
		} else {
			least = middle
		}
	}
	return most
}

// moneyLeft is what neither b nor one around it has spent; zero if it is not limited.
func (b *Budget) moneyLeft() float64 {
	left, limited := 0.0, false
	for p := b; p != nil; p = p.parent {
		if l := p.limits.Cost; l > 0 && (!limited || l-p.used.Cost < left) {
			left, limited = l-p.used.Cost, true
		}
	}
	return left
}

func (r *reservation) add(s reservation, sign int64) {
	r.calls += sign * s.calls
	r.tokens += sign * s.tokens
	r.cost += float64(sign) * s.cost
	if r.calls == 0 {
		r.cost = 0 // what rounding left
	}
}

// settle gives the reservation back and takes what was used.
func (h *hold) settle(u Usage) {
	if h.budget == nil {
		return
	}
	h.once.Do(func() {
		f := h.budget.tree()
		f.mu.Lock()
		defer f.mu.Unlock()
		for p := h.budget; p != nil; p = p.parent {
			p.held.add(h.amount, -1)
			p.used.Add(u)
		}
		if f.changed != nil {
			close(f.changed)
			f.changed = nil
		}
	})
}
