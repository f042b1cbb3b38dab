// Package prometheus_test holds the alert rules, the scrape config and the Grafana
// board against what the gateway really exports, and against Prometheus itself.
package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
)

// exporter is a gateway's metrics with everything in them.
func exporter() http.Handler {
	m := telemetry.NewMetrics("v0", func() telemetry.Snapshot {
		return telemetry.Snapshot{Servers: []telemetry.ServerGauges{{ID: "files", Driver: "process", Breaker: "closed", Up: true}}}
	})
	s := m.Server("files")
	s.Call("ok", time.Millisecond)
	s.Call("timeout", time.Minute)
	m.AuthFailure("expired")
	m.JournalError()
	return m.Handler()
}

// tool finds a program of the prometheus package: on PATH, or in the folder
// prometheus of the test tools. CI has to have it.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	dir := testkit.Tools(t)
	for _, path := range []string{filepath.Join(dir, "prometheus", name), filepath.Join(dir, "prometheus", "usr", "bin", name)} {
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	testkit.Missing(t, name+" is neither on PATH nor in "+filepath.Join(dir, "prometheus")+"; install Debian's package prometheus or unpack it there")
	return ""
}

func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// configDir is a folder with the files as they are shipped and a token.
func configDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"prometheus.yml", "tine.rules.yml", "tine.rules.test.yml"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), b)
	}
	write(t, filepath.Join(dir, "tine.token"), []byte("tok"))
	return dir
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	dir := configDir(t)
	run(t, dir, promtool, "check", "rules", "--lint-fatal", "tine.rules.yml")
	run(t, dir, promtool, "test", "rules", "tine.rules.test.yml")
	run(t, dir, promtool, "check", "config", "--lint-fatal", "prometheus.yml")

	rec := httptest.NewRecorder()
	exporter().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = rec.Body
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("check metrics: %v\n%s", err, out)
	}
}

// TestRuleTestsCanFail: each alert's own test sees it when the alert never fires.
func TestRuleTestsCanFail(t *testing.T) {
	promtool := tool(t, "promtool")
	rules := read[ruleFile](t, "tine.rules.yml")
	dir := configDir(t)
	for i := range rules.Groups[0].Rules {
		r := &rules.Groups[0].Rules[i]
		kept := r.Expr
		r.Expr = "(" + kept + ") and vector(1) == 2"
		b, err := yaml.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "tine.rules.yml"), b)
		cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "tine.rules.test.yml")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), r.Alert) {
			t.Errorf("%s never fires, and its test says: %v\n%s", r.Alert, err, out)
		}
		r.Expr = kept
	}
}

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for,omitempty"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func read[T any](t *testing.T, path string) T {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := yaml.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

