//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// helpLater makes this process a helper of a later protocol, until its requests end.
func helpLater() {
	conn, err := control.Open(os.NewFile(control.Socket, "socket"))
	for err == nil {
		var req control.Request
		if _, err = conn.Read(&req); err == nil {
			err = conn.Write(control.Reply{ID: req.ID, Protocol: control.Protocol + 1, Version: "v1"})
		}
	}
	os.Exit(0)
}

// TestHelperOfLaterProtocol: what can't be talked to is refused by name, before it
// is asked for anything.
func TestHelperOfLaterProtocol(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := startHelper(self, self, Start, os.Geteuid() == 0, true)
	if err == nil {
		h.end()
	}
	if want := fmt.Sprintf("speaks protocol %d, and this tine protocol %d", control.Protocol+1, control.Protocol); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), self) {
		t.Errorf("a helper of a later protocol: %v", err)
	}
}

// TestBinaryIsFound looks for tine-sandbox where it may be, and says where it was
// looked for when it is nowhere.
func TestBinaryIsFound(t *testing.T) {
	from, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = Find("")
	for _, want := range []string{"sandbox_binary", "beside tine", "PATH", "comes with tine", "make build"} {
		if err == nil || !strings.Contains(err.Error(), want) || !isFinal(err) {
			t.Errorf("nowhere: %v", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"/no/such", "/bin/sh", os.Getenv("PATH"), self} {
		_, err = Find(wrong)
		if err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), "sandbox_binary") || !isFinal(err) {
			t.Errorf("not where the config says: %v", err)
		}
	}
	onPath := os.Getenv("PATH") + "/" + binaryName
	if err := os.Symlink(from, onPath); err != nil {
		t.Fatal(err)
	}
	if path, err := Find(""); err != nil || path != onPath {
		t.Errorf("on PATH: %q, %v", path, err)
	}
	named := self + "-sandbox"
	if err := os.Symlink(from, named); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(named) })
	if path, err := Find(""); err != nil || path != named {
		t.Errorf("beside a program of another name: %q, %v", path, err)
	}
}

func isFinal(err error) bool { return errors.Is(err, driver.ErrFinal) }
