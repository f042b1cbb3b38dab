//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// checks counts, per scenario and check, how often it passed and failed.
type checks map[string][2]int

func (c checks) totals() (passed, failed int) {
	for _, n := range c {
		passed, failed = passed+n[0], failed+n[1]
	}
	return passed, failed
}

// worse lists the checks that fail more often than they do in base, and those
// that were made there and are missing here.
func (c checks) worse(base checks) []string {
	var bad []string
	for name, n := range c {
		if n[1] > base[name][1] {
			bad = append(bad, fmt.Sprintf("%s: %d failed, bare %d", name, n[1], base[name][1]))
		}
	}
	for name, b := range base {
		if b[0] > 0 && c[name][0] < b[0] {
			bad = append(bad, fmt.Sprintf("%s: %d passed, bare %d", name, c[name][0], b[0]))
		}
	}
	slices.Sort(bad)
	return bad
}

func TestChecksCanFail(t *testing.T) {
	base := checks{"a/x": {2, 0}, "a/y": {0, 1}, "b/z": {1, 0}}
	for _, tt := range []struct {
		got  checks
		want int
	}{
		{checks{"a/x": {2, 0}, "a/y": {0, 1}, "b/z": {1, 0}}, 0},
		{checks{"a/x": {2, 0}, "a/y": {1, 0}, "b/z": {1, 0}}, 0},
		{checks{"a/x": {1, 1}, "a/y": {0, 1}, "b/z": {1, 0}}, 2},
		{checks{"a/x": {2, 0}, "a/y": {0, 1}}, 1},
		{checks{"a/x": {2, 0}, "a/y": {0, 1}, "b/z": {1, 0}, "b/new": {0, 1}}, 1},
	} {
		if got := tt.got.worse(base); len(got) != tt.want {
			t.Errorf("%v: %q, want %d", tt.got, got, tt.want)
		}
	}
}

var (
	totalLine = regexp.MustCompile(`(?m)^Total: (\d+) passed, (\d+) failed$`)
	stamp     = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)
)

// conform runs the official suite against url. The suite fails where a check
// that is not scored fails, so its exit code says nothing.
func conform(t *testing.T, url, revision string) checks {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), need(t, conformance)[0], "server", "--url", url, "--requirements", revision, "-o", dir)
	cmd.Env = toolEnv(t)
	out, err := cmd.CombinedOutput()
	total := totalLine.FindSubmatch(out)
	if total == nil {
		t.Fatalf("conformance gave no total: %v\n%s", err, tail(string(out), 8<<10))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("conformance left no checks: %v", err)
	}
	all := checks{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		scenario := stamp.ReplaceAllString(filepath.Base(filepath.Dir(file)), "")
		for _, c := range list {
			n := all[scenario+"/"+c.ID]
			switch c.Status {
			case "SUCCESS":
				n[0]++
			case "FAILURE":
				n[1]++
			}
			all[scenario+"/"+c.ID] = n
		}
	}
	// Two ways to the same count: if they part, the parsing here is wrong.
	passed, failed := all.totals()
	if strconv.Itoa(passed) != string(total[1]) || strconv.Itoa(failed) != string(total[2]) {
		t.Fatalf("counted %d passed, %d failed; the suite says %s", passed, failed, total[0])
	}
	return all
}

// TestConformance holds that nothing which the bare server does right goes
// wrong behind the gateway.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := need(t, everythingServer, conformance, node)[0]
	listen := func(stateless bool) string {
		return serve(t, server, func(addr string) []string {
			return []string{"-http", addr, fmt.Sprintf("-stateless=%t", stateless)}
		})
	}
	stateful, stateless := listen(false), listen(true)
	g := startGateway(t, fmt.Sprintf("servers:\n  stateful:\n    url: http://%s/mcp\n  stateless:\n    url: http://%s/mcp\n", stateful, stateless))

	for _, tt := range []struct {
		revision, server, addr string
		atLeast                int
	}{
		{"2025-11-25", "stateful", stateful, 82},
		{"2026-07-28", "stateless", stateless, 165},
	} {
		t.Run(tt.revision, func(t *testing.T) {
			bare := conform(t, "http://"+tt.addr+"/mcp", tt.revision)
			through := conform(t, g.url+"/mcp/"+tt.server, tt.revision)
			barePassed, bareFailed := bare.totals()
			passed, failed := through.totals()
			t.Logf("bare: %d passed, %d failed; through Tine: %d passed, %d failed", barePassed, bareFailed, passed, failed)
			if passed < max(tt.atLeast, barePassed) {
				t.Errorf("%d checks passed, want at least %d", passed, max(tt.atLeast, barePassed))
			}
			for _, w := range through.worse(bare) {
				t.Error(w)
			}
		})
	}
}
