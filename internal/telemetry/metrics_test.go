package telemetry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1.2.3", func() Snapshot {
		return Snapshot{
			Servers: []ServerGauges{
				{ID: "files", Driver: "process", Breaker: "half-open", Up: true, Instances: 2, InFlight: 3, Queue: 4, Restarts: 5, Pool: &PoolGauges{Slots: 1, Ready: 2, Live: 3, Parked: 4}},
				{ID: "web", Driver: "url"},
				{ID: "web", Driver: "url", Up: true}, // twice: the first one counts
				{ID: "bad\xff", Driver: "url", Breaker: "open", Up: true},
			},
			Sessions: 6, Clients: 7, JournalBytes: 1 << 40, JournalLag: 8,
		}
	})
	s := m.Server("files")
	if s != m.Server("files") {
		t.Error("the same server has two handles")
	}
	s.Call("ok", 3*time.Millisecond)
	s.Call("timeout", 400*time.Second)
	s.Call("no word of ours", time.Second)
	s.Retry()
	s.Refused("rate")
	s.Refused("no word of ours")
	s.Cache("lists", true)
	s.Cache("lists", false)
	s.Cache("results", false)
	m.AuthFailure("invalid_token")
	m.AuthFailure("Any text, from outside")
	m.JournalError()
	got := scrape(t, m.Handler())
	for _, want := range []string{
		`tine_calls_total{outcome="ok",server="files"} 1`,
		`tine_calls_total{outcome="timeout",server="files"} 1`,
		`tine_calls_total{outcome="infrastructure",server="files"} 1`,
		`tine_calls_total{outcome="lost",server="files"} 0`,
		`tine_call_duration_seconds_bucket{server="files",le="0.0005"} 0`,
		`tine_call_duration_seconds_bucket{server="files",le="0.005"} 1`,
		`tine_call_duration_seconds_bucket{server="files",le="300"} 2`,
		`tine_call_duration_seconds_count{server="files"} 3`,
		`tine_refused_total{reason="rate",server="files"} 1`,
		`tine_refused_total{reason="upstream_limit",server="files"} 0`,
		`tine_retries_total{server="files"} 1`,
		`tine_cache_requests_total{cache="lists",result="hit",server="files"} 1`,
		`tine_cache_requests_total{cache="results",result="miss",server="files"} 1`,
		`tine_auth_failures_total{reason="invalid_token"} 1`,
		`tine_auth_failures_total{reason="other"} 1`,
		`tine_journal_errors_total 1`,
		`tine_panics_total{where="edge"} `,
		`tine_build_info{version="v1.2.3"} 1`,
		`tine_calls_in_flight{server="files"} 3`,
		`tine_queue_length{server="files"} 4`,
		`tine_breaker_state{server="files"} 1`,
		`tine_breaker_state{server="bad` + "\uFFFD" + `"} 2`,
		`tine_instances{driver="process",server="files"} 2`,
		`tine_server_up{server="files"} 1`,
		`tine_server_up{server="web"} 0`,
		`tine_instance_restarts_total{server="files"} 5`,
		`tine_pool_slots{server="files"} 1`, `tine_pool_ready{server="files"} 2`, `tine_pool_live{server="files"} 3`, `tine_pool_parked{server="files"} 4`,
		"tine_sessions 6", "tine_clients 7", "tine_journal_bytes 1.099511627776e+12", "tine_journal_index_lag 8",
		"go_goroutines ", "# TYPE tine_instance_restarts_total counter",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(got, "no word of ours") || strings.Contains(got, `tine_breaker_state{server="web"}`) || strings.Contains(got, `tine_pool_slots{server="web"}`) {
		t.Errorf("too much:\n%s", got)
	}
	if problems, err := testutil.GatherAndLint(m.registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestForget(t *testing.T) {
	m := NewMetrics("v", nil)
	old := m.Server("a")
	m.Server("b").Call("ok", time.Second)
	old.Call("ok", time.Second)
	m.Forget("a")
	m.Forget("never there")
	old.Call("ok", time.Second)
	old.Refused("rate")
	if got := scrape(t, m.Handler()); strings.Contains(got, `server="a"`) || !strings.Contains(got, `server="b"`) {
		t.Errorf("after Forget:\n%s", got)
	}
	m.Server("a").Call("ok", time.Second)
	if got := scrape(t, m.Handler()); !strings.Contains(got, `tine_calls_total{outcome="ok",server="a"} 1`) {
		t.Errorf("a server that came back:\n%s", got)
	}
}

func TestAuthReasonsAreBounded(t *testing.T) {
	m := NewMetrics("v", nil)
	for i := range 1000 {
		m.AuthFailure(fmt.Sprintf("reason-%d", i))
	}
	if n := strings.Count(scrape(t, m.Handler()), "\ntine_auth_failures_total{"); n > maxAuthReasons+1 {
		t.Errorf("%d series", n)
	}
}

func TestNilMetrics(t *testing.T) {
	var m *Metrics
	m.AuthFailure("x")
	m.JournalError()
	m.Forget("x")
	s := m.Server("x")
	s.Call("ok", 1)
	s.Retry()
	s.Refused("rate")
	s.Cache("lists", true)
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusNotFound {
		t.Errorf("status %d", rec.Code)
	}
}

func TestMetricsAtOnce(t *testing.T) {
	m := NewMetrics("v", func() Snapshot { return Snapshot{Servers: []ServerGauges{{ID: "a"}}} })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				m.Server("a").Call("ok", time.Duration(j))
				m.Server(fmt.Sprint("s", i)).Retry()
				m.AuthFailure("x")
				if j%10 == 0 {
					m.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
					m.Forget(fmt.Sprint("s", i))
				}
			}
		})
	}
	wg.Wait()
	if got := scrape(t, m.Handler()); !strings.Contains(got, `tine_calls_total{outcome="ok",server="a"} 400`) {
		t.Errorf("got:\n%s", got)
	}
}

func BenchmarkCall(b *testing.B) {
	s := NewMetrics("v", nil).Server("files")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Call("ok", 3*time.Millisecond)
		}
	})
}
