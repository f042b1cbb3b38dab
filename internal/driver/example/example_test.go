//go:build linux || darwin

package example

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

// The gateway has the kinds of internal/driver/kinds, of which this is none: only these
// tests know the key. It is added before any config is read, and for good.
func init() { config.Register(Kind) }

const frame = 64 << 20

var suite = &drivertest.Suite{
	New: func(maxFrame int) driver.Driver {
		if maxFrame == 0 {
			maxFrame = frame
		}
		return New(maxFrame)
	},
	Spec: func(t testing.TB, program string, args ...string) driver.Spec {
		return driver.Spec{Server: "fs", Dir: filepath.Join(t.TempDir(), "instance"), Command: program, Args: args}
	},
	// A spec is sent to the process that plays the gateway which dies, as JSON.
	Options: &Config{},
	Kill: func(t testing.TB, inst driver.Instance) {
		if err := syscall.Kill(inst.(*instance).id.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	},
	Left: func(t testing.TB, h driver.Handle) []string {
		rec, err := records.Parse(h.Data)
		if err != nil || !procid.GroupLives(rec.PID) {
			return nil // it never ran, or runs no more
		}
		return []string{"process group " + strconv.Itoa(rec.PID)}
	},
}

func TestMain(m *testing.M) { suite.Main(m) }

func TestSuite(t *testing.T) { suite.Run(t) }

// load reads a config with one server.
func load(t *testing.T, entry string) (*config.Config, error) {
	t.Helper()
	return config.Parse([]byte("servers: {a: {"+entry+"}}\n"), config.Options{Path: "tine.yaml"})
}

// What the config says of a server is what its instance is started with.
func TestConfig(t *testing.T) {
	c, err := load(t, "command: "+strconv.Quote(suite.Program(t))+", example: {priority: 19}")
	if err != nil {
		t.Fatal(err)
	}
	s := c.Servers[0]
	if s.Driver != "example" || len(c.Warnings) > 0 || !strings.HasPrefix(s.Target(), "example ") {
		t.Errorf("driver %q, target %q, warnings %q", s.Driver, s.Target(), c.Warnings)
	}
	testkit.Has(t, "the config as it is shown", string(config.Marshal(c)), "driver: example", "priority: 19")

	spec := suite.Spec(t, s.Command)
	spec.Options = s.Options // as the session does, without knowing what they are
	inst := suite.StartSpec(t, New(frame), spec)
	pid, err := strconv.Atoi(drivertest.Dial(t, inst).Call(t, "pid", nil))
	if err != nil {
		t.Fatal(err)
	}
	got, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if runtime.GOOS == "linux" {
		got = 20 - got // the system call has no way to return what is negative
	}
	if err != nil || got != 19 {
		t.Errorf("priority %d, %v", got, err)
	}

	if c, err = load(t, "command: x, example: {}"); err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "the default as it is shown", string(config.Marshal(c)), "priority: 0")
}

func TestWrongConfig(t *testing.T) {
	for entry, want := range map[string]string{
		"command: x, example: {priority: 20}":                       "servers.a.example.priority: 20 is out of range; want 0 to 19",
		"command: x, example: {prio: 1}":                            `unknown key "prio" in servers.a.example`,
		"command: x, example: 3":                                    "servers.a.example: want a map of priority",
		"url: 'https://a.example.org', example: {}":                 "servers.a.example: goes with command",
		"command: x, example: {}, state: [d], args: ['${state.d}']": "servers.a.state: the example driver keeps no state",
		"command: x, example: {}, workspace: true":                  "servers.a.workspace: the example driver shows its programs no workspace",
		"command: x, example: {}, env: {A: '${workspace}'}":         "servers.a.env.A: the example driver shows its programs no workspace",
		"command: x, example: {}, fork: memory":                     `servers.a.fork: "memory" carries what a server remembers`,
		"command: x, example: {}, fork: files":                      `servers.a.fork: "files" carries what a server remembers`,
	} {
		_, err := load(t, entry)
		if err == nil {
			t.Errorf("%s: it was read", entry)
			continue
		}
		testkit.Has(t, entry, err.Error(), want)
	}
}

// leaving is the context of a caller who leaves after the first look at it.
type leaving struct {
	context.Context
	looks int
}

func (l *leaving) Err() error {
	if l.looks++; l.looks == 1 {
		return nil
	}
	return context.Canceled
}

