package journal

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
)

func TestFollowersAcrossSegments(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	r.add(30) // before: not for them
	enough := errors.New("enough")
	var wg sync.WaitGroup
	const followers, calls = 10, 300
	got := make([][]string, followers)
	for i := range followers {
		tail := r.Tail()
		wg.Go(func() {
			err := tail.Follow(context.Background(), func(e Entry) error {
				if e.Missed != 0 || e.Result != nil || string(e.Params) != string(sample().Params) || e.Server != "fs" {
					t.Errorf("followed %+v", e)
				}
				if got[i] = append(got[i], e.ID); len(got[i]) == calls {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Error(err)
			}
		})
	}
	ids := r.add(calls)
	wg.Wait()
	for i := range got {
		sameIDs(t, got[i], ids)
	}
	if n := r.hub.Followers(); n != 0 {
		t.Errorf("%d followers are left", n)
	}
}

// TestSlowFollower stops while segments are dropped under it.
func TestSlowFollower(t *testing.T) {
	r := newRig(t, Options{MaxSize: 64 << 10})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, goOn := make(chan struct{}), make(chan struct{})
	var seen []Entry
	var wg sync.WaitGroup
	tail := r.Tail()
	const calls = 3000
	wg.Go(func() {
		tail.Follow(ctx, func(e Entry) error {
			seen = append(seen, e)
			if len(seen) == 1 {
				close(first)
				<-goOn
			}
			if e.Seq == calls {
				return errors.New("all")
			}
			return nil
		})
	})
	r.add(1)
	<-first
	ids := r.add(calls - 1)
	kept := r.listed()
	close(goOn)
	wg.Wait()
	missed, next := int64(0), int64(1)
	for _, e := range seen {
		if e.Seq != next+e.Missed {
			t.Fatalf("seq %d after %d, %d missed", e.Seq, next-1, e.Missed)
		}
		next = e.Seq + 1
		missed += e.Missed
	}
	if missed == 0 || missed+int64(len(seen)) != calls {
		t.Errorf("%d seen, %d missed of %d", len(seen), missed, calls)
	}
	if len(seen) < len(kept) || seen[len(seen)-1].ID != ids[len(ids)-1] {
		t.Errorf("%d seen, %d are kept", len(seen), len(kept))
	}
}

func TestFollowEnds(t *testing.T) {
	r := newRig(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Follow(ctx, func(Entry) error { return nil }) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}

	// One that is cancelled while it has much to tell stops telling.
	ctx, cancel = context.WithCancel(context.Background())
	tail := r.Tail()
	r.add(200)
	n := 0
	if err := tail.Follow(ctx, func(Entry) error { n++; cancel(); return nil }); !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("%v after %d", err, n)
	}

	j := r.Journal
	go func() { done <- j.Follow(context.Background(), func(Entry) error { return nil }) }()
	r.down()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestFollowHasWhatListHas compares the two, also where params are cut and
// lines are damaged.
func TestFollowHasWhatListHas(t *testing.T) {
	r := newRig(t, Options{})
	tail := r.Tail()
	for _, n := range []int{0, 10, listedParams + 1, 10, 3 << 20, 10} {
		e := sample()
		e.Params = make([]byte, n)
		for i := range e.Params {
			e.Params[i] = '1'
		}
		e.Result = make([]byte, n/2)
		if err := r.Append(&e); err != nil {
			t.Fatal(err)
		}
	}
	path := r.files()[0]
	b := r.read(path)
	copy(b[tail.at.offset:], "xxxx")
	r.write(path, b)
	tail.next = 1
	var seen []Entry
	tail.Follow(context.Background(), func(e Entry) error {
		if seen = append(seen, e); len(seen) == 5 {
			return errors.New("all")
		}
		return nil
	})
	if seen[0].Missed != 1 {
		t.Errorf("%d missed", seen[0].Missed)
	}
	seen[0].Missed = 0
	all := r.listed()
	for i, e := range seen {
		if e.ID != all[i] {
			t.Fatalf("followed %s, listed %s", e.ID, all[i])
		}
	}
	if got, _, err := (&reader{}).listed(path, r.knownByID(all[2])); err != nil || !reflect.DeepEqual(got, seen[2]) {
		t.Errorf("listed %+v, followed %+v, %v", got, seen[2], err)
	}
}

// toEnd reads a tail to the end.
func (r *rig) toEnd(t *Tail) (ids []string, missed int64) {
	r.t.Helper()
	for {
		entries, gone, more, err := t.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		for i := range entries {
			ids, missed = append(ids, entries[i].ID), missed+entries[i].Missed
		}
		if missed += gone; !more {
			return ids, missed
		}
	}
}

// TestTailAfterEveryCall resumes after each call there is, with and without an index, and
// after a restart.
func TestTailAfterEveryCall(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	ids := r.add(100)
	check := func(when string) {
		t.Helper()
		for seq := range ids {
			tail, ok, err := r.TailAfter(ctx, int64(seq))
			if err != nil || !ok || tail.At() != int64(seq) {
				t.Fatalf("%s, after %d: at %d, %v, %v", when, seq, tail.At(), ok, err)
			}
			if got, missed := r.toEnd(&tail); missed != 0 || !reflect.DeepEqual(got, ids[seq:]) || tail.At() != int64(len(ids)) {
				t.Fatalf("%s, after %d: %v, %d missed, now at %d", when, seq, got, missed, tail.At())
			}
		}
		if tail, ok, err := r.TailAfter(ctx, int64(len(ids))); !ok || err != nil {
			t.Errorf("%s: at the end: %v, %v", when, ok, err)
		} else if got, missed := r.toEnd(&tail); got != nil || missed != 0 {
			t.Errorf("%s: after the end there are %v", when, got)
		}
		for _, seq := range []int64{-1, int64(len(ids)) + 1, 1 << 62} {
			if _, ok, err := r.TailAfter(ctx, seq); ok || err != nil {
				t.Errorf("%s: call %d is one: %v, %v", when, seq, ok, err)
			}
		}
	}
	check("at once")
	r.wholeIndex(ids)
	check("with an index")
	r.again()
	check("after a restart")
	r.ix.fail(errors.New("broken"))
	ids = append(ids, r.add(20)...)
	check("while the index is not written")
	r.ix.fail(nil)
}

// TestTailAfterDroppedCalls counts those that it can't hand out.
func TestTailAfterDroppedCalls(t *testing.T) {
	r := newRig(t, Options{MaxSize: 64 << 10})
	r.add(3000)
	kept := r.listed()
	first, _ := store.CallSeq(kept[0])
	for _, seq := range []int64{0, 1, first - 2, first - 1, first, 2999} {
		tail, ok, err := r.TailAfter(context.Background(), seq)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		got, missed := r.toEnd(&tail)
		if int64(len(got))+missed != 3000-seq || missed < first-1-seq {
			t.Errorf("after %d: %d calls and %d missed; the first that is kept is %d", seq, len(got), missed, first)
		}
	}
}

// TestTailOf hands out the chosen calls alone, and misses no other.
func TestTailOf(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	tail := r.Tail()
	want := map[string][]string{}
	odd := `an "odd" \ näme,"session":"ses_1"`
	for i := range 300 {
		e := sample()
		e.Principal, e.Session = []string{"", "ann", odd}[i%3], []string{"ses_1", "ses_2"}[i%2]
		e.Params = []byte(`{"x":1,"principal":"ann","session":"ses_2"}`)
		if err := r.Append(&e); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{e.Principal + "/", "*/" + e.Session, e.Principal + "/" + e.Session} {
			want[key] = append(want[key], e.ID)
		}
	}
	for key, ids := range want {
		who, session, _ := strings.Cut(key, "/")
		of := &who
		if who == "*" {
			of = nil
		}
		chosen := tail
		chosen.Of(of, session)
		if got, missed := r.toEnd(&chosen); missed != 0 || chosen.At() != 300 || !reflect.DeepEqual(got, ids) {
			t.Errorf("of %q in %q: %d calls, want %d; %d missed; at %d", who, session, len(got), len(ids), missed, chosen.At())
		}
	}
	tail.ToEnd()
	if got, missed := r.toEnd(&tail); got != nil || missed != 0 || tail.At() != 300 {
		t.Errorf("at the end there are %v", got)
	}
}
