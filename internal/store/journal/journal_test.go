package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestWhatIsAppendedIsThere(t *testing.T) {
	r := newRig(t, Options{})
	long := strings.Repeat("ä", maxText)
	for name, change := range map[string]func(e, want *Entry){
		"plain":       func(e, want *Entry) {},
		"bare":        func(e, want *Entry) { *e = Entry{At: e.At}; *want = *e },
		"a given id":  func(e, want *Entry) { e.ID = `odd "id", here` },
		"another day": func(e, want *Entry) { e.At = e.At.In(time.FixedZone("x", 3600)) },
		"no such day": func(e, want *Entry) { e.At = time.Unix(1<<50, 0); want.At = time.Time{} },
		"odd texts": func(e, want *Entry) {
			e.Name, e.Error = "a\"b\\c\nd\x00\x1f\u2028,\"sizes\":[9,9]", "bad \xff bytes"
			want.Name, want.Error = e.Name, "bad \uFFFD bytes"
		},
		"long texts": func(e, want *Entry) { e.Error = long; want.Error = clip(long) },
		"escapes":    func(e, want *Entry) { e.Error = strings.Repeat("\x01", maxText); want.Error = e.Error },
		"lines": func(e, want *Entry) {
			e.Params, e.Result = []byte("{\n\"a\":\r\n1}"), []byte("\n[\n]\n")
			want.Params, want.Result = []byte("{ \"a\":  1}"), []byte(" [ ] ")
		},
		"no JSON": func(e, want *Entry) {
			e.Params, e.Result = []byte("{\"a\n\":"), []byte("\xff\x00\",\"result\":}\n")
			want.Params, want.Result = []byte(`"{\"a \":"`), []byte(`"`+"\uFFFD"+`\u0000\",\"result\":} "`)
		},
		"no params":  func(e, want *Entry) { e.Params, want.Params = nil, nil },
		"no result":  func(e, want *Entry) { e.Result, want.Result = []byte{}, nil },
		"big number": func(e, want *Entry) { e.Params = []byte(`12345678901234567890`); want.Params = e.Params },
		"set by the reader": func(e, want *Entry) {
			e.Seq, e.Note, e.Cut, e.Missed = 99, "x", true, 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, want := sample(), sample()
			change(&e, &want)
			if err := r.Append(&e); err != nil {
				t.Fatal(err)
			}
			if want.At.IsZero() {
				want.At = r.get(e.ID).At
			}
			want.Seq, want.ID = e.Seq, store.CallID(e.Seq)
			same := func(got Entry) {
				t.Helper()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				for _, b := range [][]byte{got.Params, got.Result} {
					if b != nil && !json.Valid(b) {
						t.Errorf("%q is no JSON", b)
					}
				}
			}
			same(r.get(e.ID))
			want.Result = nil
			same(r.list(store.CallFilter{Limit: 1})[0])
		})
	}
	all := r.listed()
	r.again()
	sameIDs(t, r.listed(), all)
	r.wholeIndex(all)
	for _, id := range []string{"", "call_none", "call_1", "call_0000000000ff", "call_00000000000A"} {
		if _, ok, err := r.Get(context.Background(), id); ok || err != nil {
			t.Errorf("the call %q that never was: %v, %v", id, ok, err)
		}
	}
}

func TestLinesAreJSON(t *testing.T) {
	r := newRig(t, Options{})
	r.add(2)
	e := sample()
	e.Name, e.Params = "\x00\"\n\\é\u2028", []byte("{\n}")
	if err := r.Append(&e); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(r.read(r.files()[0])), "\n"), "\n")
	if len(lines) != 4 {
		t.Errorf("%d lines, want a header and 3", len(lines))
	}
	for _, l := range lines {
		if !json.Valid([]byte(l)) {
			t.Errorf("no JSON: %s", l)
		}
	}
	for i, want := range []string{`^\{"journal":1,"segment":1,"next":1,"made":`, `^\{"id":"call_000000000001","seq":1,"at":"2026-11-03T04:05:06.000000789Z","principal":"ann",.*"sizes":\[46,44\],"params":\{.*\},"result":\{.*\}\}$`} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d is %s", i, lines[i])
		}
	}
}

func TestIDsAndSeqs(t *testing.T) {
	r := newRig(t, Options{SegmentSize: 8 << 10})
	ids := make(map[string]bool)
	seq := int64(0)
	shape := regexp.MustCompile(`^call_[0-9a-f]{12}$`)
	for range 4 {
		for range 100 {
			e := Entry{}
			if err := r.Append(&e); err != nil {
				t.Fatal(err)
			}
			if !shape.MatchString(e.ID) || ids[e.ID] || e.ID != store.CallID(e.Seq) {
				t.Fatalf("id %q is odd or there already", e.ID)
			}
			if e.Seq != seq+1 || e.At.IsZero() {
				t.Fatalf("seq %d after %d, at %v", e.Seq, seq, e.At)
			}
			ids[e.ID], seq = true, e.Seq
		}
		r.again()
	}
	// Also when neither the files nor the index have a call left.
	r.now = func() time.Time { return time.Now().Add(time.Hour) }
	r.SetLimits(time.Minute, 0)
	testkit.Eventually(t, "one segment is left", func() bool { return r.Stats().Segments == 1 })
	r.wholeIndex(nil)
	r.again()
	e := Entry{}
	if err := r.Append(&e); err != nil || e.Seq != seq+1 {
		t.Errorf("seq %d after %d, %v", e.Seq, seq, err)
	}
}

