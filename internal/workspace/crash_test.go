package workspace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/layer"
)

// fill is the content of the file of that number: every 16th is of several parts.
func fill(i int) (io.Reader, int64) {
	size := int64(10 + i%500)
	if i%16 == 0 {
		size = 2*chunkSize + int64(i)
	}
	return io.LimitReader(&repeated{text: strings.Repeat(fmt.Sprintf("file %d\n", i), 100)}, size), size
}

// repeated reads a text over and over.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	for n := 0; n < len(p); {
		c := copy(p[n:], r.text[r.at:])
		n += c
		r.at = (r.at + c) % len(r.text)
	}
	return len(p), nil
}

// writeUntilKilled is the other process: it says the number of each file when it
// is written.
func writeUntilKilled(dir string) {
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers")})
	if err != nil {
		panic(err)
	}
	s := NewStore(layers, Options{Dir: filepath.Join(dir, "tmp")})
	at := filepath.Join(dir, "w")
	if err := s.Recover(context.Background(), []string{at}, nil, true); err != nil {
		panic(err)
	}
	w, err := s.Open(at)
	if err != nil {
		panic(err)
	}
	begin, _ := strconv.Atoi(os.Getenv("WORKSPACE_TEST_FROM"))
	for i := begin; ; i++ {
		name := fmt.Sprintf("d%d/f%d", i%10, i)
		r, size := fill(i)
		err := w.FS().MkdirAll(fmt.Sprintf("d%d", i%10))
		if err == nil {
			err = w.FS().Write(name, r, size)
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "w")
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers")})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewStore(layers, Options{}).Seed(t.Context(), at, Seed{}); err != nil {
		t.Fatal(err)
	}
	layers.Close()

	last := -1
	for round := range 5 {
		last = killedWriter(t, dir, last+1, 20+37*round)
		layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers")})
		if err != nil {
			t.Fatal(err)
		}
		s := NewStore(layers, Options{Dir: filepath.Join(dir, "tmp")})
		if err := s.Recover(t.Context(), []string{at}, nil, true); err != nil {
			t.Fatal(err)
		}
		w, err := s.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		for i := range last + 1 {
			r, _ := fill(i)
			want, _ := io.ReadAll(r)
			if got, err := read(w.FS(), fmt.Sprintf("d%d/f%d", i%10, i)); err != nil || got != string(want) {
				t.Fatalf("round %d: file %d of %d has %d bytes of %d, %v", round, i, last, len(got), len(want), err)
			}
		}
		v := w.FS().(*treeFS).head.Value()
		checkTotals(t, v.root)
		if v.pending != 0 {
			t.Errorf("%d bytes are pending", v.pending)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		layers.Close()
	}
}

// killedWriter runs the other process until it has printed a number of files, and
// returns the last that it printed.
func killedWriter(t *testing.T, dir string, from, count int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "WORKSPACE_TEST_WRITER="+dir, fmt.Sprint("WORKSPACE_TEST_FROM=", from))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := from - 1
	lines := bufio.NewScanner(out)
	for printed := 0; lines.Scan(); printed++ {
		n, err := strconv.Atoi(lines.Text())
		if err != nil || n != last+1 {
			t.Errorf("the writer printed %q after %d", lines.Text(), last)
		}
		last = n
		if printed == count {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("the writer: %s", stderr.String())
	}
	return last
}
