//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// freeAddress is a loopback address that nothing listens at. It is below the ports that
// the system gives to connections, and nobody here gets it a second time.
func freeAddress() (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", 20_000+nextPort.Add(1)%12_000)
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", err
}

var nextPort atomic.Uint32

func init() { nextPort.Store(rand.Uint32N(12_000)) }

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
