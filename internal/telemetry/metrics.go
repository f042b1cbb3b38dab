package telemetry

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Words that stand as label values. Labels are these and ids from the config, so no
// caller can make new series.
const (
	OutcomeOK             = "ok"
	OutcomeCancelled      = "cancelled"
	OutcomeTool           = "tool"
	OutcomeInfrastructure = "infrastructure"
	OutcomeTimeout        = "timeout"
	OutcomeRefused        = "refused"
	OutcomeInvalid        = "invalid"
	OutcomeLost           = "lost"

	RefusedRate          = "rate"
	RefusedConcurrency   = "concurrency"
	RefusedBreaker       = "breaker"
	RefusedUpstreamLimit = "upstream_limit"
	RefusedAccess        = "access"

	CacheLists   = "lists"
	CacheResults = "results"
)

// maxAuthReasons bounds the reasons of AuthFailure; further ones count as "other".
const maxAuthReasons = 32

// callBuckets reach from a relay on the same machine to a tool that works for
// minutes.
var callBuckets = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
}

// Metrics counts what the gateway does, in a registry of its own. All methods may
// be called at once, and on nil.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	retries  *prometheus.CounterVec
	cache    *prometheus.CounterVec
	auth     *prometheus.CounterVec
	journal  prometheus.Counter

	mu      sync.RWMutex
	servers map[string]*ServerMetrics
	reasons map[string]prometheus.Counter
}

// NewMetrics makes the metrics of a gateway. snapshot is asked for the gauges at
// each scrape, by several goroutines at once if several scrape; nil leaves them out.
func NewMetrics(version string, snapshot func() Snapshot) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls:    counter("tine_calls_total", "Calls by server and how they ended: ok, cancelled or the kind of error.", "server", "outcome"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tine_call_duration_seconds", Help: "How long calls took, waiting and retries included.", Buckets: callBuckets,
		}, []string{"server"}),
		refused: counter("tine_refused_total", "Calls refused before they reached the server.", "server", "reason"),
		retries: counter("tine_retries_total", "Attempts after the first one of a call.", "server"),
		cache:   counter("tine_cache_requests_total", "Lists and results asked of the cache.", "server", "cache", "result"),
		auth:    counter("tine_auth_failures_total", "Requests that failed authentication or authorization.", "reason"),
		journal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tine_journal_errors_total", Help: "Calls that could not be written to the journal.",
		}),
		servers: make(map[string]*ServerMetrics),
		reasons: make(map[string]prometheus.Counter),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tine_build_info", Help: "1, with the version that runs.",
	}, []string{"version"})
	build.WithLabelValues(label(version)).Set(1)
	m.registry.MustRegister(m.calls, m.duration, m.refused, m.retries, m.cache, m.auth, m.journal, build, panics,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if snapshot != nil {
		m.registry.MustRegister(&gauges{snapshot: snapshot})
	}
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 8,
		Registry:            m.registry,
	})
	return m
}

// Handler answers scrapes. What can be collected is shown even if something
// can't; promhttp_metric_handler_errors_total counts that.
func (m *Metrics) Handler() http.Handler {
	if m == nil {
		return http.NotFoundHandler()
	}
	return m.handler
}

// Server is the handle of one server of the config, to be kept by its caller.
func (m *Metrics) Server(id string) *ServerMetrics {
	if m == nil {
		return nil
	}
	m.mu.RLock()
	s := m.servers[id]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.servers[id]; s != nil {
		return s
	}
	s = newServerMetrics(m, label(id))
	m.servers[id] = s
	return s
}

// Forget takes a server that left the config out of the metrics. Handles of it
// that are still held count into nothing.
func (m *Metrics) Forget(server string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.servers, server)
	of := prometheus.Labels{"server": label(server)}
	for _, vec := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.calls, m.duration, m.refused, m.retries, m.cache} {
		vec.DeletePartialMatch(of)
	}
}

// AuthFailure counts a request that was refused; reason is a fixed word such as the
// code of the refusal.
func (m *Metrics) AuthFailure(reason string) {
	if m == nil {
		return
	}
	if !plainWord(reason) {
		reason = "other"
	}
	m.mu.RLock()
	c := m.reasons[reason]
	m.mu.RUnlock()
	if c == nil {
		c = m.newReason(reason)
	}
	c.Inc()
}

func (m *Metrics) newReason(reason string) prometheus.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reasons) >= maxAuthReasons && m.reasons[reason] == nil {
		reason = "other"
	}
	c := m.auth.WithLabelValues(reason)
	m.reasons[reason] = c
	return c
}

// JournalError counts a call that could not be journalled.
func (m *Metrics) JournalError() {
	if m != nil {
		m.journal.Inc()
	}
}

// ServerMetrics counts for one server. All series exist from the start, so that
// the first failure is seen as an increase.
type ServerMetrics struct {
	calls    map[string]prometheus.Counter
	duration prometheus.Observer
	refused  map[string]prometheus.Counter
	retries  prometheus.Counter
	hits     map[string]prometheus.Counter
	misses   map[string]prometheus.Counter
}

func newServerMetrics(m *Metrics, id string) *ServerMetrics {
	s := &ServerMetrics{
		calls:    make(map[string]prometheus.Counter),
		duration: m.duration.WithLabelValues(id),
		refused:  make(map[string]prometheus.Counter),
		retries:  m.retries.WithLabelValues(id),
		hits:     make(map[string]prometheus.Counter),
		misses:   make(map[string]prometheus.Counter),
	}
	for _, o := range []string{OutcomeOK, OutcomeCancelled, OutcomeTool, OutcomeInfrastructure, OutcomeTimeout, OutcomeRefused, OutcomeInvalid, OutcomeLost} {
		s.calls[o] = m.calls.WithLabelValues(id, o)
	}
	for _, r := range []string{RefusedRate, RefusedConcurrency, RefusedBreaker, RefusedUpstreamLimit, RefusedAccess} {
		s.refused[r] = m.refused.WithLabelValues(id, r)
	}
	for _, c := range []string{CacheLists, CacheResults} {
		s.hits[c] = m.cache.WithLabelValues(id, c, "hit")
		s.misses[c] = m.cache.WithLabelValues(id, c, "miss")
	}
	return s
}

// Call counts a call that ended. An unknown outcome counts as a failure of the
// gateway, so that no call is missing from the sum.
func (s *ServerMetrics) Call(outcome string, d time.Duration) {
	if s == nil {
		return
	}
	c := s.calls[outcome]
	if c == nil {
		c = s.calls[OutcomeInfrastructure]
	}
	c.Inc()
	s.duration.Observe(d.Seconds())
}

// Retry counts one more attempt.
func (s *ServerMetrics) Retry() {
	if s != nil {
		s.retries.Inc()
	}
}

// Refused counts a call that a policy refused, for one of the reasons above.
func (s *ServerMetrics) Refused(reason string) {
	if s == nil {
		return
	}
	if c := s.refused[reason]; c != nil {
		c.Inc()
	}
}

// Cache counts one lookup in a cache, CacheLists or CacheResults.
func (s *ServerMetrics) Cache(which string, hit bool) {
	if s == nil {
		return
	}
	of := s.misses
	if hit {
		of = s.hits
	}
	if c := of[which]; c != nil {
		c.Inc()
	}
}
