package gateway

import (
	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// Secrets tells the redactor what must never be shown, as the servers are now.
func (g *Gateway) Secrets() {
	cfg := *g.reg.Catalog().Config
	cfg.Servers = g.reg.Servers()
	g.o.Redact.Set(append(cfg.Secrets(), g.o.Operator))
}

// Snapshot is how everything is doing, for metrics.
func (g *Gateway) Snapshot() telemetry.Snapshot {
	cat := g.reg.Catalog()
	g.mu.Lock()
	s := telemetry.Snapshot{Sessions: len(g.reg.Sessions()), Clients: len(g.clients) + len(g.channels)}
	g.mu.Unlock()
	pools := g.reg.Pools()
	for _, e := range cat.Entries {
		d := g.services.Servers.Describe(e)
		one := telemetry.ServerGauges{
			ID: e.ID, Driver: e.Driver, Breaker: d.Breaker, Up: d.State != api.StateFailed,
			Instances: d.Instances, InFlight: d.InFlight, Queue: d.Queue, Restarts: d.Restarts,
		}
		if p, ok := pools[e.ID]; ok {
			one.Pool = &telemetry.PoolGauges{Slots: p.Slots, Ready: p.Ready, Live: p.Live, Parked: p.Parked}
		}
		s.Servers = append(s.Servers, one)
	}
	if g.o.Journal != nil {
		st := g.o.Journal.Stats()
		s.JournalBytes, s.JournalLag = st.Bytes, st.Lag
	}
	return s
}
