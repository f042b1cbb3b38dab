package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The test binary is also the other gateway: with this variable it locks the
// folder that it names, says so, and waits to be killed.
const holdVar = "TINE_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdVar); dir != "" {
		if _, err := Lock(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLockHasOneOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on demand")
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: got %v, want ErrLocked", err)
	}
	if !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())+" ") || !strings.Contains(err.Error(), dir) {
		t.Errorf("error names neither owner nor folder: %v", err)
	}
	release()
	release, err = Lock(dir)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	release()
}

func TestLockOfOneAmongMany(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	got := make(chan func(), 20)
	for range 20 {
		wg.Go(func() {
			release, err := Lock(dir)
			if err == nil {
				got <- release
			} else if !errors.Is(err, ErrLocked) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(got)
	n := 0
	for release := range got {
		n++
		release()
	}
	if n != 1 {
		t.Fatalf("%d owners at once", n)
	}
}

func TestLockOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVar+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("helper said %q, %v", line, err)
	}

	_, err = Lock(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process "+strconv.Itoa(cmd.Process.Pid)+" ") {
		t.Errorf("got %v, want ErrLocked naming process %d", err, cmd.Process.Pid)
	}

	cmd.Process.Kill()
	cmd.Wait()
	release, err := Lock(dir)
	if err != nil {
		t.Fatalf("the owner was killed, yet: %v", err)
	}
	release()
}

func TestLockInAPlaceThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(filepath.Join(file, "state")); err == nil || errors.Is(err, ErrLocked) {
		t.Fatalf("got %v", err)
	}
}

// A command is waited for, by commands and gateways; a gateway is not.
func TestLockWaitsForCommands(t *testing.T) {
	dir := t.TempDir()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	release, err := LockForCommand(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockForCommand(gone, dir)
	var locked *LockedError
	if !errors.As(err, &locked) || !locked.Command || !errors.Is(err, ErrLocked) ||
		err.Error() != fmt.Sprintf("state folder is in use: another tine command, process %d, uses %s", os.Getpid(), dir) {
		t.Fatalf("error %v", err)
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			release, err := LockForCommand(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case <-done:
			default:
				t.Error("a command did not wait for the one before")
			}
			release()
		})
	}
	close(done)
	release()
	wg.Wait()

	release, err = LockForCommand(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		release, err := Lock(dir)
		if err == nil {
			defer release()
			_, err = LockForCommand(t.Context(), dir)
			if !errors.As(err, &locked) || locked.Command {
				t.Errorf("a command at the folder of a gateway: %v", err)
			}
			err = nil
		}
		got <- err
	}()
	release()
	if err := <-got; err != nil {
		t.Errorf("a gateway after a command: %v", err)
	}
}
