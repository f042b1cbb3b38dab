package journal

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.followers) != 0 {
		t.Errorf("%d followers are left", len(r.followers))
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
