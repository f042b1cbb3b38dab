//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestRestOutlivesChangesOfAShownFolder lays a server to rest that sees a folder
// piece by piece, because something in it is denied, and changes the folder before
// the server goes on: what it had in memory is there, and so is the change.
func TestRestOutlivesChangesOfAShownFolder(t *testing.T) {
	p := newPrison(t, Options{})
	for name, test := range map[string]struct {
		change func(notes string) error
		want   string // what the server sees in the folder then
	}{
		"a new file":          {func(n string) error { return os.WriteFile(n+"/n2", nil, 0o644) }, "a dir n2 only private"},
		"a file removed":      {func(n string) error { return os.Remove(n + "/a") }, "dir only private"},
		"a file renamed":      {func(n string) error { return os.Rename(n+"/a", n+"/z") }, "dir only private z"},
		"a folder renamed":    {func(n string) error { return os.Rename(n+"/dir", n+"/rid") }, "a only private rid"},
		"what is denied gone": {func(n string) error { return os.RemoveAll(n + "/private") }, "a dir only"},
		"what is denied made": {func(n string) error { return os.WriteFile(n+"/only/later", nil, 0o644) }, "a dir only private"},
	} {
		t.Run(name, func(t *testing.T) {
			notes := p.at("home/notes-" + strings.ReplaceAll(name, " ", "-"))
			spec := p.rest(t, notes, func(c *cell) {
				c.gets(t, "list", "path", notes)
				c.gets(t, "read", "path", notes+"/a")
				c.gets(t, "read", "path", notes+"/dir/b")
			})
			if err := test.change(notes); err != nil {
				t.Fatal(err)
			}
			next := p.driver(p.d.opts) // which remembers nothing
			inst, err := next.Start(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			c := newCell(t, inst)
			if got := c.gets(t, "read", "path", "/tmp/memory"); got != "I remember" {
				t.Errorf("it remembers %q", got)
			}
			seen := strings.Fields(c.gets(t, "list", "path", notes))
			seen = slices.DeleteFunc(seen, func(name string) bool { return name == ".tine-mask" })
			if got := strings.Join(seen, " "); got != test.want {
				t.Errorf("it sees %q, want %q", got, test.want)
			}
			c.fails(t, "EACCES ENOENT EPERM", "read", "path", notes+"/private/key")
			c.fails(t, "EACCES ENOENT", "read", "path", notes+"/only/later")
		})
	}
}

// rest has a server that sees a folder, but for two places in it, do something, and
// lays it to rest.
func (p *prison) rest(t *testing.T, notes string, do func(c *cell), change ...func(*driver.Spec)) driver.Spec {
	t.Helper()
	for _, file := range []string{"/a", "/dir/b", "/only/x", "/private/key"} {
		putFile(t, notes+file, file)
	}
	spec := p.spec(t, func(s *driver.Spec) {
		s.State = s.Dir + "-state"
		options(*s).AllowRead = []string{notes}
		options(*s).DenyRead = []string{notes + "/private", notes + "/only/later"}
	})
	for _, c := range change {
		c(&spec)
	}
	if err := p.d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	c := p.start(t, spec)
	c.gets(t, "write", "path", "/tmp/memory", "create", "1", "text", "I remember")
	do(c)
	if err := c.inst.(driver.Suspender).Suspend(t.Context(), greetingText); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestRestWithoutAFileThatIsOpen removes a file that the server had open: it can't go
// on, and says so, and goes on when the file is back.
func TestRestWithoutAFileThatIsOpen(t *testing.T) {
	p := newPrison(t, Options{})
	notes := p.at("home/notes")
	spec := p.rest(t, notes, func(c *cell) { c.gets(t, "keep", "path", notes+"/a") })
	if err := os.Rename(notes+"/a", notes+"/z"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.driver(p.d.opts).Start(t.Context(), spec); err == nil || errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), notes+"/a, which it had open, is not there") {
		t.Errorf("without the file: %v", err)
	}
	if err := os.Rename(notes+"/z", notes+"/a"); err != nil {
		t.Fatal(err)
	}
	inst, err := p.driver(p.d.opts).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := newCell(t, inst).gets(t, "read", "path", "/tmp/memory"); got != "I remember" {
		t.Errorf("it remembers %q", got)
	}
}

// TestRestOutlivesATouch touches the program of a server that was laid to rest, which
// goes on, and then changes it: the memory does not fit, and stays until the server
// may begin anew without it.
func TestRestOutlivesATouch(t *testing.T) {
	p := newPrison(t, Options{})
	program := p.at("home/srv/program")
	put := func(b []byte) {
		t.Helper()
		putFile(t, program, string(b))
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var was []byte
	spec := p.rest(t, p.at("home/notes"), func(*cell) {}, func(s *driver.Spec) {
		var err error
		if was, err = os.ReadFile(s.Command); err != nil {
			t.Fatal(err)
		}
		put(was)
		s.Command = program
	})
	remembers := func(d *Driver) string {
		t.Helper()
		inst, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		c := newCell(t, inst)
		if _, err := os.Stat(imageOf(spec.State)); err == nil {
			t.Error("its memory is there twice")
		}
		defer func() {
			if err := inst.(driver.Suspender).Suspend(t.Context(), greetingText); err != nil {
				t.Fatal(err)
			}
		}()
		return c.gets(t, "list", "path", "/tmp")
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(program, later, later); err != nil {
		t.Fatal(err)
	}
	if got := remembers(p.driver(p.d.opts)); !strings.Contains(got, "memory") {
		t.Errorf("after a touch it remembers %q", got)
	}

	other := append(slices.Clone(was), 'x')
	put(other)
	next := p.driver(p.d.opts)
	for range 2 {
		if _, err := next.Start(t.Context(), spec); !errors.Is(err, driver.ErrUnfit) || !strings.Contains(err.Error(), program+" is another") {
			t.Fatalf("with another program: %v", err)
		}
	}
	put(was)
	if got := remembers(next); !strings.Contains(got, "memory") {
		t.Errorf("with its program back it remembers %q", got)
	}
	put(other)
	spec.Anew = true
	if got := remembers(p.driver(p.d.opts)); strings.Contains(got, "memory") {
		t.Errorf("it did not begin anew: %q", got)
	}
}
