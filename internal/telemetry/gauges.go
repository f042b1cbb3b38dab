package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Snapshot is the state of the gateway at one moment.
type Snapshot struct {
	Servers      []ServerGauges
	Sessions     int
	Clients      int
	JournalBytes int64
	JournalLag   int64 // calls that the index has not seen yet
}

// ServerGauges is the state of one server.
type ServerGauges struct {
	ID        string
	Driver    string
	Breaker   string // closed, half-open or open; empty without one
	Up        bool   // false when it failed
	Instances int
	InFlight  int
	Queue     int
	Restarts  int // since the gateway started
	Pool      *PoolGauges
}

// PoolGauges is the state of a server's pool; nil if its driver has none.
type PoolGauges struct {
	Slots  int // of no snapshot
	Ready  int // of a snapshot, and not yet used by a session
	Live   int
	Parked int
}

var (
	descInFlight = prometheus.NewDesc("tine_calls_in_flight", "Running calls.", []string{"server"}, nil)
	descQueue    = prometheus.NewDesc("tine_queue_length", "Calls that wait for a place.", []string{"server"}, nil)
	descBreaker  = prometheus.NewDesc("tine_breaker_state", "Circuit breaker: 0 closed, 1 half-open, 2 open.", []string{"server"}, nil)
	descInst     = prometheus.NewDesc("tine_instances", "Running instances.", []string{"server", "driver"}, nil)
	descUp       = prometheus.NewDesc("tine_server_up", "0 when the server failed, else 1.", []string{"server"}, nil)
	descRestarts = prometheus.NewDesc("tine_instance_restarts_total", "Instances started again after they ended by themselves.", []string{"server"}, nil)
	descSlots    = prometheus.NewDesc("tine_pool_slots", "Slots that are prepared for instances of no snapshot.", []string{"server"}, nil)
	descReady    = prometheus.NewDesc("tine_pool_ready", "Instances that were made of a snapshot ahead of time and are not used yet.", []string{"server"}, nil)
	descLive     = prometheus.NewDesc("tine_pool_live", "Instances that a pool keeps count of, parked ones too.", []string{"server"}, nil)
	descParked   = prometheus.NewDesc("tine_pool_parked", "Instances that rest and use no CPU until they are called.", []string{"server"}, nil)
	descSessions = prometheus.NewDesc("tine_sessions", "Open sessions.", nil, nil)
	descClients  = prometheus.NewDesc("tine_clients", "Connected MCP clients.", nil, nil)
	descBytes    = prometheus.NewDesc("tine_journal_bytes", "Size of the call journal.", nil, nil)
	descLag      = prometheus.NewDesc("tine_journal_index_lag", "Journalled calls that the index has not seen yet.", nil, nil)
)

// gauges reads the state when it is scraped, so that calls need not update it.
type gauges struct {
	snapshot func() Snapshot
}

var _ prometheus.Collector = (*gauges)(nil)

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descInFlight, descQueue, descBreaker, descInst, descUp, descRestarts,
		descSlots, descReady, descLive, descParked, descSessions, descClients, descBytes, descLag,
	} {
		ch <- d
	}
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	snap := g.snapshot()
	seen := make(map[string]bool, len(snap.Servers))
	for _, s := range snap.Servers {
		id := label(s.ID)
		if seen[id] {
			continue // a duplicate series would make the whole scrape fail
		}
		seen[id] = true
		gauge(descInFlight, float64(s.InFlight), id)
		gauge(descQueue, float64(s.Queue), id)
		if v, ok := breakerValue(s.Breaker); ok {
			gauge(descBreaker, v, id)
		}
		gauge(descInst, float64(s.Instances), id, label(s.Driver))
		up := 0.0
		if s.Up {
			up = 1
		}
		gauge(descUp, up, id)
		ch <- prometheus.MustNewConstMetric(descRestarts, prometheus.CounterValue, float64(s.Restarts), id)
		if p := s.Pool; p != nil {
			gauge(descSlots, float64(p.Slots), id)
			gauge(descReady, float64(p.Ready), id)
			gauge(descLive, float64(p.Live), id)
			gauge(descParked, float64(p.Parked), id)
		}
	}
	gauge(descSessions, float64(snap.Sessions))
	gauge(descClients, float64(snap.Clients))
	gauge(descBytes, float64(snap.JournalBytes))
	gauge(descLag, float64(snap.JournalLag))
}

func breakerValue(state string) (float64, bool) {
	switch state {
	case "closed":
		return 0, true
	case "half-open":
		return 1, true
	case "open":
		return 2, true
	}
	return 0, false
}

// label makes any text fit to be a label value.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// plainWord reports whether s can be a fixed word of ours rather than text from
// outside.
func plainWord(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
