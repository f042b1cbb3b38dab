//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/e2e/teller"
)

// Debian's Prometheus, relative to toolsDir.
const (
	prometheus = "prometheus/prometheus"
	promtool   = "prometheus/promtool"
)

const (
	viewerToken = "vic-vic-vic-vic-vic"
	userToken   = "ada-ada-ada-ada-ada"
)

// measured is a gateway with a server for each thing there is to measure. A
// client that goes away leaves its call running, so drain says how long that
// holds up its end.
func measured(t *testing.T, drain string) *gateway {
	t.Helper()
	web := tellHTTP(t, &teller.Server{})
	return startGateway(t, "limits: {drain: "+drain+"}\nauth:\n  tokens:\n    - {name: ada, token: "+userToken+"}\n    - {name: vic, role: viewer, token: "+viewerToken+"}\n"+
		"servers:\n"+
		"  web: {url: "+web+", "+quiet+"}\n"+
		"  slow: {url: "+web+", timeout: 50ms, "+quiet+"}\n"+
		"  dead: {url: \"http://127.0.0.1:1/\", policy: {retry: off, breaker: {failures: 2, open: 1h}}}\n"+
		"  narrow: {url: "+web+", policy: {concurrency: {calls: 1, queue: 1, wait: 1h}}}\n"+
		yamlServer("prog", mustTellServer(t), nil, "scope: shared"))
}

