//go:build linux && (amd64 || arm64)

package e2e

import (
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

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestRLMDocs runs the commands of docs/rlm.md in the order of the page: a reader installs
// the server in Claude Code, whose model then calls the tools as the page shows, and
// gives the kernel packages.
func TestRLMDocs(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	d := &rlmDocs{w: w, claude: need(t, claudeCode())[0]}
	w.bin = t.TempDir()
	d.project = w.project(t, map[string]string{
		"build.log": "PASS: TestFork (12.7s)\nPASS: TestRestore (61.2s)\nnoise\nPASS: TestCrowd (48.0s)\nPASS: TestShort (0.1s)\n",
	})
	for name, to := range map[string]string{"tine": tineBinary, "claude": d.claude} {
		if err := os.Symlink(to, filepath.Join(w.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{filepath.Join(w.home, "work"), filepath.Join(d.project, "data")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.venv(t)
	t.Cleanup(func() { // what is fetched is read-only
		_ = filepath.WalkDir(w.state, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	page, err := os.ReadFile(filepath.Join("..", "docs", "rlm.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(strings.Split(string(page), "\n"), "the end") {
		if line, ok := strings.CutPrefix(line, "    "); ok {
			d.line(t, line)
		} else if line != "" && len(d.calls) > 0 {
			d.talk(t)
		}
	}
	if d.ran != 11 {
		t.Errorf("the page has %d commands and calls, and this test knows eleven", d.ran)
	}
	w.nothing(t)
}

type rlmDocs struct {
	w               *rlmWorld
	claude, project string
	calls           []scriptedCall // of the model, with what they give
	results         []string
	ran             int
}

func (d *rlmDocs) line(t *testing.T, line string) {
	t.Helper()
	call := regexp.MustCompile(`^(rlm_\w+)\((.*)\)$`).FindStringSubmatch(line)
	switch {
	case strings.HasPrefix(line, "$ "):
		d.shell(t, line[2:])
	case strings.HasPrefix(line, "tine rlm install"):
		d.shell(t, line)
	case strings.HasPrefix(line, "tine rlm "):
		d.serve(t, strings.Fields(line)[2:])
	case call != nil:
		input := object{}
		for _, m := range regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(call[2], -1) {
			value, err := strconv.Unquote(m[2])
			if err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			input[m[1]] = strings.ReplaceAll(value, "/home/me/project", d.project)
		}
		d.calls, d.results = append(d.calls, scriptedCall{"mcp__rlm__" + call[1], input}), append(d.results, "")
	case len(d.calls) > 0:
		d.results[len(d.results)-1] += line
		return
	default:
		t.Errorf("the page has a line that this test does not know: %s", line)
		return
	}
	d.ran++
}

// venv makes the environment that the page names, with a package that nothing else has.
func (d *rlmDocs) venv(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "venv", "--without-pip", ".venv")
	cmd.Dir = d.project
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dirs, err := filepath.Glob(filepath.Join(d.project, ".venv/lib/python*/site-packages"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("site-packages: %v, %v", dirs, err)
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "only_here.py"), []byte("x = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shell runs a command as the reader does.
func (d *rlmDocs) shell(t *testing.T, line string) {
	t.Helper()
	cmd := d.w.beside(t, d.project, "http://127.0.0.1:1", "sh", "-euc", line)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	if strings.HasPrefix(line, "claude ") {
		testkit.Has(t, line, string(out), "Connected", "rlm")
	} else {
		testkit.Has(t, line, string(out), "rlm")
	}
}

// talk has Claude Code's model make the calls of the page.
func (d *rlmDocs) talk(t *testing.T) {
	t.Helper()
	model := newScriptedModel(t, d.calls...)
	args := []string{"-p", "Load build.log into a variable with rlm and tell me which tests are slow.", "--model", "claude-sonnet-4-5", "--allowedTools", "mcp__rlm"}
	said := d.w.runClaude(t, d.project, model.URL, d.claude, args...)
	results := model.results()
	if len(results) != len(d.calls) {
		t.Fatalf("the model was given %q, and claude says %s", results, said)
	}
	for i, want := range d.results {
		want = strings.ReplaceAll(want, "/home/me/project", d.project)
		want = regexp.MustCompile(`\(\d+ chars\)`).ReplaceAllString(want, "(102 chars)")
		testkit.Has(t, fmt.Sprintf("the result of %s", d.calls[i].tool), results[i], want)
	}
	d.calls, d.results = nil, nil
	d.w.nothing(t)
}

// serve runs tine rlm with the arguments of the page, and holds that the kernel can
// import what they name.
func (d *rlmDocs) serve(t *testing.T, args []string) {
	t.Helper()
	imports := "sys"
	switch {
	case slices.Contains(args, "--package"):
		if torture.Or(true, false) {
			args = []string{"--package", "six"} // numpy and pandas are large
		}
		var names []string
		for i, arg := range args {
			if arg != "--package" && args[i-1] == "--package" {
				names = append(names, arg)
			}
		}
		imports = strings.Join(names, ", ")
	case slices.Contains(args, ".venv/bin/python"):
		imports = "only_here"
	}
	c := d.w.open(t, d.project, append(args, "--session", imports[:3])...)
	c.is(t, "import "+imports+"; 1", "1")
	c.leave(t)
}
