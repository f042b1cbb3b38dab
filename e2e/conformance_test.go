//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// fails lists the checks that fail more often than they do in base.
func (c checks) fails(base checks) []string {
	var bad []string
	for name, n := range c {
		if n[1] > base[name][1] {
			bad = append(bad, fmt.Sprintf("%s: %d failed, bare %d", name, n[1], base[name][1]))
		}
	}
	slices.Sort(bad)
	return bad
}

// lacks lists the checks that pass less often than they do in base.
func (c checks) lacks(base checks) []string {
	var bad []string
	for name, b := range base {
		if c[name][0] < b[0] {
			bad = append(bad, fmt.Sprintf("%s: %d passed, bare %d", name, c[name][0], b[0]))
		}
	}
	slices.Sort(bad)
	return bad
}

func TestChecksCanFail(t *testing.T) {
	base := checks{"a/x": {2, 0}, "a/y": {0, 1}, "b/z": {1, 0}}
	for _, tt := range []struct {
		got          checks
		fails, lacks int
	}{
		{checks{"a/x": {2, 0}, "a/y": {0, 1}, "b/z": {1, 0}}, 0, 0},
		{checks{"a/x": {2, 0}, "a/y": {1, 0}, "b/z": {1, 0}}, 0, 0},
		{checks{"a/x": {1, 1}, "a/y": {0, 1}, "b/z": {1, 0}}, 1, 1},
		{checks{"a/x": {2, 0}, "a/y": {0, 1}}, 0, 1},
		{checks{"a/x": {2, 0}, "a/y": {0, 1}, "b/z": {1, 0}, "b/new": {0, 1}}, 1, 0},
	} {
		if got := tt.got.fails(base); len(got) != tt.fails {
			t.Errorf("%v fails %q, want %d", tt.got, got, tt.fails)
		}
		if got := tt.got.lacks(base); len(got) != tt.lacks {
			t.Errorf("%v lacks %q, want %d", tt.got, got, tt.lacks)
		}
	}
}

var (
	totalLine = regexp.MustCompile(`(?m)^Total: (\d+) passed, (\d+) failed(?:, \d+ warnings)?$`)
	stamp     = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)
)

// conform runs the official suite and counts what it found. Its error says that a
// check failed which is scored.
func conform(t *testing.T, env []string, args ...string) (checks, error) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), need(t, conformance)[0], append(args, "-o", dir)...)
	cmd.Env = toolEnv(t, env...)
	out, failed := cmd.CombinedOutput()
	total := totalLine.FindSubmatch(out)
	if total == nil {
		t.Fatalf("conformance gave no total: %v\n%s", failed, tail(string(out), 8<<10))
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "checks.json" {
			files = append(files, path)
		}
		return err
	})
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
		scenario, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		scenario = stamp.ReplaceAllString(scenario, "")
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
		if said, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stderr.txt")); err == nil && len(said) > 0 {
			t.Logf("%s: the client says %s", scenario, tail(string(said), 2<<10))
		}
	}
	// Two ways to the same count: if they part, the parsing here is wrong.
	good, bad := all.totals()
	if strconv.Itoa(good) != string(total[1]) || strconv.Itoa(bad) != string(total[2]) {
		t.Fatalf("counted %d passed, %d failed; the suite says %s", good, bad, total[0])
	}
	return all, failed
}

// conformServer runs the suite against a server. Whether what fails is scored says
// nothing here: the same server is run bare.
func conformServer(t *testing.T, url, revision string) checks {
	t.Helper()
	all, _ := conform(t, nil, "server", "--url", url, "--requirements", revision)
	return all
}

// TestConformance holds that nothing which the bare server does right goes
// wrong behind the gateway, and that the same server behind stdio does as well.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := need(t, everythingServer, conformance, node)[0]
	listen := func(stateless bool) string {
		return serve(t, server, func(addr string) []string {
			return []string{"-http", addr, fmt.Sprintf("-stateless=%t", stateless)}
		})
	}
	stateful, stateless := listen(false), listen(true)
	g := startGateway(t, fmt.Sprintf("servers:\n  stateful:\n    url: http://%s/mcp\n  stateless:\n    url: http://%s/mcp\n", stateful, stateless)+
		yamlServer("stdio", server, nil)+
		yamlServer("stdiolegacy", server, nil, `protocol: "2025-11-25"`))

	for _, tt := range []struct {
		revision, addr, http, stdio string
		atLeast                     int
	}{
		{"2025-11-25", stateful, "stateful", "stdiolegacy", 82},
		{"2026-07-28", stateless, "stateless", "stdio", 165},
	} {
		t.Run(tt.revision, func(t *testing.T) {
			bare := conformServer(t, "http://"+tt.addr+"/mcp", tt.revision)
			count := func(name string, c checks) int {
				passed, failed := c.totals()
				t.Logf("%s: %d passed, %d failed", name, passed, failed)
				return passed
			}
			least := max(tt.atLeast, count("bare", bare))
			through := conformServer(t, g.url+"/mcp/"+tt.http, tt.revision)
			if passed := count("through Tine", through); passed < least {
				t.Errorf("%d checks passed, want at least %d", passed, least)
			}
			for _, w := range append(through.fails(bare), through.lacks(bare)...) {
				t.Error(w)
			}
			// The answers of a server on stdio come as JSON and not as events, so
			// the suite has no event stream to look at; all else must pass.
			piped := conformServer(t, g.url+"/mcp/"+tt.stdio, tt.revision)
			count("through Tine before stdio", piped)
			for _, w := range append(piped.fails(bare), piped.lacks(bare)...) {
				if !strings.HasPrefix(w, "server-server-sse-multiple-streams/server-sse-streams-functional: 0 passed") &&
					!strings.HasPrefix(w, "server-server-sse-polling/server-sse-retry-field: 0 passed") {
					t.Errorf("before stdio: %s", w)
				}
			}
		})
	}
}
