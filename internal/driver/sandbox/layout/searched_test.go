//go:build unix

package layout

import (
	"fmt"
	"os"
	"path"
	"testing"
	"time"
)

// TestALayoutNoticesNewKeys adds files to folders that are shown whole: a layout is out
// of date when one of them has keys.
func TestALayoutNoticesNewKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		add   string
		stale bool
	}{
		"nothing":                  {"", false},
		"a plain file":             {"/home/me/code/app/main.go", false},
		"a file like one of keys":  {"/home/me/code/app/.env.example", false},
		"a key":                    {"/home/me/code/app/.env", true},
		"a key beside it":          {"/home/me/code/other/new.pem", true},
		"a key in a new folder":    {"/home/me/code/new/.env", true},
		"a key below a project":    {"/home/me/code/app/.vscode/mcp.json", true},
		"a file below a project":   {"/home/me/code/app/.vscode/tasks.json", false},
		"a file like one below":    {"/home/me/code/app/webServers.xml", false},
		"a key too deep":           {"/home/me/code/app/src/.env", false},
		"what is fetched":          {"/home/me/code/app/node_modules/.env", false},
		"a place of keys":          {"/home/me/.config/mcp/new.json", true},
		"beside a place of keys":   {"/home/me/.config/mcp/new.txt", false},
		"what a shell starts with": {"/home/me/.config/fish/config.fish", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, "/home/me/code/app/go.mod", "/home/me/code/app/src/", "/home/me/code/app/.vscode/launch.json", "/home/me/code/app/node_modules/", "/home/me/code/other/x", "/home/me/.config/mcp/x", "/home/me/.config/fish/x")
			w := wanted(h, "/usr/bin/tool")
			w.AllowRead = []string{"/home/me"}
			l := plan(t, w)
			if l.Stale() {
				t.Fatal("it is out of date at once")
			}
			if tt.add != "" {
				h.add(t, tt.add)
			}
			if l.Stale() != tt.stale {
				t.Errorf("stale is %t, want %t", !tt.stale, tt.stale)
			}
			if w.AllowRead = []string{"/home/me"}; plan(t, w).Stale() {
				t.Error("the next one is out of date at once")
			}
		})
	}
}

// BenchmarkStale is what a start spends on looking whether a layout is out of date.
func BenchmarkStale(b *testing.B) {
	for name, home := range map[string]func(dir string){
		// 5,000 entries in 250 folders, of which those two deep are looked at.
		"project": func(dir string) { fill(b, dir+"/app", 3, 6, 18) },
		"home":    func(dir string) { fill(b, dir, 3, 12, 4) },
		"limit":   func(dir string) { fill(b, dir, 2, 75, 1) },
	} {
		b.Run(name, func(b *testing.B) {
			root := b.TempDir()
			for _, dir := range []string{"/usr/bin", "/home/me", "/etc"} {
				if err := os.MkdirAll(root+dir, 0o755); err != nil {
					b.Fatal(err)
				}
			}
			if err := os.WriteFile(root+"/usr/bin/tool", []byte("\x7fELF"), 0o755); err != nil {
				b.Fatal(err)
			}
			home(root + "/home/me")
			time.Sleep(settled + 100*time.Millisecond) // until the times of folders tell
			h := host{root: root}
			w := Wanted{Command: "/usr/bin/tool", Homes: h.homes("/home/me"), Hide: []string{stateDir}, AllowRead: []string{"/home/me"}, UID: 1000, GID: 1000, host: h}
			begin := time.Now()
			l, err := Plan(w)
			if err != nil {
				b.Fatal(err)
			}
			planned := time.Since(begin)
			for b.Loop() {
				if l.Stale() {
					b.Fatal("it is out of date")
				}
			}
			b.ReportMetric(float64(planned.Microseconds()), "µs/plan")
			b.ReportMetric(float64(len(l.searched.all)), "folders")
		})
	}
}

// fill makes folders so deep, with so many folders and files in each.
func fill(b *testing.B, dir string, deep, folders, files int) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(path.Join(dir, fmt.Sprint("file", i)), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i := range folders {
		if deep > 0 {
			fill(b, path.Join(dir, fmt.Sprint("dir", i)), deep-1, folders, files)
		}
	}
}
