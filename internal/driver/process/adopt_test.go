//go:build linux || darwin

package process

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// What a dead gateway had read of a message is lost, and the rest of it is not
// taken for a message.
func TestAdoptAfterHalfAMessageWasRead(t *testing.T) {
	d := New(Options{})
	inst := suite.Start(t, d)
	inst.Leave()
	var dead [2]*os.File
	for n, name := range []string{fifo.In, fifo.Out} {
		f, err := os.OpenFile(filepath.Join(inst.Handle().Dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		dead[n] = f
	}
	call := `{"jsonrpc":"2.0","id":"say","method":"tools/call","params":{"name":"say","arguments":{"text":"{\"x\":{\"y\":1}}\n"}}}` + "\n"
	if _, err := dead[0].WriteString(call); err != nil {
		t.Fatal(err)
	}
	half := make([]byte, len(`{"x":`))
	if _, err := io.ReadFull(dead[1], half); err != nil || string(half) != `{"x":` {
		t.Fatalf("%q, %v", half, err)
	}
	dead[0].Close()
	dead[1].Close()
	inst, err := d.Adopt(t.Context(), inst.Handle(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Stop(context.Background())
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := link.Stream.ReadFrame(); err != nil || !strings.Contains(string(got), `"id":"say"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

// A pid that another process has by now is not ours to touch.
func TestAdoptDoesNotTouchStrangers(t *testing.T) {
	stranger := exec.Command("sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stranger.Process.Kill()
		stranger.Wait()
	}()
	s, err := procid.Look(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	right := record{Token: "t1", ID: s.ID}
	early, boot, none := right, right, right
	early.Start--
	boot.Boot = "another"
	none.PID, none.Start = 1, 0
	for _, rec := range []record{early, boot, none} {
		data, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "instance")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h := driver.Handle{Driver: "process", Server: "fs", Dir: dir, Data: data}
		if _, err := New(Options{}).Adopt(t.Context(), h, nil); !errors.Is(err, driver.ErrGone) {
			t.Errorf("%+v: %v", rec, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is left: %v", err)
		}
	}
	if !runs(stranger.Process.Pid) {
		t.Error("a stranger was killed")
	}
}

func TestSweepLeavesTheRestAlone(t *testing.T) {
	root := t.TempDir()
	d := New(Options{})
	start := func(name string) driver.Instance {
		spec := suite.Spec(t, suite.Program(t))
		spec.Dir = filepath.Join(root, name)
		return suite.StartSpec(t, d, spec)
	}
	known, unknown := start("known"), start("unknown")
	unknown.Leave()
	for _, dir := range []string{"empty", "torn", "half", "of-another-driver"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, content := range map[string]string{"half/" + recordName + folder.Part: `{"tok`, "torn/" + recordName: "", "of-another-driver/state": "x", "file": "x"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := d.Sweep(t.Context(), root, map[string]bool{filepath.Join(root, ".", "known") + "/": true})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(gone)
	var want []string
	for _, name := range []string{"empty", "half", "torn", "unknown"} {
		want = append(want, filepath.Join(root, name))
	}
	if !slices.Equal(gone, want) {
		t.Errorf("swept %v, want %v", gone, want)
	}
	var left []string
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"file", "known", "of-another-driver"}) {
		t.Errorf("left %v", left)
	}
	if got := drivertest.Dial(t, known).Call(t, "echo", map[string]any{"text": "still"}); got != "still" {
		t.Errorf("the known instance answered %q", got)
	}
	if gone, err := d.Sweep(t.Context(), filepath.Join(root, "none"), nil); err != nil || gone != nil {
		t.Errorf("sweeping nothing: %v, %v", gone, err)
	}
}

func TestStopAfterLeave(t *testing.T) {
	d := New(Options{})
	inst := suite.Start(t, d)
	inst.Leave()
	if err := inst.Stop(context.Background()); err == nil {
		t.Error("another gateway's instance was stopped")
	}
	again, err := d.Adopt(t.Context(), inst.Handle(), nil)
	if err != nil {
		t.Fatal(err)
	}
	suite.Stop(t, again)
}
