//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// patientLists makes a list wait for servers that take long to start: many
// interpreters at once on a busy machine do, and most clients list only once.
const patientLists = "limits:\n  list_wait: 60s\n"

// yamlServer renders a server that is run; strings are quoted the JSON way,
// which YAML reads as well.
func yamlServer(id, command string, args []string, more ...string) string {
	quoted, err := json.Marshal(args)
	if err != nil {
		panic(err) // strings
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:\n    command: %q\n", id, command)
	if len(args) > 0 {
		fmt.Fprintf(&b, "    args: %s\n", quoted)
	}
	for _, line := range more {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

// TestRealServers puts the reference servers of npm and PyPI behind /mcp, lists
// them and calls one tool of each.
func TestRealServers(t *testing.T) {
	t.Parallel()
	paths := need(t, node, npmFilesystem, npmMemory, npmEverything, npmThinking, pyTime, pyFetch, pyGit)
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "note.txt"), []byte("written on paper"), 0o644); err != nil {
		t.Fatal(err)
	}
	repo := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "trunk"},
		{"-c", "user.name=e2e", "-c", "user.email=e2e@localhost", "commit", "-q", "--allow-empty", "-m", "the first commit"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><body><article><h1>A page</h1><p>with words on it</p></article></body></html>")
	}))
	t.Cleanup(page.Close)

	nodePath := paths[0]
	g := startGateway(t, patientLists+"servers:\n"+
		yamlServer("filesystem", nodePath, []string{paths[1], files})+
		yamlServer("memory", nodePath, []string{paths[2]}, `env: {MEMORY_FILE_PATH: "`+filepath.Join(files, "memory.jsonl")+`"}`)+
		yamlServer("everything", nodePath, []string{paths[3]})+
		yamlServer("thinking", nodePath, []string{paths[4]})+
		yamlServer("time", paths[5], []string{"--local-timezone", "UTC"})+
		yamlServer("fetch", paths[6], []string{"--allow-private-ips"})+
		yamlServer("git", paths[7], []string{"--repository", repo}))

	calls := []struct {
		tool string
		args map[string]any
		want string
	}{
		{"filesystem__read_text_file", map[string]any{"path": filepath.Join(files, "note.txt")}, "written on paper"},
		{"memory__create_entities", map[string]any{"entities": []any{map[string]any{"name": "tine", "entityType": "fork", "observations": []any{"has prongs"}}}}, "has prongs"},
		{"everything__echo", map[string]any{"message": "over and out"}, "Echo: over and out"},
		{"thinking__sequentialthinking", map[string]any{"thought": "hm", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": false}, "thoughtHistoryLength"},
		{"time__convert_time", map[string]any{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "21:00"},
		{"fetch__fetch", map[string]any{"url": page.URL + "/page"}, "with words on it"},
		{"git__git_log", map[string]any{"repo_path": repo}, "the first commit"},
	}
	want := map[string]string{}
	for _, c := range calls {
		server, _, _ := strings.Cut(c.tool, "__")
		want[server] = c.tool
	}

	s := mustOpen(t, g.url+"/mcp")
	names, err := s.tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for server, tool := range want {
		if !slices.Contains(names, tool) {
			t.Errorf("%s of %s is not among %d tools", tool, server, len(names))
		}
	}
	for _, c := range calls {
		t.Run(c.tool, func(t *testing.T) {
			if got := s.mustCall(t, c.tool, c.args); !strings.Contains(got, c.want) {
				t.Errorf("%s answers %q, want %q in it", c.tool, got, c.want)
			}
		})
	}

	// The same servers, each as it is, at an endpoint of its own.
	for server, tool := range want {
		t.Run(server, func(t *testing.T) {
			one := mustOpen(t, g.url+"/mcp/"+server)
			names, err := one.tools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if plain := strings.TrimPrefix(tool, server+"__"); !slices.Contains(names, plain) {
				t.Errorf("/mcp/%s lists %v, want %s among them", server, names, plain)
			}
		})
	}
}
