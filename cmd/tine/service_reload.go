package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// watch reloads the config when its file changes, and when asked to by signal.
func (p *service) watch(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	stop := notifyReload(hup)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	if path := p.cfg.Path; path != "" {
		wg.Go(func() {
			err := config.Watch(ctx, path, p.o.Options, func(c *config.Config, err error) { _ = p.apply(ctx, c, err) })
			if err != nil && ctx.Err() == nil {
				p.o.Log.Warn("the config file is not watched; SIGHUP still reloads it", "err", err)
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			_ = p.reload(ctx) // which logs what is wrong
		}
	}
}

// reload reads the config again and applies it.
func (p *service) reload(ctx context.Context) error {
	c, err := p.o.Load()
	return p.apply(ctx, c, err)
}

// apply applies a new config, or logs why not and keeps the old one. The caller gets
// the error too.
func (p *service) apply(ctx context.Context, next *config.Config, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("the gateway is being stopped")
	}
	if err == nil {
		err = p.take(ctx, next)
	}
	if err != nil {
		p.notReloaded.Store(&api.NotReloaded{At: time.Now(), Reason: err.Error()})
		p.o.Log.Error("the config is not reloaded; the old one stays", "err", err)
	} else {
		p.notReloaded.Store(nil)
	}
	return err
}

// take applies a new config. p.mu is held.
func (p *service) take(ctx context.Context, next *config.Config) error {
	next.Listen = p.cfg.Listen // what listens stays until a restart
	changes := config.Diff(p.cfg, next)
	// The settings of the listener stay as they are until a restart.
	waits := slices.DeleteFunc(slices.Clone(changes.Rest), func(key string) bool {
		return key != "listen" && key != "tls" && key != "log" && key != "limits" && key != "telemetry" && key != "sandbox_binary"
	})
	if len(waits) > 0 {
		p.o.Log.Warn("these changes take full effect after a restart", "keys", waits)
	}
	if err := p.checkExposure(ctx, next); err != nil {
		return err
	}
	// Secrets to mask and access rules come before the servers.
	p.o.Redact.Set(append(next.Secrets(), p.token))
	p.hide(slices.Concat(p.cfg.Private(), next.Private()))
	defer func() { p.hide(p.cfg.Private()) }() // of whichever holds then
	if err := p.gateway.Reload(ctx, next); err != nil {
		return err
	}
	if err := p.registry.Apply(ctx, next); err != nil {
		return errors.Join(err, p.gateway.Reload(ctx, p.cfg))
	}
	if p.agents != nil && slices.Contains(changes.Rest, "agents") {
		if err := p.agents.change(next.Agents); err != nil {
			return err
		}
	}
	p.gateway.Secrets()
	p.journal.SetLimits(next.Journal.MaxAge, next.Journal.MaxSize)
	p.cfg = next
	p.allow(next)
	if changes.Empty() {
		return nil
	}
	for _, w := range next.Warnings {
		p.o.Log.Warn(w)
	}
	p.o.Log.Info("config reloaded", changeAttrs(changes)...)
	return nil
}

// changeAttrs are the changes of a reload for the log: servers and tokens by name,
// rules by number, other keys by themselves.
func changeAttrs(ch config.Changes) []any {
	var all []any
	for _, part := range []struct {
		name  string
		names []string
	}{
		{"added", ch.Added},
		{"changed", ch.Changed},
		{"removed", ch.Removed},
		{"access", ch.Auth}, // what is called auth is masked
		{"keys", slices.DeleteFunc(slices.Clone(ch.Rest), func(key string) bool { return key == "auth" })},
	} {
		if len(part.names) > 0 {
			all = append(all, part.name, part.names)
		}
	}
	return all
}
