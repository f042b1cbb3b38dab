package model_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A budget limits the output of the request that it pays for, and refuses the next.
func TestBudgetOfARequest(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah", Usage: modeltest.Usage{Input: 10, Output: 890}})
		m := open(t, s, name, model.Options{})
		r := question(strings.Repeat("x", 300))
		r.Budget = model.NewBudget(model.Limits{Tokens: 1000})
		ask(t, m, r, delta)
		var got struct {
			MaxTokens int `json:"max_tokens"`
		}
		s.Requests()[0].Decode(t, &got)
		if got.MaxTokens < 850 || got.MaxTokens > 900 {
			t.Errorf("max_tokens %d", got.MaxTokens)
		}
		_, err := m.Ask(t.Context(), r, delta)
		var over *model.OverBudget
		if e := asAPI(t, err); !errors.As(err, &over) || over.What != "tokens" || e.Kind != api.KindRefused || len(s.Requests()) != 1 {
			t.Errorf("error %v after %d requests", err, len(s.Requests()))
		}
		testkit.Has(t, "error", err.Error(), name, "100 of the 1000 tokens of the budget are left")
		if u := r.Budget.Usage(); u.Tokens() != 900 || u.Calls != 1 || u.Cost == 0 {
			t.Errorf("usage %+v", u)
		}
	})
}

// A call that fails counts, so that a loop of failing calls ends.
func TestBudgetOfFailedCalls(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{Status: 400})
	m := open(t, s, claudeName, model.Options{})
	r := question("?")
	r.Budget = model.NewBudget(model.Limits{Calls: 1})
	if e := failed(t, open(t, s, claudeName, model.Options{Environ: environ()}), r, nil); e.Kind != api.KindRefused {
		t.Errorf("error %+v", e) // without a key nothing is sent, nor counted
	}
	if e := failed(t, m, r, nil); e.Kind != api.KindInvalid {
		t.Errorf("error %+v", e)
	}
	e := failed(t, m, r, nil)
	testkit.Has(t, "error", e.Message, "all 1 calls of the budget are used")
	if u := r.Budget.Usage(); u != (model.Usage{Calls: 1}) {
		t.Errorf("usage %+v", u)
	}
}

// Money can't be limited if nothing is known of the price.
func TestBudgetInMoneyWithoutAPrice(t *testing.T) {
	r := question("?")
	r.Budget = model.NewBudget(model.Limits{Cost: 1}).Within(model.Limits{})
	m := open(t, nil, "qwen3", model.Options{BaseURL: "http://127.0.0.1:1", Client: unreachable(t)})
	e := failed(t, m, r, nil)
	if e.Kind != api.KindRefused {
		t.Errorf("error %+v", e)
	}
	testkit.Has(t, "error", e.Message, "its price is unknown", "add it to the prices")
}

func TestBudgetWhoseTimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modeltest.InMemory(t, modeltest.Reply{Hang: true})
		r := question("?")
		r.Budget = model.NewBudget(model.Limits{Until: time.Now().Add(time.Minute)})
		began := time.Now()
		_, err := open(t, s, claudeName, model.Options{}).Ask(t.Context(), r, nil)
		var over *model.OverBudget
		if !errors.As(err, &over) || over.What != "time" || time.Since(began) != time.Minute {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		asAPI(t, err)
	})
}

// What a call reserves is the most that it is allowed to write, in both formats.
func TestBudgetBoundsOutput(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah"}, modeltest.Reply{Text: "Ah"})
		for _, l := range []model.Limits{{Cost: 1000}, {Tokens: 1 << 30}} {
			r := question("?")
			r.Budget = model.NewBudget(l)
			ask(t, open(t, s, name, model.Options{Prices: model.Prices{name: {Input: 1, Output: 1}}}), r, delta)
		}
		for _, sent := range s.Requests() {
			var got struct {
				Max  int `json:"max_tokens"`
				Most int `json:"max_completion_tokens"`
			}
			sent.Decode(t, &got)
			if got.Max+got.Most != model.DefaultMaxTokens {
				t.Errorf("it may write %d tokens, or %d", got.Max, got.Most)
			}
		}
	})
}
