// Package drivertest is the suite that every driver passes. A driver's tests
// make one Suite, hand TestMain to it and run it:
//
//	var suite = &drivertest.Suite{New: ..., Spec: ...}
//
//	func TestMain(m *testing.M)   { suite.Main(m) }
//	func TestSuite(t *testing.T)  { suite.Run(t) }
//
// The suite builds a small static MCP server and lets the driver run it. Drivers
// whose links are HTTP reach a server that their Spec starts, and pass the part
// of the suite that does not need a misbehaving one. So do drivers whose servers
// are not programs, with Foreign.
//
// A driver that is a driver.Keeper says with Stateful how to run a server that
// remembers. Where that is not the suite's own, Put and Get make it remember.
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"go.uber.org/goleak"
)

// Suite tests one driver.
type Suite struct {
	// New makes a driver whose streams take frames of up to maxFrame bytes, or
	// the driver's default where it is 0. It is also called in the process that
	// plays the gateway which dies.
	New func(maxFrame int) driver.Driver
	// Spec says how to run the program with the arguments. Each call names
	// another folder, which need not exist.
	Spec func(t testing.TB, program string, args ...string) driver.Spec
	// Options is empty, and of the type that the specs have for theirs; nil where they
	// have none. The process that plays the gateway reads a spec's into it.
	Options any
	// Left lists what of an instance is still there, for the errors of tests
	// that find something after a Stop. Optional.
	Left func(t testing.TB, h driver.Handle) []string
	// Foreign says that Spec runs another server than the suite's, which has only
	// the tool echo: what it is given as text it answers.
	Foreign bool
	// Stateful says how to run a server that remembers, on the state in the folder
	// state, which a Keeper seeds. Like those of Spec each is another instance.
	Stateful func(t testing.TB, program, state string) driver.Spec
	// Put makes a server of Stateful remember a value, and Get returns it, empty
	// where there is none. By default they call the tools of the suite's server.
	Put func(ctx context.Context, p *Peer, key, value string) error
	Get func(ctx context.Context, p *Peer, key string) (string, error)
	// Kill ends an instance as a crash does, also one that is held. Optional.
	Kill func(t testing.TB, inst driver.Instance)
	// Beside is the suite's server as a command that is run beside it; default where it
	// was built.
	Beside string
	// Cwd is a folder that a command can be run in, as it sees it; default /.
	Cwd string
	// Slow is for drivers whose instances take long to start: what is done many
	// times only to meet rare accidents is done less often.
	Slow bool
	// Unheard says that what an instance says while no gateway has hold of it is
	// lost.
	Unheard bool
	// Mortal says that these instances end when the gateway lets go of them, though
	// others of the driver don't.
	Mortal bool
	// Only picks tests by name, for the second way of a driver to do the same.
	// Optional.
	Only func(test string) bool
	// Env is added to the environment of the process that plays the gateway which
	// dies.
	Env []string
	// Options for goleak, where a library of the driver needs one.
	Leaks []goleak.Option
}

// times is how often something is done, and less often where that takes long.
func (s *Suite) times(often, slow int) int {
	if s.Slow {
		return slow
	}
	return often
}

// programVar names a server that was built before, for machines without Go.
const programVar = "TINE_DRIVERTEST_PROGRAM"

// Main runs the tests of a package, and fails when a goroutine is left after
// them. It does not return.
func (s *Suite) Main(m *testing.M) {
	if order := os.Getenv(ownerVar); order != "" {
		s.own(order)
	}
	leaks := append(s.Leaks, goleak.Cleanup(func(code int) {
		os.RemoveAll(server.dir)
		os.Exit(code)
	}))
	goleak.VerifyTestMain(m, leaks...)
}

// server is what the suites of a test program start. It is built once for all.
var server struct {
	sync.Once
	dir, path string
	err       error
}

// Program returns the path of the suite's server.
func (s *Suite) Program(t testing.TB) string {
	t.Helper()
	if s.Foreign {
		return ""
	}
	server.Do(func() { server.path, server.err = build() })
	if server.err != nil {
		t.Fatalf("build the suite's server: %v", server.err)
	}
	return server.path
}

func build() (path string, err error) {
	if path = os.Getenv(programVar); path != "" {
		return path, nil
	}
	if server.dir, err = os.MkdirTemp("", "tine-drivertest"); err != nil {
		return "", err
	}
	path = filepath.Join(server.dir, "server")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	cmd := exec.Command("go", "build", "-o", path, "github.com/tine-mcp/tine/internal/driver/drivertest/testdata/server")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return path, nil
}

