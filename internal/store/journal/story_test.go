package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// numbered is the n-th call of a session.
func numbered(session string, n, size int) Entry {
	e := sample()
	e.Session = session
	e.Params = fmt.Appendf(nil, `{"n":%d,"size":%d,"trap":[{"x":1,"session":"%s"}]}`, n, size, "other")
	e.Result = []byte(`"` + strings.Repeat("r", size) + `"`)
	return e
}

// call appends one and returns its Seq.
func (r *rig) call(session string, n, size int) int64 {
	r.t.Helper()
	e := numbered(session, n, size)
	if err := r.Append(&e); err != nil {
		r.t.Fatal(err)
	}
	return e.Seq
}

// checked returns the number of a call that was told, and that it is whole.
func checked(e *Entry, session string) (n int, err error) {
	var p struct{ N, Size int }
	if err := json.Unmarshal(e.Params, &p); err != nil {
		return 0, fmt.Errorf("params of %s: %w", e.ID, err)
	}
	if want := numbered(session, p.N, p.Size); !bytes.Equal(e.Result, want.Result) || !bytes.Equal(e.Params, want.Params) || e.Session != session || e.ID != store.CallID(e.Seq) || e.Name != want.Name {
		return 0, fmt.Errorf("call %d of %s is not whole: %d bytes of result, session %s, %s", p.N, session, len(e.Result), e.Session, e.ID)
	}
	return p.N, nil
}

