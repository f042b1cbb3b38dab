package rlm

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/spec"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
)

// Models are the language models of a gateway's kernels, and what they have used. The
// zero value has none.
type Models struct {
	// Open makes one of its name; nil for no models.
	Open func(name string, o model.Options) (model.Model, error)

	mu  sync.Mutex
	all map[string]*models // by server and session
}

// of returns the models of a session, which know what it has used since the gateway was
// started.
func (all *Models) of(env Env, set body.Settings) (*models, error) {
	m := &models{set: set, budget: model.NewBudget(model.Limits{Calls: set.Budget.Calls, Tokens: set.Budget.Tokens, Cost: set.Budget.Cost})}
	var err error
	if m.prices, err = spec.ReadPrices(set.Prices); err != nil {
		return nil, fmt.Errorf("settings.prices: %w", err)
	}
	if all == nil || all.Open == nil {
		return m, nil
	}
	m.open = all.Open
	key := env.Server + "/" + env.Session
	all.mu.Lock()
	defer all.mu.Unlock()
	if before := all.all[key]; before != nil && reflect.DeepEqual(before.set, set) {
		return before, nil
	}
	if all.all == nil {
		all.all = make(map[string]*models)
	}
	all.all[key] = m
	m.forget = func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.all[key] == m && m.budget.Usage().Calls == 0 {
			delete(all.all, key)
		}
	}
	return m, nil
}

// models are the language models of one session, and what they may use in all.
type models struct {
	open   func(name string, o model.Options) (model.Model, error)
	set    body.Settings
	prices model.Prices
	budget *model.Budget
	forget func() // called when the front is closed: what was not used needs no memory

	mu    sync.Mutex
	by    map[string]model.Model // those that were opened
	since model.Usage            // what had been used when it was last reset
}

// named returns a model.
func (m *models) named(name string) (model.Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		return nil, errors.New("there is no language model here")
	}
	if opened := m.by[name]; opened != nil {
		return opened, nil
	}
	opened, err := m.open(name, model.Options{BaseURL: m.set.BaseURL, KeyEnv: m.set.KeyEnv, Prices: m.prices})
	if err != nil {
		return nil, err
	}
	if m.by == nil {
		m.by = make(map[string]model.Model)
	}
	m.by[name] = opened
	return opened, nil
}

// ask has the model that writes code answer.
func (m *models) ask(ctx context.Context, r model.Request) (model.Reply, error) {
	main, err := m.named(m.set.Model)
	if err != nil {
		return model.Reply{}, err
	}
	return main.Ask(ctx, r, nil)
}

// query asks one prompt for code in a kernel.
func (m *models) query(ctx context.Context, prompt string, budget *model.Budget) (string, error) {
	name := m.set.SubModel
	if name == "" {
		name = m.set.Model
	}
	sub, err := m.named(name)
	if err != nil {
		return "", err
	}
	reply, err := sub.Ask(ctx, model.Request{Messages: []model.Message{{Role: "user", Text: prompt}}, Budget: budget}, nil)
	return reply.Message.Text, err
}

// answer answers what code asks. Of a batch a prompt that fails takes its own place.
func (m *models) answer(ctx context.Context, e event, budget *model.Budget) (any, error) {
	switch e.What {
	case "llm_query":
		return m.query(ctx, e.Prompt, budget)
	case "llm_query_batch":
		answers := make([]string, len(e.Prompts))
		places := make(chan struct{}, queriesAtOnce)
		var wg sync.WaitGroup
		for i, prompt := range e.Prompts {
			wg.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				text, err := m.query(ctx, prompt, budget)
				if err != nil {
					text = "[error] " + err.Error()
				}
				answers[i] = text
			})
		}
		wg.Wait()
		return answers, nil
	}
	return nil, fmt.Errorf("the host can't do %q", e.What)
}

// usage is what was used since it was last reset.
func (m *models) usage(reset bool) model.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.budget.Usage()
	out := now
	out.InputTokens -= m.since.InputTokens
	out.OutputTokens -= m.since.OutputTokens
	out.CacheRead -= m.since.CacheRead
	out.CacheWrite -= m.since.CacheWrite
	out.Calls -= m.since.Calls
	out.Cost -= m.since.Cost
	if reset {
		m.since = now
	}
	return out
}
