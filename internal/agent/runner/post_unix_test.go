//go:build linux || darwin

package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/testkit"
)

// hearer is a listener that hears what is posted as well.
type hearer struct{ listener }

func (h *hearer) Hear(event []byte) []executor.Event {
	return []executor.Event{executor.Text("posted " + string(event))}
}

// heardOf follows a program with a hearer.
func heardOf(t *testing.T, p *program, told int) (lines []string, end ending) {
	t.Helper()
	end, err := p.follow(t.Context(), &hearer{}, told, func(events []executor.Event) error {
		for _, e := range events {
			lines = append(lines, string(e.Data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, end
}

// What was posted before the line that ends a turn is told in that turn, and before the
// line; and a reading after a restart tells the same.
func TestPostedBeforeTheEnd(t *testing.T) {
	for range 20 {
		h := newHost(t, t.TempDir())
		plan := script(t, `until [ -e go1 ]; do sleep 0.001; done; echo turn; exec sleep 1000`)
		p := begin(t, h, "run_1", plan)
		var all sync.WaitGroup
		all.Go(func() {
			for n := range 10 {
				if err := p.posts.add(fmt.Appendf(nil, `{"n": %d}`, n)); err != nil {
					t.Error(err)
				}
			}
			if err := os.WriteFile(filepath.Join(plan.Dir, "go1"), nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		lines, end := heardOf(t, p, 0)
		all.Wait()
		if !end.Goes || len(lines) != 11 || !strings.Contains(lines[10], "turn") {
			t.Fatalf("it told %q, and ended with %+v", lines, end)
		}
		if err := p.posts.add([]byte(`{}`)); !errors.Is(err, errPostedLate) {
			t.Errorf("after the turn: %v", err)
		}
		p.leave()
		if again, _ := heardOf(t, adopted(t, h, "run_1"), 0); !slices.Equal(again, lines) {
			t.Errorf("read again it told %q", again)
		}
		p.kill()
		<-p.tended
	}
}

// An event that was cut off by a kill was not taken, and spoils no other.
func TestPostedAfterATornEvent(t *testing.T) {
	h := newHost(t, t.TempDir())
	p := begin(t, h, "run_1", script(t, "exec sleep 1000"))
	if err := os.WriteFile(filepath.Join(p.dir, postedName), []byte(`{"n":1}`+"\n"+`{"n":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.posts.add([]byte(`{"n":3}`)); err != nil {
		t.Fatal(err)
	}
	p.kill()
	lines, _ := heardOf(t, p, 0)
	if len(lines) != 3 || !strings.Contains(lines[0], `{\"n\":1}`) || !strings.Contains(lines[2], `{\"n\":3}`) {
		t.Errorf("it told %q", lines)
	}
}

func TestPostedTooMuch(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.limits.posted, h.limits.line = 40, 30
	p := begin(t, h, "run_1", script(t, "exec sleep 1000"))
	long := []byte(`{"text": "` + strings.Repeat("a", 30) + `"}`)
	for want, event := range map[string][]byte{"may have 30": long, "can't be read": []byte(`{"n": `)} {
		if err := p.posts.add(event); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", event, err)
		}
	}
	fits := []byte(`{"n":1234567890123}`)
	if err := errors.Join(p.posts.add(fits), p.posts.add(fits)); err != nil {
		t.Error(err)
	}
	var e *api.Error
	if err := p.posts.add(fits); !errors.As(err, &e) || e.Kind != api.KindRefused || !strings.Contains(e.Message, "40 bytes") {
		t.Errorf("the third: %v", err)
	}
	p.kill()
	testkit.Within(t, "its end", p.ended)
	if lines, _ := heardOf(t, p, 0); len(lines) != 2 {
		t.Errorf("it told %q", lines)
	}
}

type quiet struct{ listener }

// A program of an earlier run that another one takes the place of is answered at once, and
// what it posts is not told in the next run.
func TestPostedByTheProgramBefore(t *testing.T) {
	h := newHost(t, t.TempDir())
	p, err := h.start("run_2", pass{Session: "ses_1", Run: "run_2"}, script(t, "exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	finally(t, p)
	w := &work{c: Claim{Run: "run_2"}, over: make(chan struct{}), ready: make(chan struct{}), another: make(chan struct{})}
	r := &Runner{active: map[string]*work{"run_2": w}}
	event := []byte(`{"event_type": "message", "content": "hello"}`)
	before, own := make(chan error, 1), make(chan error, 1)
	go func() { before <- r.Post(t.Context(), "run_2", "run_1", event) }()
	go func() { own <- r.Post(t.Context(), "run_2", "run_2", event) }()
	w.anew()
	if err := testkit.Within(t, "the answer to the program before", before); !errors.Is(err, errPostedLate) {
		t.Errorf("the program before: %v", err)
	}
	w.p, w.reader = p, &hearer{}
	w.hears()
	if err := testkit.Within(t, "the answer to the program", own); err != nil {
		t.Errorf("the program: %v", err)
	}
	if err := r.Post(t.Context(), "run_2", "run_1", event); !errors.Is(err, errPostedLate) {
		t.Errorf("the program before, once the other is there: %v", err)
	}
	w.reader = &quiet{}
	w.hears()
	if err := r.Post(t.Context(), "run_2", "run_2", event); err == nil || errors.Is(err, errPostedLate) {
		t.Errorf("a program whose executor hears nothing: %v", err)
	}
}

// A program whose event could not be written down is told so, and not where.
func TestPostedInVain(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, postedName), 0o700); err != nil { // no file can be there
		t.Fatal(err)
	}
	err := newPosts(dir, "run_1", defaultLimits).add([]byte(`{"n":1}`))
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != api.KindInfrastructure || !e.Retryable || strings.Contains(e.Message, dir) || !strings.Contains(e.Message, "is a directory") {
		t.Errorf("it was told %v", err)
	}
}
