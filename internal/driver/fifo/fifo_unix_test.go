//go:build linux || darwin

package fifo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

func made(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := fifo.Make(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// program opens the program's ends, until the test is over.
func program(t *testing.T, dir string) (in, out *os.File) {
	t.Helper()
	in, out, err := fifo.Program(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		out.Close()
	})
	return in, out
}

// dial opens our ends and a link on them.
func dial(t *testing.T, dir string, torn bool) (*lines.Conn, driver.Stream) {
	t.Helper()
	p, err := fifo.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := lines.NewConn(p, lines.Options{Server: "fs", Limit: 1 << 24, Buffers: lines.NewBuffers(), Torn: torn})
	t.Cleanup(c.Close)
	s, err := c.Dial()
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestMake(t *testing.T) {
	dir := made(t)
	for _, name := range []string{fifo.In, fifo.Out} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || st.Mode() != os.ModeNamedPipe|0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if err := fifo.Make(dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("made over others: %v", err)
	}
}

// A program reads and writes, and goes on when the gateway at the other ends is gone
// and another comes.
func TestOverTheGateway(t *testing.T) {
	dir := made(t)
	in, out := program(t, dir)
	cmd := exec.Command("cat")
	cmd.Stdin, cmd.Stdout = in, out
	_, s := dial(t, dir, false)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	in.Close()
	out.Close()
	big := strings.Repeat("x", 1<<20)
	for n := range 3 {
		message := fmt.Appendf(nil, `{"n":%d,"big":%q}`, n, big)
		go s.WriteFrame(context.Background(), bytes.Clone(message))
		if got, err := s.ReadFrame(); err != nil || !bytes.Equal(bytes.TrimSpace(got), message) {
			t.Fatalf("round %d: got %d bytes, %v", n, len(got), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, s = dial(t, dir, true)
	}
}

// What a program wrote before its end is read, and then there is no more, though
// another process has the ends open.
func TestEnd(t *testing.T) {
	dir := made(t)
	_, out := program(t, dir)
	c, s := dial(t, dir, false)
	if _, err := out.WriteString(`{"last":"words"}` + "\n" + `{"half":`); err != nil {
		t.Fatal(err)
	}
	c.End()
	if got, err := s.ReadFrame(); err != nil || !strings.Contains(string(got), "words") {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := s.ReadFrame(); !errors.Is(err, io.EOF) {
		t.Errorf("got %s, %v", got, err)
	}
	if err := s.WriteFrame(t.Context(), []byte(`{}`)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("written: %v", err)
	}
}

// A program that does not read does not hold up a writer that gives up.
func TestFullPipe(t *testing.T) {
	dir := made(t)
	program(t, dir)
	_, s := dial(t, dir, false)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- s.WriteFrame(ctx, bytes.Repeat([]byte("1"), 1<<20)) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOpenOfOthers(t *testing.T) {
	file := func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, prepare := range map[string]func(t *testing.T) string{
		"nothing there": func(t *testing.T) string { return t.TempDir() },
		"no folder":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") },
		"half": func(t *testing.T) string {
			dir := made(t)
			program(t, dir)
			if err := os.Remove(filepath.Join(dir, fifo.In)); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"plain files": func(t *testing.T) string {
			dir := t.TempDir()
			file(t, filepath.Join(dir, fifo.In))
			file(t, filepath.Join(dir, fifo.Out))
			return dir
		},
		"a link": func(t *testing.T) string {
			dir, other := t.TempDir(), made(t)
			program(t, other)
			for _, name := range []string{fifo.In, fifo.Out} {
				if err := os.Symlink(filepath.Join(other, name), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		},
		"a file for the folder": func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			file(t, path)
			return path
		},
		"no program at the other end": made,
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := fifo.Open(prepare(t)); err == nil {
				p.Close()
				t.Error("opened")
			} else if !fifo.Unusable(err) {
				t.Errorf("not reported as unusable: %v", err)
			}
		})
	}
	for _, err := range []error{syscall.EMFILE, syscall.EACCES, syscall.ENOMEM, nil} {
		if fifo.Unusable(err) {
			t.Errorf("%v: unusable", err)
		}
	}
}