// Run runs the suite.
func (s *Suite) Run(t *testing.T) {
	inst := s.Start(t, s.New(0))
	link, err := inst.Dial(ctx(t))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	s.Stop(t, inst)
	streams := link.Stream != nil

	for _, test := range []struct {
		name   string
		stream bool // needs a link of frames, to the suite's own server
		run    func(*testing.T)
	}{
		{"lifecycle", false, s.testLifecycle},
		{"many at once", false, s.testMany},
		{"start that is cancelled", false, s.testStartCancelled},
		{"stop with no time", false, s.testStopWithNoTime},
		{"leave", false, s.testLeave},
		{"adopt nothing", false, s.testAdoptNothing},
		{"one link at a time", true, s.testOneLink},
		{"logs", true, s.testLogs},
		{"crash", true, s.testCrash},
		{"last message before the end", true, s.testLastMessage},
		{"stop a stubborn one", true, s.testStubborn},
		{"stop while writing", true, s.testStopWhileWriting},
		{"stop while reading", true, s.testStopWhileReading},
		{"callers at once", true, s.testCallers},
		{"big messages", true, s.testBig},
		{"messages of every size", true, s.testSizes},
		{"a message that is too large", true, s.testTooLarge},
		{"100 MB in one line", true, s.testHuge},
		{"output without end", true, s.testEndless},
		{"a peer that does not read", true, s.testNotReading},
		{"banners", true, s.testBanners},
		{"line breaks in a message", true, s.testLineBreaks},
		{"adopt after the owner died", true, s.testAdopt},
		{"adopt in the middle of lines", true, s.testAdoptTorn},
		{"adopt what has ended", true, s.testAdoptEnded},
		{"hold", false, s.testHold},
		{"hold with no time", false, s.testHoldWithNoTime},
		{"hold and stop", false, s.testHoldStop},
		{"hold and leave", false, s.testHoldLeave},
		{"hold and crash", false, s.testHoldCrash},
		{"hold what has ended", true, s.testHoldEnded},
		{"hold a busy one", true, s.testHoldBusy},
		{"adopt a held instance", true, s.testAdoptHeld},
		{"state after a restart", false, s.testRestart},
		{"state after a crash", true, s.testStateAfterCrash},
		{"adopt with state", true, s.testAdoptState},
		{"fork isolation", false, s.testIsolation},
		{"forks of forks", false, s.testForksOfForks},
		{"many children at once", false, s.testManyChildren},
		{"freeze while none runs", false, s.testFreezeStopped},
		{"freeze under load", false, s.testFreezeUnderLoad},
		{"discard and erase twice", false, s.testTwice},
		{"export and import", false, s.testExport},
		{"import what is none", false, s.testImportGarbage},
		{"failure leaves nothing", false, s.testNothingLeft},
		{"random worlds", false, s.testRandom},
		{"command", true, s.testExec},
		{"command that can't be run", true, s.testExecRefused},
		{"command that is ended", true, s.testExecEnded},
		{"command and the end of the server", true, s.testExecCrash},
		{"command of a gateway that died", true, s.testExecOrphan},
		{"output of a command without end", true, s.testExecSpill},
	} {
		if s.Only != nil && !s.Only(test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			if test.stream && !streams {
				t.Skip("the driver's links are not streams")
			}
			if test.stream && s.Foreign {
				t.Skip("the server is not the suite's")
			}
			test.run(t)
		})
	}
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	t.Cleanup(cancel)
	return c
}

// Start starts the suite's server and stops it at the end of the test.
func (s *Suite) Start(t testing.TB, d driver.Driver, args ...string) driver.Instance {
	t.Helper()
	return s.StartSpec(t, d, s.Spec(t, s.Program(t), args...))
}

// StartSpec starts an instance and stops it at the end of the test.
func (s *Suite) StartSpec(t testing.TB, d driver.Driver, spec driver.Spec) driver.Instance {
	t.Helper()
	inst, err := d.Start(ctx(t), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { inst.Stop(context.Background()) })
	return inst
}

// Stop stops an instance and looks that nothing is left of it.
func (s *Suite) Stop(t testing.TB, inst driver.Instance) {
	t.Helper()
	if err := inst.Stop(ctx(t)); err != nil {
		t.Fatalf("stop: %v", err)
	}
	s.gone(t, inst.Handle())
}

func (s *Suite) gone(t testing.TB, h driver.Handle) {
	t.Helper()
	if h.Dir != "" {
		if _, err := os.Lstat(h.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder %s is left (%v)", h.Dir, err)
		}
	}
	if s.Left != nil {
		if left := s.Left(t, h); len(left) > 0 {
			t.Errorf("left after the end: %v", left)
		}
	}
}

// Ended waits for the end of an instance.
func Ended(t testing.TB, inst driver.Instance) {
	t.Helper()
	select {
	case <-inst.Done():
	case <-ctx(t).Done():
		t.Fatal("the instance does not end")
	}
}

func isDone(inst driver.Instance) bool {
	select {
	case <-inst.Done():
		return true
	default:
		return false
	}
}
