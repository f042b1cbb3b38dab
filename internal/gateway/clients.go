package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// sessionFor finds the session of a new client connection that names none: one of its
// own, or, where the config says so, the principal's default session.
func (g *Gateway) sessionFor(ctx context.Context, who identity.Principal, caps []byte) (*session.Session, error) {
	if g.reg.Catalog().Config.Sessions.Implicit == config.ImplicitShared {
		return g.reg.Default(ctx, who.Name)
	}
	return g.reg.ForClient(ctx, who.Name, caps)
}

// maxClients bounds the clients of one principal.
const maxClients = 1000

// admit makes a client durable and known. It is written before it is answered.
func (g *Gateway) admit(ctx context.Context, c *client) error {
	rec, err := c.record()
	if err != nil {
		return err
	}
	if err := g.makeRoom(ctx, rec.Principal); err != nil {
		return err
	}
	if err := g.o.Clients.PutClient(ctx, rec); err != nil {
		g.mu.Lock()
		g.disown(rec.Principal)
		g.mu.Unlock()
		return fmt.Errorf("recording the client: %w", err)
	}
	c.durable = true
	g.mu.Lock()
	g.clients[c.id] = c
	g.mu.Unlock()
	return nil
}

// makeRoom counts one more client of a principal in. Where that is too many the
// one that was not used for the longest makes room.
func (g *Gateway) makeRoom(ctx context.Context, owner string) error {
	g.mu.Lock()
	var oldest *client
	// Without names there is only one user, and no other to be protected from it.
	if owner != "" && g.owned[owner] >= maxClients {
		for _, c := range g.clients {
			if c.principal().Name == owner && c.idle() && (oldest == nil || c.used.Load() < oldest.used.Load()) {
				oldest = c
			}
		}
		if oldest == nil {
			g.mu.Unlock()
			return &api.Error{
				Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true,
				Message: fmt.Sprintf("%s has %d clients connected, and all of them are in use; end some first", owner, maxClients),
			}
		}
		g.drop(oldest) // at once: the next one must not choose it too
	}
	g.owned[owner]++
	g.mu.Unlock()
	if oldest != nil {
		g.log.Info("client closed to make room for a new one of the same principal", "client", oldest.id[:6], "principal", owner)
		g.dismiss(context.WithoutCancel(ctx), oldest)
	}
	return nil
}

// disown counts a client of a principal out. g.mu is held.
func (g *Gateway) disown(owner string) {
	if g.owned[owner]--; g.owned[owner] <= 0 {
		delete(g.owned, owner)
	}
}

// drop takes a client out of the known ones. g.mu is held.
func (g *Gateway) drop(c *client) {
	if g.clients[c.id] != c {
		return
	}
	delete(g.clients, c.id)
	g.disown(c.principal().Name)
}

// find returns a client by its Mcp-Session-Id, if it belongs to the principal.
// Finding it is a use, noted under the lock that the reaper chooses under: a
// client that was found is not reaped before its request runs.
func (g *Gateway) find(id string, who identity.Principal) *client {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clients[id]
	if c == nil || c.principal().Name != who.Name || who.Session != "" && who.Session != c.sess.ID || c.token != who.Token() {
		return nil
	}
	c.touch()
	return c
}

// dismiss ends a client for good, and with it a session that was only its own.
func (g *Gateway) dismiss(ctx context.Context, c *client) {
	g.mu.Lock()
	g.drop(c)
	g.mu.Unlock()
	c.close()
	if c.durable {
		if err := g.o.Clients.DeleteClient(ctx, c.id); err != nil {
			g.log.Warn("client not forgotten", "err", err)
		}
	}
	if c.sess.Kind == session.KindClient {
		g.reg.CloseSession(ctx, c.sess)
	}
}

// restoreClients brings the clients of an earlier gateway back.
func (g *Gateway) restoreClients(ctx context.Context) error {
	recs, err := g.o.Clients.Clients(ctx)
	if err != nil {
		return err
	}
	idle := g.reg.Catalog().Config.Limits.Idle
	for _, rec := range recs {
		sess := g.reg.Get(rec.Session)
		var kept clientRecord
		if sess == nil || time.Since(rec.Used) > idle || json.Unmarshal(rec.Init, &kept) != nil {
			if err := g.o.Clients.DeleteClient(ctx, rec.ID); err != nil {
				return err
			}
			continue
		}
		c := g.newClient(rec.ID, keptView(rec.View), sess, identity.Principal{Name: rec.Principal}, rec.Protocol, kept.initParams, newOutbox(false, g.log))
		c.created, c.durable, c.uses, c.token = rec.Created, true, kept.Uses, kept.Token
		c.used.Store(rec.Used.UnixNano()) // a restart is no word of the client
		g.clients[c.id] = c
		g.owned[rec.Principal]++
	}
	return nil
}

// reap ends clients that have not been heard of for long, and looks after the
// calls of the others.
func (g *Gateway) reap() {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-g.life.Done():
			return
		case <-look.C:
			g.mu.Lock()
			all := slices.Collect(maps.Values(g.clients))
			g.mu.Unlock()
			for _, c := range all {
				c.prime()
			}
			continue
		case <-tick.C:
		}
		g.reapIdle(time.Now())
	}
}

// reapIdle ends the clients that were idle for longer than limits.idle, and the programs
// of those that seem to have left, which time without a gateway does not show. A client
// with a running request or an open stream is in use, however long that takes.
func (g *Gateway) reapIdle(now time.Time) {
	idle := g.reg.Catalog().Config.Limits.Idle
	var all, gone, left []*client
	g.mu.Lock()
	for _, c := range g.clients {
		switch {
		case !c.idle():
			c.touch()
			all = append(all, c)
		case now.Sub(time.Unix(0, c.used.Load())) > idle:
			g.drop(c) // at once: no request may find it any more
			gone = append(gone, c)
		default:
			all = append(all, c)
			if now.Sub(time.Unix(0, max(c.used.Load(), g.started.UnixNano()))) > api.ClientAway {
				left = append(left, c)
			}
		}
	}
	g.mu.Unlock()
	g.touchClients(all)
	for _, c := range left {
		g.spawn(func() { g.reg.EndPrograms(c.sess) })
	}
	for _, c := range gone {
		g.log.Info("idle client closed", "client", c.id[:6], "session", c.sess.ID)
		g.dismiss(g.life, c)
	}
}

func (g *Gateway) touchClients(all []*client) {
	used := make(map[string]time.Time, len(all))
	for _, c := range all {
		if c.durable {
			used[c.id] = time.Unix(0, c.used.Load())
		}
	}
	if len(used) == 0 {
		return
	}
	if err := g.o.Clients.TouchClients(context.WithoutCancel(g.life), used); err != nil {
		g.log.Warn("use of clients not recorded", "err", err)
	}
}