func TestFiltersReachWhatIsNotIndexed(t *testing.T) {
	r := newRig(t, Options{})
	ann, bob := "ann", "bob"
	at := sample().At
	add := func() {
		for i := range 40 {
			e := sample()
			e.At = at.Add(time.Duration(i) * time.Second)
			e.Principal = []string{"ann", "bob"}[i%2]
			e.Server = fmt.Sprint("s", i%3)
			e.Session = []string{"", "ses_1"}[i/2%2]
			e.Run = []string{"", "run_1", "", "run_\"2"}[i/3%4]
			if i%5 == 0 {
				e.Outcome = "timeout"
			}
			if err := r.Append(&e); err != nil {
				t.Fatal(err)
			}
		}
	}
	add()
	r.list(store.CallFilter{})
	r.ix.fail(errors.New("full"))
	testkit.Eventually(t, "a failure is counted", func() bool { add(); return r.Stats().Errors > 0 })
	before := r.Stats()
	var lists [][]Entry
	filters := []store.CallFilter{
		{}, {Limit: 3}, {Limit: 1000}, {Principal: &ann}, {Principal: &bob, Failed: true}, {Session: "ses_1"}, {Server: "s2", Limit: 50},
		{Run: "run_1", Limit: 1000}, {Run: `run_"2`, Failed: true}, {Run: "run_3"},
		{Servers: []string{"s0", "s1"}}, {Servers: []string{}}, {Failed: true, Limit: 1000}, {Since: at.Add(30 * time.Second), Limit: 1000},
		{Before: 45}, {Before: 45, Limit: 10}, {Before: 1},
	}
	for _, f := range filters {
		lists = append(lists, r.list(f))
	}
	for i, f := range filters {
		if want := f.Run == "run_1" || f.Run == `run_"2`; f.Run != "" && (len(lists[i]) > 0) != want {
			t.Errorf("%d calls of run %s", len(lists[i]), f.Run)
		}
	}
	if before.Lag < 40 {
		t.Errorf("lag %d", before.Lag)
	}
	r.ix.fail(nil)
	testkit.Eventually(t, "the index has every call", func() bool { return r.Stats().Lag == 0 })
	for i, f := range filters {
		if got := r.list(f); !reflect.DeepEqual(got, lists[i]) {
			t.Errorf("%+v: %d calls, while the index failed %d", f, len(got), len(lists[i]))
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	r := newRig(t, Options{SegmentSize: 16 << 10})
	ctx, cancel := context.WithCancel(context.Background())
	var followers sync.WaitGroup
	const writers, each = 8, 200
	for range 3 {
		tail := r.Tail()
		followers.Go(func() {
			next := int64(1)
			err := tail.Follow(ctx, func(e Entry) error {
				if e.Seq != next || e.Missed != 0 {
					t.Errorf("followed %d, want %d, %d missed", e.Seq, next, e.Missed)
				}
				if next++; next > writers*each {
					return errors.New("all")
				}
				return nil
			})
			if err == nil || err.Error() != "all" {
				t.Error(err)
			}
		})
	}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				e := sample()
				if err := r.Append(&e); err != nil {
					t.Error(err)
				}
				if e.Seq%50 == 0 {
					if got, ok, err := r.Get(ctx, e.ID); err != nil || !ok || got.Seq != e.Seq {
						t.Errorf("own call %s: %v, %v", e.ID, ok, err)
					}
					if _, err := r.List(ctx, store.CallFilter{Server: "fs", Limit: 5}); err != nil {
						t.Error(err)
					}
					r.Stats()
					r.SetLimits(time.Hour, 1<<30)
				}
			}
		})
	}
	wg.Wait()
	followers.Wait()
	cancel()
	ids := r.listed()
	if len(ids) != writers*each {
		t.Errorf("%d calls, want %d", len(ids), writers*each)
	}
	r.wholeIndex(ids)
	if s := r.Stats(); s.Segments < 10 || s.Errors != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAfterClosing(t *testing.T) {
	r := newRig(t, Options{})
	ids := r.add(3)
	j := r.Journal
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.ix.LastCall(context.Background()); !ok || err != nil {
		t.Errorf("Close did not write the index: %v, %v", ok, err)
	}
	if err := j.Append(&Entry{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if _, err := j.List(context.Background(), store.CallFilter{}); !errors.Is(err, ErrClosed) {
		t.Errorf("List: %v", err)
	}
	if _, _, err := j.Get(context.Background(), ids[0]); !errors.Is(err, ErrClosed) {
		t.Errorf("Get: %v", err)
	}
	if err := j.Follow(context.Background(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Follow: %v", err)
	}
}

func TestOnlyTheOwnerReadsIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes there")
	}
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	r.add(50)
	for path, want := range map[string]os.FileMode{r.dir: 0o700, r.files()[0]: 0o600, r.files()[1]: 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

func TestFolderThatCannotBe(t *testing.T) {
	r := newRig(t, Options{})
	o := r.opt
	o.Dir = filepath.Join(r.files()[0], "in a file")
	if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("got %v", err)
	}
}
