//go:build linux || darwin

package procid

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

// sleeper starts a process that does nothing, and ends it with the test.
func sleeper(t *testing.T) (*exec.Cmd, State) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s, err := Look(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, s
}

// others are IDs that are nearly that of a process, and of none.
func others(id ID) map[string]ID {
	early, boot, first := id, id, id
	early.Start--
	boot.Boot = "another"
	first.PID = 1
	return map[string]ID{"another start": early, "another boot": boot, "the first process": first, "none": {}}
}

func TestLives(t *testing.T) {
	cmd, s := sleeper(t)
	pid := cmd.Process.Pid
	if s.PID != pid || s.Start == 0 || s.Boot == "" || s.Group != pid || s.Dead {
		t.Errorf("it is %+v", s)
	}
	if again, err := Look(pid); err != nil || again.ID != s.ID {
		t.Errorf("at second sight it is %+v, %v", again, err)
	}
	if !s.Lives() || !GroupLives(pid) {
		t.Error("it does not live")
	}
	unknown := s.ID
	unknown.Boot = "" // a record of a system without boot ids
	if !unknown.Lives() {
		t.Error("without a boot it does not live")
	}
	for name, id := range others(s.ID) {
		if id.Lives() {
			t.Errorf("%s: it lives", name)
		}
	}
	cmd.Process.Kill()
	for { // until it is dead and not waited for
		dead, err := Look(pid)
		if err != nil {
			t.Fatal(err)
		}
		if dead.Dead {
			break
		}
	}
	if s.Lives() || GroupLives(pid) {
		t.Error("a dead one lives")
	}
	cmd.Wait()
	if _, err := Look(pid); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the waiting: %v", err)
	}
	if s.Lives() || GroupLives(pid) {
		t.Error("one that is gone lives")
	}
}

func TestSignal(t *testing.T) {
	cmd, s := sleeper(t)
	for name, id := range others(s.ID) {
		if err := id.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.Stands() {
		t.Error("it is stopped")
	}
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is stopped", s.Stands)
	if !s.Lives() {
		t.Error("a stopped one does not live")
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := s.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("one that is gone was signalled: %v", err)
	}
	if !s.Stands() {
		t.Error("one that is gone runs")
	}
}

// The record of a process stays readable, whatever else is in it.
func TestIDIsJSON(t *testing.T) {
	rec := struct {
		Token string `json:"token"`
		ID
	}{"t", ID{PID: 7, Start: 1 << 60, Boot: "b"}}
	b, err := json.Marshal(rec)
	if want := `{"token":"t","pid":7,"start":1152921504606846976,"boot":"b"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	back := rec
	back.ID = ID{}
	if err := json.Unmarshal(b, &back); err != nil || back != rec {
		t.Errorf("back it is %+v, %v", back, err)
	}
	if b, err = json.Marshal(ID{}); err != nil || string(b) != "{}" {
		t.Errorf("nothing is %s, %v", b, err)
	}
}

func TestWatch(t *testing.T) {
	for kind, watch := range map[string]func(ID) (Watcher, error){
		"of the system": Watch,
		"that looks":    func(id ID) (Watcher, error) { return newPoller(id), nil },
	} {
		t.Run(kind, func(t *testing.T) {
			cmd, s := sleeper(t)
			w, err := watch(s.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if exited, ok := w.Wait(time.Millisecond); exited || !ok {
				t.Errorf("while it runs: %v, %v", exited, ok)
			}
			cmd.Process.Kill()
			for range 2 {
				if exited, ok := w.Wait(time.Minute); !exited || !ok {
					t.Errorf("after its end: %v, %v", exited, ok)
				}
			}
			// The watcher has not taken what its parent waits for.
			if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("its parent sees %v", err)
			}
		})
		t.Run(kind+", closed", func(t *testing.T) {
			_, s := sleeper(t)
			w, err := watch(s.ID)
			if err != nil {
				t.Fatal(err)
			}
			over := make(chan bool)
			go func() {
				_, ok := w.Wait(time.Hour)
				over <- ok
			}()
			w.Close()
			if <-over {
				t.Error("a wait outlived the closing")
			}
			w.Close()
			if _, ok := w.Wait(time.Hour); ok {
				t.Error("waited after the closing")
			}
			if !s.Lives() {
				t.Error("the process was ended")
			}
		})
	}
}

func TestWatchOfOthers(t *testing.T) {
	_, s := sleeper(t)
	for name, id := range others(s.ID) {
		if w, err := Watch(id); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				w.Close()
			}
		}
	}
}

func TestStart(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Files: slices.Repeat([]uintptr{null.Fd()}, 3), Sys: &syscall.SysProcAttr{Setsid: true}}
	id, w, err := Start(sh, []string{"sh", "-c", "exit 7"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if exited, ok := w.Wait(time.Minute); !exited || !ok {
		t.Errorf("it goes on: %v, %v", exited, ok)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(id.PID, &ws, 0, nil); err != nil || ws.ExitStatus() != 7 {
		t.Errorf("it ended with %v, %v", ws, err)
	}
	if id, _, err := Start("/nonexistent/program", []string{"x"}, &syscall.ProcAttr{}); !errors.Is(err, os.ErrNotExist) || id != (ID{}) {
		t.Errorf("a program that is not there: %+v, %v", id, err)
	}
}