func TestRulesAreWhole(t *testing.T) {
	for _, g := range read[ruleFile](t, "tine.rules.yml").Groups {
		for _, r := range g.Rules {
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			if r.Annotations["summary"] == "" || len(r.Annotations["description"]) < 80 {
				t.Errorf("%s says too little: %v", r.Alert, r.Annotations)
			}
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:tine|go|process|promhttp)_[a-z_]+\b`)

// exported lists the names of series that a scrape has.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	rec := httptest.NewRecorder()
	exporter().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	names := make(map[string]bool)
	for line := range strings.Lines(rec.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			names[metricName.FindString(line)] = true
		}
	}
	return names
}

func TestEveryNameIsExported(t *testing.T) {
	names := exported(t)
	for _, path := range []string{"tine.rules.yml", "tine.rules.test.yml", "../grafana/tine.json"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := metricName.FindAllString(string(b), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", path)
		}
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s names %s, which the gateway does not export", path, name)
			}
		}
	}
}

// TestEveryMetricIsShown: what the gateway counts has a place on the board.
func TestEveryMetricIsShown(t *testing.T) {
	b, err := os.ReadFile("../grafana/tine.json")
	if err != nil {
		t.Fatal(err)
	}
	for name := range exported(t) {
		if strings.HasPrefix(name, "tine_") && !bytes.Contains(b, []byte(name)) {
			t.Errorf("%s is not on the board", name)
		}
	}
}

func TestBoard(t *testing.T) {
	b, err := os.ReadFile("../grafana/tine.json")
	if err != nil {
		t.Fatal(err)
	}
	type source struct{ Type, UID string }
	var board struct {
		Title         string
		SchemaVersion int
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []struct {
			ID         int
			Type       string
			Datasource source
			Targets    []struct {
				Expr       string
				Datasource source
			}
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	if board.SchemaVersion < 36 || len(board.Templating.List) == 0 || board.Templating.List[0].Type != "datasource" {
		t.Errorf("schema %d, variables %v", board.SchemaVersion, board.Templating.List)
	}
	ids := make(map[int]bool)
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel id %d stands twice", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && (p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("panel %d: data source %v, %d targets", p.ID, p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || q.Expr == "" {
				t.Errorf("panel %d: %+v", p.ID, q)
			}
		}
	}
}

// boardQueries are the board's expressions with its variables filled in.
func boardQueries(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("../grafana/tine.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	var all []string
	fill := strings.NewReplacer("$instance", ".*", "$server", ".*", "$__rate_interval", "1m")
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			all = append(all, fill.Replace(q.Expr))
		}
	}
	return all
}

// TestPrometheusScrapes runs Prometheus on the shipped config, changed in nothing
// but the address and the pace, against the real handler behind a token.
func TestPrometheusScrapes(t *testing.T) {
	prometheus := tool(t, "prometheus")
	handler := exporter()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer gateway.Close()

	dir := configDir(t)
	conf, err := os.ReadFile(filepath.Join(dir, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	conf = bytes.ReplaceAll(conf, []byte("127.0.0.1:8463"), []byte(gateway.Listener.Addr().String()))
	conf = bytes.ReplaceAll(conf, []byte(": 15s"), []byte(": 1s"))
	write(t, filepath.Join(dir, "prometheus.yml"), conf)

	addr := freeAddress(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--web.listen-address="+addr, "--log.level=info")
	cmd.Dir = dir
	var log testkit.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()

	var targets struct {
		Data struct {
			ActiveTargets []struct{ Health, LastError, LastScrape string }
		}
	}
	testkit.Eventually(t, "a first scrape", func() bool {
		ask(ctx, "http://"+addr+"/api/v1/targets", &targets)
		return len(targets.Data.ActiveTargets) == 1 && targets.Data.ActiveTargets[0].Health != "unknown"
	})
	if target := targets.Data.ActiveTargets[0]; target.Health != "up" || target.LastError != "" {
		t.Errorf("target %+v", target)
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	testkit.Eventually(t, "a first evaluation of the rules", func() bool {
		ask(ctx, "http://"+addr+"/api/v1/rules", &rules)
		if len(rules.Data.Groups) != 1 {
			return false
		}
		for _, r := range rules.Data.Groups[0].Rules {
			if r.Health == "unknown" {
				return false
			}
		}
		return true
	})
	for _, r := range rules.Data.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("rule %+v", r)
		}
	}
	for _, q := range boardQueries(t) {
		var answer struct {
			Status, Error string
			Warnings      []string
		}
		if ask(ctx, "http://"+addr+"/api/v1/query?query="+url.QueryEscape(q), &answer); answer.Status != "success" || len(answer.Warnings) > 0 {
			t.Errorf("%s: %+v", q, answer)
		}
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=warn") || strings.Contains(line, "level=error") ||
			strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("Prometheus complains: %s", line)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ask reads JSON as far as it comes; what is missing is asked again.
func ask(ctx context.Context, from string, into any) {
	req, err := http.NewRequestWithContext(ctx, "GET", from, nil)
	if err != nil {
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}