// A start that fails leaves nothing, whatever there was when it failed.
func TestFailedStart(t *testing.T) {
	program := suite.Program(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		ctx    context.Context
		change func(*driver.Spec)
		want   string
	}{
		"no such program":     {t.Context(), func(s *driver.Spec) { s.Command = "no-such-program" }, "set servers.fs.command"},
		"half a path":         {t.Context(), func(s *driver.Spec) { s.Command = "./no/program" }, "set servers.fs.command"},
		"not a program":       {t.Context(), func(s *driver.Spec) { s.Command = text }, "start "},
		"no such folder":      {t.Context(), func(s *driver.Spec) { s.Cwd = "/no/such/folder" }, `in folder "/no/such/folder"`},
		"when it runs by now": {&leaving{Context: t.Context()}, func(s *driver.Spec) { s.StopGrace = time.Hour }, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := suite.Spec(t, program)
			tt.change(&spec)
			_, err := New(frame).Start(tt.ctx, spec)
			if err == nil {
				t.Fatal("it started")
			}
			testkit.Has(t, "the error", err.Error(), `server "fs": `, tt.want)
			drivertest.Absent(t, spec.Dir)
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
				t.Errorf("the test has a child left: %d, %v", pid, err)
			}
		})
	}
}

func TestTakenFolder(t *testing.T) {
	inst := suite.Start(t, New(frame))
	spec := suite.Spec(t, suite.Program(t))
	spec.Dir = inst.Handle().Dir
	if _, err := New(frame).Start(t.Context(), spec); err == nil {
		t.Error("two instances in one folder")
	}
	drivertest.Dial(t, inst).Call(t, "echo", nil) // the first one does not mind
}

// What a program started ends with it. Left looks for the whole group.
func TestTheGroupEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, driver.Instance, *drivertest.Peer){
		"by a stop": func(t *testing.T, inst driver.Instance, _ *drivertest.Peer) { suite.Stop(t, inst) },
		"by a crash": func(t *testing.T, inst driver.Instance, p *drivertest.Peer) {
			p.TryCall(t.Context(), "exit", map[string]any{"code": 1})
			drivertest.Ended(t, inst) // before any Stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			inst := suite.Start(t, New(frame))
			p := drivertest.Dial(t, inst)
			p.Call(t, "spawn", map[string]any{"how": "child"})
			end(t, inst, p)
			if left := suite.Left(t, inst.Handle()); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A program that minds neither the end of its input nor SIGTERM is killed.
func TestDeafProgram(t *testing.T) {
	spec := suite.Spec(t, "/bin/sh", "-c", `trap "" TERM; echo "{}"; while :; do sleep 0.01; done`)
	spec.StopGrace = 20 * time.Millisecond
	inst := suite.StartSpec(t, New(frame), spec)
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Stream.ReadFrame(); err != nil { // from now on it is deaf
		t.Fatal(err)
	}
	suite.Stop(t, inst)
	if err := inst.Err(); err != nil {
		t.Errorf("a stop is no error, yet: %v", err)
	}
}

// What a gateway left that was killed is ended by the next one, and nothing else is.
func TestSweep(t *testing.T) {
	d := New(frame)
	root := t.TempDir()
	start := func(name string) driver.Instance {
		spec := suite.Spec(t, "/bin/sh", "-c", "sleep 1000") // does not read its input
		spec.Dir, spec.StopGrace = filepath.Join(root, name), 20*time.Millisecond
		return suite.StartSpec(t, d, spec)
	}
	left, known := start("left"), start("known")
	drivertest.Write(t, filepath.Join(root, "torn", records.File), `{"ser`)
	drivertest.Write(t, filepath.Join(root, "process", "process.json"), "{}")
	drivertest.Write(t, filepath.Join(root, "file"), "")
	gone, err := d.Sweep(t.Context(), root, map[string]bool{known.Handle().Dir: true})
	if want := []string{left.Handle().Dir, filepath.Join(root, "torn")}; err != nil || !slices.Equal(gone, want) {
		t.Errorf("swept %v, %v, want %v", gone, err, want)
	}
	drivertest.Ended(t, left)
	select {
	case <-known.Done():
		t.Errorf("what is known ended: %v", known.Err())
	default:
	}
	drivertest.Reads(t, filepath.Join(root, "process", "process.json"), "{}")
	if gone, err := d.Sweep(t.Context(), filepath.Join(root, "none"), nil); len(gone) > 0 || err != nil {
		t.Errorf("swept %v, %v where nothing is", gone, err)
	}
}

// A gateway that is killed takes its programs with it.
func TestKilledGateway(t *testing.T) {
	h := suite.Orphan(t, false)
	testkit.Eventually(t, "the program ends", func() bool { return len(suite.Left(t, h)) == 0 })
	if _, err := New(frame).Adopt(t.Context(), h, nil); !errors.Is(err, driver.ErrGone) {
		t.Errorf("adopt: %v", err)
	}
	drivertest.Absent(t, h.Dir)
}
