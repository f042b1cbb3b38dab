package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
	"go.uber.org/goleak"
)

// With this variable the test binary is a gateway that journals calls and says
// which, until it is killed.
const writeVar = "TINE_TEST_WRITE_JOURNAL"

// With this one it has sessions, and drops segments all the time.
const carryVar = "TINE_TEST_CARRY_JOURNAL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writeVar); dir != "" {
		writeForever(dir)
	}
	if dir := os.Getenv(carryVar); dir != "" {
		carryForever(dir)
	}
	goleak.VerifyTestMain(m)
}

// rig is a journal and its index.
type rig struct {
	*Journal
	t   testing.TB
	dir string // of the journal
	ix  *index
	log *testkit.Log
	opt Options
	now func() time.Time
	cre func(string, int) (file, error)
}

func newRig(t testing.TB, o Options) *rig {
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "journal"), ix: &index{inner: new(memory)}, opt: o, now: time.Now, cre: openFile}
	t.Cleanup(r.down)
	r.up()
	return r
}

func (r *rig) up() {
	r.t.Helper()
	r.log = new(testkit.Log)
	r.opt.Dir, r.opt.Index, r.opt.Log = r.dir, r.ix, r.log.Logger()
	j, err := open(context.Background(), r.opt, func() time.Time { return r.now() }, func(p string, flag int) (file, error) { return r.cre(p, flag) })
	if err != nil {
		r.t.Fatal(err)
	}
	r.Journal = j
}

// down closes what is open.
func (r *rig) down() {
	if r.Journal == nil {
		return
	}
	if err := r.Journal.Close(); err != nil {
		r.t.Error(err)
	}
	r.Journal = nil
}

// crash ends it as a kill would: nothing that was not written gets written.
func (r *rig) crash() {
	r.ix.fail(errors.New("dead"))
	r.Journal.Close()
	r.Journal = nil
	r.ix.fail(nil)
}

// reindex gives it another index, while it is down.
func (r *rig) reindex(calls ...store.Call) {
	m := new(memory)
	if err := m.PutCalls(context.Background(), calls); err != nil {
		r.t.Fatal(err)
	}
	r.ix = &index{inner: m}
}

func (r *rig) again() {
	r.t.Helper()
	r.down()
	r.up()
}

func (r *rig) add(n int) (ids []string) {
	r.t.Helper()
	for range n {
		e := sample()
		if err := r.Append(&e); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

func (r *rig) list(f store.CallFilter) []Entry {
	r.t.Helper()
	all, err := r.List(context.Background(), f)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// listed returns the ids of all calls, the oldest first.
func (r *rig) listed() []string {
	r.t.Helper()
	var ids []string
	for _, e := range r.list(store.CallFilter{Limit: 1 << 20}) {
		ids = append([]string{e.ID}, ids...)
	}
	return ids
}

func (r *rig) get(id string) Entry {
	r.t.Helper()
	e, ok, err := r.Get(context.Background(), id)
	if err != nil || !ok {
		r.t.Fatalf("call %s: %v, %v", id, ok, err)
	}
	return e
}

// wholeIndex checks that the index has the calls, and each at its place.
func (r *rig) wholeIndex(want []string) {
	r.t.Helper()
	testkit.Eventually(r.t, "the index is whole", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.indexed == r.next-1 && r.drop == 0
	})
	calls := r.known(store.CallFilter{Limit: 1 << 20})
	var ids []string
	for _, c := range calls {
		ids = append([]string{c.ID}, ids...)
		if !r.holds(c) {
			r.t.Errorf("call %s is not at %d:%d", c.ID, c.Segment, c.Offset)
		}
	}
	sameIDs(r.t, ids, want)
}

// known returns what the index has.
func (r *rig) known(f store.CallFilter) []store.Call {
	r.t.Helper()
	calls, err := r.ix.Calls(context.Background(), f)
	if err != nil {
		r.t.Fatal(err)
	}
	return calls
}

func (r *rig) files() []string {
	names, _ := filepath.Glob(filepath.Join(r.dir, "*"+suffix))
	return names
}

func (r *rig) read(path string) []byte {
	r.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) write(path string, b []byte) {
	r.t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func sample() Entry {
	return Entry{
		At: time.Date(2026, 11, 3, 4, 5, 6, 789, time.UTC), Principal: "ann", Session: "ses_1", Run: "run_1", Server: "fs", Method: "tools/call", Name: "read_file",
		Duration: 1234 * time.Microsecond, Outcome: "ok", Mode: "full", Trace: "0af7651916cd43dd8448eb211c80319c",
		Params: []byte(`{"name":"read_file","arguments":{"path":"/a"}}`), Result: []byte(`{"content":[{"type":"text","text":"hello"}]}`),
	}
}

type inner = store.Calls

// index can be made to fail or to wait.
type index struct {
	inner
	mu   sync.Mutex
	err  error
	gate chan struct{} // closed when writes may go on
	puts int
}

func (x *index) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = err
}

func (x *index) PutCalls(ctx context.Context, calls []store.Call) error {
	x.mu.Lock()
	err, gate := x.err, x.gate
	x.puts++
	x.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return x.inner.PutCalls(ctx, calls)
}

func (x *index) tries() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.puts
}

func sameIDs(t testing.TB, got, want []string) {
	t.Helper()
	if len(got) == 0 && len(want) == 0 || reflect.DeepEqual(got, want) {
		return
	}
	first := func(s []string) string { return fmt.Sprint(s[:min(3, len(s))], " of ", len(s)) }
	t.Errorf("calls %s, want %s", first(got), first(want))
}
