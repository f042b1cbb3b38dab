//go:build unix

package e2e

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// freeAddress is a loopback address that was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// accepts waits until a server listens at addr.
func accepts(addr string) error {
	return eventually(func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// serve runs a server program that listens at an address given to args, and
// returns the address when it accepts connections.
func serve(t *testing.T, program string, args func(addr string) []string, env ...string) string {
	t.Helper()
	addr, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args(addr)...)
	cmd.Env = append(toolEnv(t), env...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v:\n%s", filepath.Base(program), cmd.Args[1:], tail(out.String(), 4<<10))
		}
	})
	if err := accepts(addr); err != nil {
		t.Fatal(err)
	}
	return addr
}
