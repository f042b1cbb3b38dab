package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// A part of a test runs in a process of its own, which confines itself: the test's
// program once more, with the name of the part in childVar and its folder in dirVar.
const (
	childVar = "TINE_TEST_CONFINE"
	dirVar   = "TINE_TEST_CONFINE_DIR"
	abiVar   = "TINE_TEST_CONFINE_ABI" // of the kernel that this one plays
)

var children = map[string]func(c *child){}

func TestMain(m *testing.M) {
	name := os.Getenv(childVar)
	if name == "" {
		os.Exit(m.Run())
	}
	part, ok := children[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no part of a test is named", name)
		os.Exit(2)
	}
	c := &child{dir: os.Getenv(dirVar), out: outcome{Tries: map[string]syscall.Errno{}}}
	part(c)
	if err := json.NewEncoder(os.Stdout).Encode(c.out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// outcome is what a child found: the report, and an error number for every try.
type outcome struct {
	Report Report
	Tries  map[string]syscall.Errno
	Words  map[string]string // of errors that are no numbers
}

type child struct {
	dir string
	out outcome
}

func (c *child) apply(r Rules) {
	k := look()
	if abi, err := strconv.Atoi(os.Getenv(abiVar)); err == nil {
		k.abi = abi
	}
	report, err := k.apply(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apply:", err)
		os.Exit(2)
	}
	c.out.Report = report
}

// try records what comes of something.
func (c *child) try(name string, err error) {
	if _, twice := c.out.Tries[name]; twice {
		panic(name + " is tried twice")
	}
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = syscall.EINVAL
		if c.out.Words == nil {
			c.out.Words = map[string]string{}
		}
		c.out.Words[name] = err.Error()
	}
	c.out.Tries[name] = errno
}

// must ends a child in which something failed that has to do with the test alone.
func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return v
}

// command is a child that has not started.
func command(t *testing.T, part, dir string) *exec.Cmd {
	t.Helper()
	k := look()
	if k.abi == 0 || !k.seccomp || !can(Rules{}).Files {
		if os.Getenv("CI") != "" {
			t.Fatalf("this process can't be confined: %s", can(Rules{}))
		}
		t.Skipf("this process can't be confined: %s", can(Rules{}))
	}
	cmd := exec.CommandContext(t.Context(), must(os.Executable()), "-test.run=^$")
	cmd.Env = append(os.Environ(), childVar+"="+part, dirVar+"="+dir)
	return cmd
}

// run waits for a child and returns what it found.
func run(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, data, stderr.Bytes())
	}
	var out outcome
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if !out.Report.Complete() {
		t.Fatalf("it is not confined: %+v", out.Report)
	}
	return out
}

// moved stands for the errors of renames and links, of which kernels have two.
const moved syscall.Errno = 1 << 20

// want compares what a child found. Every try must be expected.
func (o outcome) want(t *testing.T, want map[string]syscall.Errno) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, tried := o.Tries[name]
		if !tried {
			t.Errorf("%s was not tried", name)
		} else if got != want[name] && !(want[name] == moved && (got == syscall.EACCES || got == syscall.EXDEV)) {
			t.Errorf("%s: %v (%d) %s, want %v", name, got, got, o.Words[name], want[name])
		}
	}
	for name, got := range o.Tries {
		if _, known := want[name]; !known {
			t.Errorf("%s: %v, and nothing was expected", name, got)
		}
	}
}

// each runs a test for every version of Landlock up to the one here.
func each(t *testing.T, test func(t *testing.T)) {
	for abi := 1; abi <= max(1, look().abi); abi++ {
		t.Run(fmt.Sprint("ABI ", abi), func(t *testing.T) {
			t.Setenv(abiVar, fmt.Sprint(abi))
			test(t)
		})
	}
}

// since is an error of kernels that refuse something, and none of older ones.
func since(o outcome, abi int, errno syscall.Errno) syscall.Errno {
	if o.Report.ABI < abi {
		return 0
	}
	return errno
}
