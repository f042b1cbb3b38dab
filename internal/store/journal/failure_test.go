package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

func (r *rig) knownByID(id string) store.Call {
	r.t.Helper()
	testkit.Eventually(r.t, "the index has the call", func() bool { return len(r.known(store.CallFilter{ID: id})) == 1 })
	return r.known(store.CallFilter{ID: id})[0]
}

// TestIndexFails has more calls wait than are kept in memory.
func TestIndexFails(t *testing.T) {
	r := newRig(t, Options{SegmentSize: 64 << 10})
	ids := r.add(10)
	r.wholeIndex(ids)
	r.ix.fail(errors.New("no space left"))
	ids = append(ids, r.add(10)...)
	testkit.Eventually(t, "a failure is counted", func() bool { return r.Stats().Errors >= 2 })
	sameIDs(t, r.listed(), ids) // from memory
	if got := r.get(ids[15]); string(got.Result) != string(sample().Result) {
		t.Errorf("got %+v", got)
	}
	ids = append(ids, r.add(2*maxPending)...)
	r.mu.Lock()
	pending := len(r.pending)
	r.mu.Unlock()
	if pending > maxPending {
		t.Errorf("%d calls in memory", pending)
	}
	if s := r.Stats(); s.Lag != int64(len(ids)-10) {
		t.Errorf("%+v", s)
	}
	newest := r.list(store.CallFilter{Limit: 50})
	if len(newest) != 50 || newest[0].ID != ids[len(ids)-1] {
		t.Errorf("%d calls", len(newest))
	}
	if n := r.log.Count("can't be written"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	r.ix.fail(nil)
	r.wholeIndex(ids)
	if n := r.log.Count("is written again"); n != 1 {
		t.Errorf("%d notes", n)
	}
}

func TestIndexFailsUntilTheEnd(t *testing.T) {
	r := newRig(t, Options{})
	ids := r.add(5)
	r.ix.fail(errors.New("no space left"))
	ids = append(ids, r.add(5)...)
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "calls are not in its index") {
		t.Errorf("close: %v", err)
	}
	r.ix.fail(nil)
	r.up()
	r.wholeIndex(ids)
}

// TestIndexHangs never lets a write to the index return, until it does.
func TestIndexHangs(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	gate := make(chan struct{})
	r.ix.mu.Lock()
	r.ix.gate = gate
	r.ix.mu.Unlock()
	before := r.ix.tries()
	ids := r.add(1)
	testkit.Eventually(t, "the index is tried again", func() bool { return r.ix.tries() > before })
	ids = append(ids, r.add(maxPending+100)...) // would hang here
	tail := r.Tail()
	ids = append(ids, r.add(1)...)
	tail.Follow(context.Background(), func(e Entry) error {
		if e.ID != ids[len(ids)-1] {
			t.Errorf("followed %s", e.ID)
		}
		return errors.New("enough")
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.List(ctx, store.CallFilter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a list with a cancelled context: %v", err)
	}
	close(gate)
	r.wholeIndex(ids)
}

// disk has room for so many bytes and takes what fits of the write that is one
// too many, as a real one does.
type disk struct {
	room    int
	broken  bool // nothing can be cut off either
	refuses bool // no new files
}

type fullFile struct {
	file
	d *disk
}

func (d *disk) create(path string, flag int) (file, error) {
	if d.refuses {
		return nil, fmt.Errorf("create %s: %w", path, syscall.ENOSPC)
	}
	f, err := openFile(path, flag)
	return fullFile{f, d}, err
}

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	if len(b) > f.d.room {
		n, _ := f.file.WriteAt(b[:f.d.room], at)
		f.d.room = 0
		return n, syscall.ENOSPC
	}
	f.d.room -= len(b)
	return f.file.WriteAt(b, at)
}

func (f fullFile) Truncate(size int64) error {
	if f.d.broken {
		return syscall.EIO
	}
	return f.file.Truncate(size)
}

func TestDiskFull(t *testing.T) {
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprint("broken ", broken), func(t *testing.T) {
			d := &disk{room: 1 << 20, broken: broken}
			r := newRig(t, Options{SegmentSize: 64 << 10})
			r.down()
			r.dir += "2"
			r.cre = d.create
			r.up()
			ids := r.add(10)
			for _, room := range []int{0, 1, 100, 300, 5000} {
				d.room = room
				e := sample()
				e.Params = make([]byte, 10000) // no JSON, and longer than what comes after
				if err := r.Append(&e); !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("with room for %d: %v", room, err)
				}
				sameIDs(t, r.listed(), ids)
				d.room = 1 << 20
				ids = append(ids, r.add(1)...)
				sameIDs(t, r.listed(), ids)
			}
			if s := r.Stats(); s.Errors != 5 || s.Bytes > r.onDisk() {
				t.Errorf("%+v", s)
			}
			d.room = 200 // and dies of it
			e := sample()
			if err := r.Append(&e); err == nil {
				t.Error("no error")
			}
			r.crash()
			r.reindex()
			r.up()
			sameIDs(t, r.listed(), ids)
			r.wholeIndex(ids)
			if n := r.list(store.CallFilter{Limit: 1})[0].Seq; n != int64(len(ids)) {
				t.Errorf("seq %d of %d", n, len(ids))
			}
		})
	}
}

func TestNoRoomForANewFile(t *testing.T) {
	d := &disk{room: 1 << 20}
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	r.down()
	r.dir += "2"
	r.cre = d.create
	r.reindex()
	r.up()
	d.refuses = true
	var ids []string
	var err error
	for err == nil && len(ids) < 1000 {
		e := sample()
		if err = r.Append(&e); err == nil {
			ids = append(ids, e.ID)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	d.refuses, d.room = false, 20 // there is a file, but no room for its header
	if err := r.Append(&Entry{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	d.room = 1 << 20
	ids = append(ids, r.add(30)...)
	sameIDs(t, r.listed(), ids)
	r.again()
	r.wholeIndex(ids)
}
