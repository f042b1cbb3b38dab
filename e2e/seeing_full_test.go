//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
)

// smallDisk makes a folder a disk of its own of so many bytes.
func smallDisk(t *testing.T, dir string, size int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", size))
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip("only root can make a disk; run as root to see what a full one does")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill takes all the space that is left on a folder's disk.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func (g *gateway) metric(t *testing.T, name string) float64 {
	t.Helper()
	r, err := g.record()
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := g.get(t.Context(), "/metrics", r.Token)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("there is no metric %s", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDiskFull fills the disk of the state folder under a running gateway, frees
// it again, and does both a second time: calls are answered all the while.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	web := tellHTTP(t, &teller.Server{})
	g := newGateway(t, "servers:\n  one: {url: "+web+", "+quiet+"}\n  two: {url: "+web+", "+quiet+"}\n")
	smallDisk(t, g.state(), 24<<20)
	t.Cleanup(func() { g.end() }) // before its disk goes
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, g.url+"/mcp")
	small := func(word string) error {
		for i := range 50 {
			// Of all sizes: some fit into what is left of a page and others do not.
			tool := []string{"one__echo", "two__echo"}[i%2]
			text := strings.Repeat("x", []int{0, 3000, 40, 9000, 700}[i%5])
			r, err := s.call(t.Context(), tool, map[string]any{"word": fmt.Sprint(word, i), "text": text})
			if err != nil {
				return err
			}
			if r.IsError || r.text() != text {
				return fmt.Errorf("answered %q", r.text())
			}
		}
		return nil
	}
	said := func() int {
		log, err := os.ReadFile(g.logPath())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "not in the journal")
	}
	words := func() map[string]bool {
		all := map[string]bool{}
		for _, c := range g.journal(t, client.CallQuery{}) {
			all[wordOf(t, c)] = true
		}
		return all
	}
	if err := small("before "); err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 2; round++ {
		free := fill(t, g.state())
		lost := g.metric(t, "tine_journal_errors_total")
		if err := small(fmt.Sprintf("full %d ", round)); err != nil {
			t.Errorf("round %d: a call while the disk is full: %v", round, err)
		}
		counted := g.metric(t, "tine_journal_errors_total") - lost
		kept := words()
		missing := 0
		for i := range 50 {
			if !kept[fmt.Sprintf("full %d %d", round, i)] {
				missing++
			}
		}
		t.Logf("round %d: %d of 50 calls are not in the journal", round, missing)
		if missing == 0 || float64(missing) != counted {
			t.Errorf("round %d: %d calls are not in the journal, and %v are counted", round, missing, counted)
		}
		for i := range 50 {
			if !kept[fmt.Sprint("before ", i)] {
				t.Errorf("round %d: call %d of before is no longer there", round, i)
			}
		}
		// Once, for any number of servers, and at most once more when it
		// happens again.
		if n := said(); n < 1 || n > round {
			t.Errorf("round %d: the log says %d times that calls are not in the journal", round, n)
		}
		// A new caller needs a session, which has to last: it is told why there is none.
		r, err := post(t.Context(), g.url+"/mcp/one", nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+
			legacyVersion+`","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
		if err != nil || r.status != http.StatusOK && !strings.Contains(string(r.body), "no space left") {
			t.Errorf("round %d: a new client is answered %d %s %v", round, r.status, r.body, err)
		}
		if status, body, err := g.get(t.Context(), "/readyz", ""); err != nil || status != http.StatusOK {
			t.Errorf("round %d: /readyz %d %s %v", round, status, body, err)
		}
		free()
		if err := small(fmt.Sprintf("after %d ", round)); err != nil {
			t.Fatal(err)
		}
		kept = words()
		for i := range 50 {
			if !kept[fmt.Sprintf("after %d %d", round, i)] {
				t.Errorf("round %d: call %d of after is not in the journal", round, i)
			}
		}
	}
	// What is written is whole: another gateway reads the same.
	before := g.journal(t, client.CallQuery{})
	if code, err := g.stop(); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if after := g.journal(t, client.CallQuery{}); len(after) != len(before) {
		t.Errorf("%d calls after a restart, %d before", len(after), len(before))
	}
	if list := g.listed(t, "--failed"); len(list) > 0 {
		t.Errorf("calls failed: %+v", list)
	}
}