// busy makes the calls that there are to count, and leaves one running and one
// waiting until the returned function is called.
func busy(t *testing.T, g *gateway) (release func()) {
	t.Helper()
	s, err := open(t.Context(), g.url+"/mcp", bearer(userToken))
	if err != nil {
		t.Fatal(err)
	}
	for tool, n := range map[string]int{"web__echo": 5, "web__fail": 2, "web__status": 1, "slow__sleep": 1, "dead__x": 4, "prog__echo": 1} {
		for range n {
			_, _ = s.call(t.Context(), tool, map[string]any{"text": "x", "status": 500, "ms": 500}) // most fail
		}
	}
	if _, _, err := g.get(t.Context(), "/v1/servers", "nobody-nobody-nobody"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 3 { // one runs, one waits, one is refused
		waiting.Go(func() { _, _ = s.call(ctx, "narrow__sleep", map[string]any{"ms": 3600000}) })
	}
	return func() { cancel(); waiting.Wait() }
}

// TestPrometheus has the real Prometheus scrape a gateway, with a viewer's token
// from a file and the config and alerts of deploy, and asks it for the series.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	program := need(t, prometheus)[0]
	g := measured(t, "0s")
	defer busy(t, g)()
	dir := t.TempDir()
	for name, mend := range map[string]*strings.Replacer{
		"prometheus.yml": strings.NewReplacer("127.0.0.1:8463", strings.TrimPrefix(g.url, "http://"), ": 15s", ": 1s"),
		"tine.rules.yml": strings.NewReplacer(),
	} {
		data, err := os.ReadFile(filepath.Join("..", "deploy", "prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(mend.Replace(string(data))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tine.token"), []byte(viewerToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := serve(t, program, func(addr string) []string {
		return []string{"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr}
	})
	for query, want := range map[string]func(float64) bool{
		`up{job="tine"}`: is(1),
		`tine_calls_total{server="web",outcome="ok"}`:                                             is(5),
		`tine_calls_total{server="web",outcome="tool"}`:                                           is(2),
		`tine_calls_total{server="web",outcome="infrastructure"}`:                                 is(1),
		`tine_calls_total{server="slow",outcome="timeout"}`:                                       is(1),
		`tine_calls_total{server="dead",outcome="infrastructure"}`:                                is(4),
		`sum(tine_calls_total{server="prog"})`:                                                    is(5), // with its four lists, which the gateway asks for
		`tine_call_duration_seconds_count{server="web"}`:                                          is(8),
		`tine_call_duration_seconds_sum{server="web"}`:                                            above(0),
		`histogram_quantile(0.95, sum by (le) (tine_call_duration_seconds_bucket{server="web"}))`: above(0),
		`tine_breaker_state{server="dead"}`:                                                       is(2),
		`tine_breaker_state{server="narrow"}`:                                                     is(0),
		`tine_refused_total{server="dead",reason="breaker"}`:                                      is(2),
		`tine_refused_total{server="narrow",reason="concurrency"}`:                                is(1),
		`tine_instances{server="prog",driver="process"}`:                                          is(1),
		`tine_calls_in_flight{server="narrow"}`:                                                   is(1),
		`tine_queue_length{server="narrow"}`:                                                      is(1),
		`tine_server_up{server="web"}`:                                                            is(1),
		`tine_server_up{server="dead"}`:                                                           is(0),
		`sum(tine_auth_failures_total)`:                                                           is(1),
		`tine_sessions`:                                                                           above(0),
		`tine_clients`:                                                                            above(0),
		`tine_journal_bytes`:                                                                      above(0),
		`tine_journal_errors_total`:                                                               is(0),
		`tine_build_info`:                                                                         is(1),
		`process_open_fds{job="tine"}`:                                                            above(0),
		`go_goroutines{job="tine"}`:                                                               above(0),
	} {
		if err := eventually(func() error {
			v, err := ask(t.Context(), addr, query)
			if err == nil && !want(v) {
				err = fmt.Errorf("it is %v", v)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	// The breaker is open, so its alert is on its way.
	if err := eventually(func() error {
		_, err := ask(t.Context(), addr, `ALERTS{server="dead",alertname=~".*Breaker.*"}`)
		return err
	}); err != nil {
		t.Errorf("the alert of the breaker: %v", err)
	}
}

func is(want float64) func(float64) bool     { return func(v float64) bool { return v == want } }
func above(bound float64) func(float64) bool { return func(v float64) bool { return v > bound } }

// ask asks Prometheus for one value.
func ask(ctx context.Context, addr, query string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var r struct {
		Error string
		Data  struct {
			Result []struct {
				Value [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return 0, err
	}
	if r.Error != "" {
		return 0, final{errors.New(r.Error)}
	}
	if len(r.Data.Result) != 1 {
		return 0, fmt.Errorf("%d series", len(r.Data.Result))
	}
	text, _ := r.Data.Result[0].Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

// TestMetricsAreWellFormed has promtool read the metrics of a gateway that has
// met everything, and checks who may read them.
func TestMetricsAreWellFormed(t *testing.T) {
	t.Parallel()
	g := measured(t, "0s")
	defer busy(t, g)()
	for token, want := range map[string]int{"": 401, "wrong-wrong-wrong-wrong": 401, userToken: 403, viewerToken: 200} {
		status, body, err := g.get(t.Context(), "/metrics", token)
		if err != nil || status != want {
			t.Errorf("/metrics with %q: %d %v, want %d", token, status, err, want)
		}
		if status != 200 && strings.Contains(body, "tine_") {
			t.Errorf("/metrics with %q: %s", token, body)
		}
	}
	_, text, err := g.get(t.Context(), "/metrics", viewerToken)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), need(t, promtool)[0], "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// TestProbes asks how the gateway is without a token, also while it ends.
func TestProbes(t *testing.T) {
	t.Parallel()
	g := measured(t, "1h")
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body, err := g.get(t.Context(), path, ""); err != nil || status != 200 || !strings.Contains(body, `"ok"`) {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}
	s, err := open(t.Context(), g.url+"/mcp", bearer(userToken))
	if err != nil {
		t.Fatal(err)
	}
	var under sync.WaitGroup
	defer under.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	under.Go(func() { _, _ = s.call(ctx, "web__sleep", map[string]any{"ms": 3600000}) })
	if err := eventually(func() error {
		c, err := g.control(t, viewerToken).Server(t.Context(), "web")
		if err == nil && c.InFlight != 1 {
			err = fmt.Errorf("%d calls in flight", c.InFlight)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := eventually(func() error {
		status, body, err := g.get(t.Context(), "/readyz", "")
		if err != nil {
			return final{fmt.Errorf("it does not wait for the call: %w", err)}
		}
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
			return fmt.Errorf("/readyz answers %d %s", status, body)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if status, _, err := g.get(t.Context(), "/healthz", ""); err != nil || status != 200 {
		t.Errorf("/healthz of a gateway that drains: %d %v", status, err)
	}
	g.kill() // it would wait for the call
}