// story returns the numbers of the calls of a session.
func (r *rig) story(session string, until int64) (told []int) {
	r.t.Helper()
	last := int64(0)
	err := r.Story(context.Background(), session, until, func(e Entry) error {
		if e.Seq <= last || until >= 0 && e.Seq > until {
			r.t.Errorf("%s: call %d after %d, until %d", session, e.Seq, last, until)
		}
		last = e.Seq
		n, err := checked(&e, session)
		told = append(told, n)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return told
}

func sameNumbers(t testing.TB, what string, got []int, from, to int) {
	t.Helper()
	for i, n := range got {
		if n != from+i {
			t.Fatalf("%s: call %d where %d should be; %d calls, want %d to %d", what, n, from+i, len(got), from, to)
		}
	}
	if len(got) != to-from+1 {
		t.Fatalf("%s: %d calls, want %d to %d", what, len(got), from, to)
	}
}

func only(wanted ...string) func(string) bool {
	return func(session string) bool { return slices.Contains(wanted, session) }
}

func TestStory(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	var seqs []int64
	for n := range 50 {
		seqs = append(seqs, r.call("ses_a", n, n*10))
		r.call("ses_b", n, 1)
		r.call("", n, 1)
	}
	sameNumbers(t, "all", r.story("ses_a", -1), 0, 49)
	sameNumbers(t, "up to one", r.story("ses_a", seqs[20]), 0, 20)
	sameNumbers(t, "up to another's", r.story("ses_a", seqs[20]+1), 0, 20)
	sameNumbers(t, "before it", r.story("ses_a", seqs[0]-1), 0, -1)
	sameNumbers(t, "of nobody", r.story("ses_c", -1), 0, -1)
	sameNumbers(t, "without a session", r.story("", -1), 0, -1)
	if last := r.Last(); last != 150 {
		t.Errorf("last %d", last)
	}

	enough := errors.New("enough")
	if err := r.Story(context.Background(), "ses_a", -1, func(Entry) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("an error of fn: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	told := 0
	err := r.Story(ctx, "ses_a", -1, func(Entry) error {
		if told++; told == 5 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || told != 5 {
		t.Errorf("canceled after 5: %v after %d", err, told)
	}
	j := r.Journal
	r.down()
	if err := j.Story(context.Background(), "ses_a", -1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestStoryWithoutAnIndex has calls that are neither indexed nor in memory.
func TestStoryWithoutAnIndex(t *testing.T) {
	r := newRig(t, Options{SegmentSize: 64 << 10, MaxSize: 512 << 10, Wanted: only("ses_a")})
	n := 0
	add := func(calls int) {
		for range calls {
			r.call("ses_a", n, 10)
			r.call("ses_b", n, 10)
			n++
		}
	}
	add(100)
	r.wholeIndex(r.listed())
	r.ix.fail(errors.New("no space left"))
	add(10)
	testkit.Eventually(t, "a failure is counted", func() bool { return r.Stats().Errors > 0 })
	sameNumbers(t, "in memory", r.story("ses_a", -1), 0, n-1)
	add(maxPending)
	testkit.Eventually(t, "calls are carried over", func() bool { return r.Stats().Kept > 0 })
	sameNumbers(t, "neither", r.story("ses_a", -1), 0, n-1)
	r.crash()
	r.ix.fail(errors.New("still none"))
	r.up()
	sameNumbers(t, "after a restart", r.story("ses_a", -1), 0, n-1)
	add(10)
	sameNumbers(t, "and on", r.story("ses_a", -1), 0, n-1)
	r.ix.fail(nil)
	testkit.Eventually(t, "the index has every call", func() bool { return r.Stats().Lag == 0 })
	sameNumbers(t, "and with one", r.story("ses_a", -1), 0, n-1)
	if len(r.story("ses_b", -1)) >= n {
		t.Error("nothing was dropped")
	}
}

// TestStoryWhileSegmentsGo has every segment carried over and dropped after the
// story has begun, and the calls that come meanwhile as well.
func TestStoryWhileSegmentsGo(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize, Wanted: only("ses_a")})
	const calls = 200
	for n := range calls {
		r.call("ses_a", n, 100)
		r.call("ses_b", n, 100)
	}
	r.wholeIndex(r.listed())
	tell := func(session string) (told []int) {
		err := r.Story(context.Background(), session, -1, func(e Entry) error {
			if len(told) == 20 {
				r.SetLimits(0, 2*minSegmentSize)
				testkit.Eventually(t, "old segments are dropped", func() bool { return r.Stats().Bytes <= 2*minSegmentSize })
			}
			n, err := checked(&e, session)
			told = append(told, n)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	sameNumbers(t, "wanted", tell("ses_a"), 0, calls-1)
	r.SetLimits(0, 0)
	for n := range calls {
		r.call("ses_b", calls+n, 100)
	}
	told := tell("ses_b")
	if len(told) >= calls || !slices.IsSorted(told) {
		t.Errorf("%d calls of a session that is not wanted", len(told))
	}
}

// TestLargerThanTheBound is a result that all of the journal has no room for.
func TestLargerThanTheBound(t *testing.T) {
	const most = 64 << 10
	r := newRig(t, Options{MaxSize: most, Wanted: only("ses_a")})
	for n := range 6 {
		r.call("ses_a", n, n%3*most)
	}
	r.call("ses_a", 6, 10)
	testkit.Eventually(t, "old segments are dropped", func() bool { return r.Stats().Bytes <= most })
	sameNumbers(t, "wanted", r.story("ses_a", -1), 0, 6)
	if s := r.Stats(); s.Kept < 4*most {
		t.Errorf("%+v", s)
	}
	r.again()
	sameNumbers(t, "wanted, after a restart", r.story("ses_a", -1), 0, 6)

	r.call("ses_b", 1, most)
	notes := 0
	r.Story(context.Background(), "ses_b", -1, func(e Entry) error {
		if e.Result == nil && e.Mode == modeMeta && strings.Contains(e.Note, "left out") {
			notes++
		}
		return nil
	})
	if notes != 1 {
		t.Error("what was left out is not said")
	}
}

// TestStoryOfFarMore does not fit into one batch.
func TestStoryOfFarMore(t *testing.T) {
	r := newRig(t, Options{SegmentSize: 8 << 20, Wanted: only("ses_a")})
	for n := range 12 {
		r.call("ses_a", n, n%4*storyBatch/2)
	}
	sameNumbers(t, "in segments", r.story("ses_a", -1), 0, 11)
	r.SetLimits(0, 1<<20)
	testkit.Eventually(t, "old segments are dropped", func() bool { return r.Stats().Bytes <= 1<<20 })
	sameNumbers(t, "carried over", r.story("ses_a", -1), 0, 11)

	// Damage costs what is damaged.
	path := r.kept.path("ses_a")
	b := r.read(path)
	second := bytes.IndexByte(b, '\n') + 1
	b[second+1] = 'x'
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if told := r.story("ses_a", -1); len(told) != 11 || told[1] != 2 {
		t.Errorf("after damage: %v", told)
	}
}

// The last call of a session is known from memory and the index, and where the index
// is behind, nothing is said.
func TestLastOf(t *testing.T) {
	r := newRig(t, Options{})
	want := func(what, session string, seq int64) {
		t.Helper()
		e := sample()
		if got, err := r.LastOf(t.Context(), session, e.Method+"/other"); err != nil || got != seq {
			t.Errorf("%s: the last call of %s is %d, %v, want %d", what, session, got, err, seq)
		}
	}
	want("empty", "ses_a", 0)
	a, b := r.call("ses_a", 1, 10), r.call("ses_b", 1, 10)
	want("at once", "ses_a", a)
	other := numbered("ses_a", 2, 10)
	other.Method += "/other"
	if err := r.Append(&other); err != nil {
		t.Fatal(err)
	}
	want("behind another method", "ses_a", a)
	r.listed() // which waits for the index
	want("indexed", "ses_a", a)
	r.again()
	want("again", "ses_a", a)
	want("again", "ses_b", b)
	r.crash()
	r.reindex()
	r.ix.fail(errors.New("not now"))
	r.up()
	want("without an index", "ses_a", 0)
	c := r.call("ses_a", 3, 10)
	want("without an index", "ses_a", 0)
	r.ix.fail(nil)
	r.again()
	want("with it", "ses_a", c)
}

// One call of a session is found in memory, in the index and in the archive.
func TestOf(t *testing.T) {
	r := newRig(t, Options{SegmentSize: 4 << 10, MaxSize: 32 << 10, Wanted: func(s string) bool { return s == "ses_a" }})
	has := func(what, session string, seq int64, want bool) {
		t.Helper()
		e, ok, err := r.Of(t.Context(), session, seq)
		if err != nil || ok != want || ok && (e.Seq != seq || e.Session != session || e.Method != sample().Method || e.ID != store.CallID(seq)) {
			t.Errorf("%s: call %d of %s is %v, %+v, %v; want %v", what, seq, session, ok, e, err, want)
		}
	}
	a, b := r.call("ses_a", 1, 10), r.call("ses_b", 1, 10)
	for _, at := range []struct {
		what string
		do   func()
	}{
		{"in memory", func() {}},
		{"in the index", func() { r.listed() }},
		{"after a restart", r.again},
	} {
		at.do()
		has(at.what, "ses_a", a, true)
		has(at.what, "ses_b", a, false)
		has(at.what, "ses_b", b, true)
		has(at.what, "ses_a", b+1000, false)
	}
	testkit.Eventually(t, "the first segment is dropped", func() bool {
		r.call("ses_c", 1, 1000)
		r.listed()
		_, ok, _ := r.Of(t.Context(), "ses_b", b)
		return !ok
	})
	has("in the archive", "ses_a", a, true)
	has("in the archive", "ses_b", a, false)
}
