package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

func (r *rig) onDisk() (size int64) {
	r.t.Helper()
	for _, f := range r.files() {
		st, err := os.Stat(f)
		if err != nil {
			r.t.Fatal(err)
		}
		size += st.Size()
	}
	return size
}

func TestSizeIsBounded(t *testing.T) {
	const most = 64 << 10
	r := newRig(t, Options{MaxSize: most})
	var ids []string
	for range 40 {
		ids = append(ids, r.add(25)...)
		if size := r.onDisk(); size > most || size != r.Stats().Bytes {
			t.Fatalf("%d bytes of files, %d known, at most %d", size, r.Stats().Bytes, most)
		}
	}
	kept := r.listed()
	if len(kept) < 50 {
		t.Errorf("only %d calls are kept", len(kept))
	}
	sameIDs(t, kept, ids[len(ids)-len(kept):])
	r.wholeIndex(kept)
	if size := r.onDisk(); size < most*6/8 {
		t.Errorf("%d bytes are kept of %d", size, most)
	}
	if _, ok, err := r.Get(context.Background(), ids[0]); ok || err != nil {
		t.Errorf("a dropped call: %v, %v", ok, err)
	}

	r.SetLimits(0, most/4)
	testkit.Eventually(t, "old segments are dropped", func() bool { return r.Stats().Bytes <= most/4 })
	kept = r.listed()
	sameIDs(t, kept, ids[len(ids)-len(kept):])
	r.wholeIndex(kept)
	r.opt.MaxSize = most / 4
	r.again()
	r.wholeIndex(kept)
	if size := r.onDisk(); size > most/4 {
		t.Errorf("%d bytes after a restart", size)
	}
}

func TestLargeCallsAndTheBound(t *testing.T) {
	const most = 1 << 20
	r := newRig(t, Options{MaxSize: most})
	text := func(n int) []byte { return append(append([]byte(`"`), bytes.Repeat([]byte("x"), n)...), '"') }
	add := func(params, result []byte) Entry {
		t.Helper()
		e := sample()
		e.Params, e.Result = params, result
		if err := r.Append(&e); err != nil {
			t.Fatal(err)
		}
		if size := r.onDisk(); size > most {
			t.Fatalf("%d bytes of files", size)
		}
		return r.get(e.ID)
	}
	r.add(100)
	// Larger than a segment: it gets one for itself.
	for range 5 {
		if e := add(text(10), text(most/2)); len(e.Result) != most/2+2 || e.Note != "" {
			t.Errorf("%d bytes, %q", len(e.Result), e.Note)
		}
	}
	// Larger than all that is kept.
	for range 3 {
		e := add(text(most/2), text(most/2))
		if e.Params != nil || e.Result != nil || e.Mode != "meta" || e.Note == "" || e.Name != "read_file" {
			t.Errorf("%d bytes of params and %d of result, mode %s, %q", len(e.Params), len(e.Result), e.Mode, e.Note)
		}
	}
	if n := len(r.listed()); n < 4 {
		t.Errorf("the large ones took all: %d calls are left", n)
	}
	r.wholeIndex(r.listed())
}

func TestAgeIsBounded(t *testing.T) {
	var clock atomic.Int64
	start := time.Now().Add(-24 * time.Hour)
	r := newRig(t, Options{})
	r.down()
	os.RemoveAll(r.dir)
	r.reindex()
	r.now = func() time.Time { return start.Add(time.Duration(clock.Load())) }
	r.opt.MaxAge = 8 * time.Hour
	r.up()
	pass := func(d time.Duration) {
		clock.Add(int64(d))
		r.bound()
	}
	add := func() string {
		t.Helper()
		e := Entry{}
		if err := r.Append(&e); err != nil {
			t.Fatal(err)
		}
		return e.ID
	}

	// One call an hour never fills a segment, and still the old ones go.
	var ids []string
	for range 20 {
		ids = append(ids, add())
		pass(time.Hour)
	}
	kept := r.listed()
	if len(kept) < 7 || len(kept) > 10 {
		t.Errorf("%d calls are kept, want about 8", len(kept))
	}
	sameIDs(t, kept, ids[len(ids)-len(kept):])
	r.wholeIndex(kept)

	// The age is known after a restart, without the files' times.
	r.down()
	for _, f := range r.files() {
		if err := os.Chtimes(f, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	clock.Add(int64(3 * time.Hour))
	r.up()
	kept = r.listed()
	if len(kept) < 4 || len(kept) > 7 {
		t.Errorf("%d calls are kept, want about 5", len(kept))
	}
	r.wholeIndex(kept)

	// The newest goes too when its time has come, and an empty journal rests.
	pass(9 * time.Hour)
	r.wholeIndex(nil)
	before := r.files()
	for range 5 {
		pass(9 * time.Hour)
	}
	if after := r.files(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("files %v, then %v", before, after)
	}
	ids = []string{add()}
	sameIDs(t, r.listed(), ids)
	pass(7 * time.Hour)
	sameIDs(t, r.listed(), ids)
}

// TestListsReadLittle counts the bytes that a list takes from a large line.
func TestListsReadLittle(t *testing.T) {
	e := sample()
	e.Seq = 1
	e.Params = append(append([]byte(`"`), bytes.Repeat([]byte("p"), listedParams-2)...), '"')
	e.Result = append(append([]byte(`"`), bytes.Repeat([]byte("r"), 20<<20)...), '"')
	large, _ := finishLine(appendLine(nil, &e), 1)
	f := &counted{r: bytes.NewReader(append(bytes.Clone(large), large...))}
	sc := scanner{r: f, end: int64(2 * len(large))}
	for range 2 {
		l, err := sc.next()
		if err != nil || l.kind != call || l.length != int64(len(large)) {
			t.Fatalf("%+v, %v", l, err)
		}
		got, err := sc.listed(&l)
		if err != nil || !bytes.Equal(got.Params, e.Params) || got.Result != nil || got.Cut {
			t.Fatalf("%d bytes of params, %v", len(got.Params), err)
		}
	}
	if f.n > 512<<10 {
		t.Errorf("%d bytes were read", f.n)
	}
}

type counted struct {
	r *bytes.Reader
	n int
}

func (c *counted) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.r.ReadAt(b, at)
	c.n += n
	return n, err
}

func TestHugeCalls(t *testing.T) {
	r := newRig(t, Options{})
	huge := func(n int) []byte {
		return append(append([]byte("[\n\""), bytes.Repeat([]byte("h"), n)...), "\"\n]"...)
	}
	var ids []string
	for _, size := range []struct{ params, result int }{{10, 40 << 20}, {20 << 20, 10}, {listedParams - 6, 5}, {listedParams - 5, 5}} {
		e := sample()
		e.Params, e.Result = huge(size.params), huge(size.result)
		if err := r.Append(&e); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
		got := r.get(e.ID)
		if len(got.Params) != len(e.Params) || len(got.Result) != len(e.Result) || !json.Valid(got.Params) || !json.Valid(got.Result) {
			t.Errorf("%d and %d bytes came back", len(got.Params), len(got.Result))
		}
		listed := r.list(store.CallFilter{Limit: 1})[0]
		if cut := len(e.Params) > listedParams; listed.Cut != cut || (listed.Params == nil) != cut || listed.Result != nil {
			t.Errorf("listed with %d bytes, cut %v", len(listed.Params), listed.Cut)
		}
	}
	ids = append(ids, r.add(5)...)
	r.down()
	r.reindex()
	r.up()
	sameIDs(t, r.listed(), ids)
	r.wholeIndex(ids)
}
