//go:build amd64 || arm64

package sandbox

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// Tests that try to get out. The program inside is testdata/attacker: it asks the kernel
// for something that it must not get, and reports the answer. All that it looks for may
// be read and written by every user of the host, so that nothing but the walls of the
// sandbox is in the way.

// attacker is what tries to get out.
var attacker = testProgram{name: "attacker", variable: "TINE_TEST_SANDBOX_ATTACKER"}

// A testProgram is a program below testdata: the one that a variable names, or one that the
// test builds beside the suite's server. The suite removes both.
type testProgram struct {
	name, variable string

	build sync.Once
	path  string
	err   error
}

func (p *testProgram) at(t testing.TB) string {
	t.Helper()
	beside := filepath.Dir(builder.Program(t))
	p.build.Do(func() {
		if p.path = os.Getenv(p.variable); p.path != "" {
			return
		}
		p.path = filepath.Join(beside, p.name)
		// Go runs a test again where a directory changed that it looked at.
		if _, p.err = os.ReadDir("testdata/" + p.name); p.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", p.path, "./testdata/"+p.name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if p.err != nil {
		t.Fatalf("build the %s: %v", p.name, p.err)
	}
	return p.path
}

func rootful() bool { return os.Geteuid() == 0 }

// prison is a part of the host with everything in it that an attacker would like
// to have, and a driver. Sandboxes see the part, but for what is masked.
//
//	open/       what may be read
//	write/      what may be written to, where a spec says so
//	deny/       deny_read
//	deny.txt    deny_read
//	home/       of the user that runs the gateway
//	state/      the state folder, with the folders of instances
//	tine-sandbox*  the driver's folder
type prison struct {
	*bench
	world  string
	canary string // what is in every file that must not be seen
	d      *Driver
	cells  int
}

// newPrison makes the world in a folder that root: host shows, where it can.
func newPrison(t *testing.T, o Options) *prison {
	t.Helper()
	p := &prison{world: newWorld(t), canary: "canary-" + rand.Text()}
	for _, dir := range []string{"open", "write", "deny", "home", "state"} {
		p.mkdir(t, dir)
	}
	p.put(t, "open/file", "anybody may read this")
	p.put(t, "deny/file", p.canary)
	p.put(t, "deny.txt", p.canary)
	p.put(t, "state/file", p.canary)
	// The driver's folder is there too. What is made below is the test's own.
	was := os.Getenv("TMPDIR")
	t.Setenv("TMPDIR", p.world)
	p.bench = newBench(t)
	t.Setenv("TMPDIR", was)
	p.put(t, filepath.Join(filepath.Base(p.dir), "secret"), p.canary)
	o.Hide = append(o.Hide, p.at("state"))
	if o.Environ == nil {
		o.Environ = append(os.Environ(), "HOME="+p.at("home"))
		o.Environ = slices.DeleteFunc(o.Environ, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") && kv != "HOME="+p.at("home") })
	}
	p.d = p.driver(o)
	return p
}

// newWorld makes an empty folder.
func newWorld(t *testing.T) string {
	t.Helper()
	base := ""
	if info, err := os.Stat("/srv"); rootful() && err == nil && info.IsDir() {
		base = "/srv"
	}
	dir, err := os.MkdirTemp(base, "iso")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (p *prison) at(name string) string { return filepath.Join(p.world, name) }

func (p *prison) mkdir(t testing.TB, name string) {
	t.Helper()
	makeOpen(t, p.at(name))
}

// makeOpen makes a directory that every user may write to.
func makeOpen(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
}

// put makes a file that every user may read and write.
func (p *prison) put(t testing.TB, name, text string) { putFile(t, p.at(name), text) }

func putFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

// spec is the attacker in a sandbox that sees the world.
func (p *prison) spec(t testing.TB, change ...func(*driver.Spec)) driver.Spec {
	t.Helper()
	path := attacker.at(t)
	p.cells++
	name := fmt.Sprint("i", p.cells)
	s := driver.Spec{
		Server: "attacker", Session: "ses_" + name, Dir: p.at("state/" + name), StopGrace: time.Second,
		Command: path, Options: box(),
	}
	options(s).Memory = 512 << 20
	options(s).AllowRead, options(s).DenyRead = []string{p.world}, []string{p.at("deny"), p.at("deny.txt")}
	for _, c := range change {
		c(&s)
	}
	return s
}

// cell is one sandbox with the attacker in it.
type cell struct {
	inst driver.Instance
	peer *drivertest.Peer
}

func (p *prison) enter(t testing.TB, change ...func(*driver.Spec)) *cell {
	t.Helper()
	return p.start(t, p.spec(t, change...))
}

func (p *prison) start(t testing.TB, spec driver.Spec) *cell {
	t.Helper()
	inst, err := p.d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return newCell(t, inst)
}

func newCell(t testing.TB, inst driver.Instance) *cell {
	t.Helper()
	t.Cleanup(func() { stopCell(t, inst) })
	return &cell{inst: inst, peer: drivertest.Dial(t, inst)}
}

func stopCell(t testing.TB, inst driver.Instance) {
	ctx, cancel := afterwards(t.Context())
	defer cancel()
	if err := inst.Stop(ctx); err != nil {
		t.Error(err)
	}
	rec, err := records.Parse(inst.Handle().Data)
	if err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + rec.Sandbox)
	if exists("/sys/fs/cgroup/"+rec.Sandbox) || len(left) > 0 {
		t.Errorf("cgroups of %s are left: %v", rec.Sandbox, left)
	}
}

// outcome is what an attempt came to.
type outcome struct {
	errno string // ok, or the name of the error
	text  string
}

func (o outcome) ok() bool { return o.errno == "ok" }

func outcomeOf(text string) outcome {
	errno, rest, _ := strings.Cut(text, "\n")
	return outcome{errno, rest}
}

// try makes an attempt: a tool, and names and values of its arguments.
func (c *cell) try(t testing.TB, tool string, args ...string) outcome {
	t.Helper()
	answered := false
	defer func() {
		if answered {
			return
		}
		select { // of what it died
		case <-c.inst.Done():
			t.Logf("the sandbox has ended: %v", c.inst.Err())
		case <-time.After(10 * time.Second):
			t.Log("the sandbox lives")
		}
	}()
	o := outcomeOf(c.peer.Call(t, tool, named(args)))
	answered = true
	return o
}

func named(args []string) map[string]any {
	all := map[string]any{}
	for i := 0; i+1 < len(args); i += 2 {
		all[args[i]] = args[i+1]
	}
	return all
}

// fails wants an attempt to end with one of some errors.
func (c *cell) fails(t testing.TB, errnos string, tool string, args ...string) {
	t.Helper()
	if got := c.try(t, tool, args...); !slices.Contains(strings.Fields(errnos), got.errno) {
		t.Errorf("%s %q: %s %.300q, want %s", tool, args, got.errno, got.text, errnos)
	}
}

// gets wants an attempt to succeed, and returns what it got.
func (c *cell) gets(t testing.TB, tool string, args ...string) string {
	t.Helper()
	got := c.try(t, tool, args...)
	if !got.ok() {
		t.Errorf("%s %q: %s %.300q, want ok", tool, args, got.errno, got.text)
	}
	return got.text
}

// works wants the sandbox to go on.
func (c *cell) works(t testing.TB) {
	t.Helper()
	if got := c.gets(t, "echo", "text", "still here"); got != "still here" {
		t.Errorf("the sandbox answers %q", got)
	}
}

// attempt is a row of a table: what must fail, and how.
type attempt struct {
	name   string
	errnos string
	tool   string
	args   []string
}

func (c *cell) all(t *testing.T, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) { c.fails(t, a.errnos, a.tool, a.args...) })
	}
	c.works(t)
}

// content is what the host has in a file.
func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
