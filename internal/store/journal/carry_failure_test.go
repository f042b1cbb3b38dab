package journal

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

// shelf is a disk for the archive alone.
type shelf struct {
	room    atomic.Int64
	refuses atomic.Value           // the session whose file can't be opened
	unsafe  atomic.Bool            // nothing can be synced
	opening atomic.Pointer[func()] // called before a file is opened
}

type shelfFile struct {
	file
	s *shelf
}

func (s *shelf) open(path string, flag int) (file, error) {
	if filepath.Base(filepath.Dir(path)) != keptFolder {
		return openFile(path, flag)
	}
	if fn := s.opening.Load(); fn != nil {
		(*fn)()
	}
	if s.refuses.Load() == strings.TrimSuffix(filepath.Base(path), suffix) {
		return nil, syscall.ENOSPC
	}
	f, err := openFile(path, flag)
	if err != nil {
		return nil, err
	}
	return shelfFile{f, s}, nil
}

func (f shelfFile) WriteAt(b []byte, at int64) (int, error) {
	left := f.s.room.Add(-int64(len(b)))
	if left >= 0 {
		return f.file.WriteAt(b, at)
	}
	n, _ := f.file.WriteAt(b[:max(0, int64(len(b))+left)], at)
	f.s.room.Store(0)
	return n, syscall.ENOSPC
}

func (f shelfFile) Truncate(size int64) error {
	if f.s.unsafe.Load() {
		return syscall.EIO
	}
	return f.file.Truncate(size)
}

func (f shelfFile) Sync() error {
	if f.s.unsafe.Load() {
		return syscall.EIO
	}
	return f.file.Sync()
}

// newShelfRig has room for all in its archive.
func newShelfRig(t *testing.T, o Options) (*rig, *shelf) {
	s := new(shelf)
	s.room.Store(1 << 30)
	r := newRig(t, o)
	r.down()
	r.dir += "2"
	r.cre = s.open
	r.reindex()
	r.up()
	return r, s
}

func TestNoRoomInTheArchive(t *testing.T) {
	const most = 4 * minSegmentSize
	for name, test := range map[string]struct{ harm, mend func(*shelf) }{
		"no bytes":   {func(s *shelf) { s.room.Store(0) }, func(s *shelf) { s.room.Store(1 << 30) }},
		"some bytes": {func(s *shelf) { s.room.Store(2500) }, func(s *shelf) { s.room.Store(1 << 30) }},
		"no file":    {func(s *shelf) { s.refuses.Store("ses_b") }, func(s *shelf) { s.refuses.Store("") }},
		"no syncs":   {func(s *shelf) { s.unsafe.Store(true) }, func(s *shelf) { s.unsafe.Store(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newShelfRig(t, Options{SegmentSize: minSegmentSize, MaxSize: most, Wanted: only("ses_a", "ses_b")})
			n := 0
			add := func(calls int) {
				for range calls {
					for _, session := range []string{"ses_a", "ses_b", "ses_c"} {
						r.call(session, n, n%100)
					}
					n++
				}
			}
			add(30)
			r.settle()
			test.harm(s)
			add(100)
			testkit.Eventually(t, "a failure is counted", func() bool { return r.Stats().Errors > 0 })
			if st := r.Stats(); st.Bytes < 2*most {
				t.Errorf("segments were dropped: %+v", st)
			}
			sameNumbers(t, "ses_a, with no room", r.story("ses_a", -1), 0, n-1)
			for range 3 { // it is tried again, and not said again
				errors := r.Stats().Errors
				signal(r.keep)
				testkit.Eventually(t, "a failure is counted", func() bool { return r.Stats().Errors > errors })
			}
			if warned := r.log.Count("can't be carried over"); warned != 1 {
				t.Errorf("%d warnings", warned)
			}
			if strings.HasPrefix(name, "some") { // and it dies of it
				r.crash()
				r.up()
				test.mend(s)
			} else {
				test.mend(s)
				signal(r.keep)
				testkit.Eventually(t, "the log says that calls are carried over again", func() bool { return r.log.Count("are carried over again") == 1 })
			}
			r.settle()
			add(30)
			r.settle()
			for _, session := range []string{"ses_a", "ses_b"} {
				sameNumbers(t, session, r.story(session, -1), 0, n-1)
			}
			r.again()
			for _, session := range []string{"ses_a", "ses_b"} {
				sameNumbers(t, session+" after a restart", r.story(session, -1), 0, n-1)
				lines := strings.SplitAfter(string(r.read(r.kept.path(session))), "\n")
				for i, l := range lines {
					if slices.Index(lines, l) < i || (l == "") != (i == len(lines)-1) {
						t.Fatalf("%s is kept with doubles or a torn end", session)
					}
				}
			}
		})
	}
}

// TestNobodyWaitsForTheArchive has a disk that hangs while calls are carried
// over: calls are written, told and listed all the same, sessions are forgotten,
// and no segment goes.
func TestNobodyWaitsForTheArchive(t *testing.T) {
	const most = 4 * minSegmentSize
	wanted := new(set)
	wanted.put("ses_a", true)
	wanted.put("ses_b", true)
	r, s := newShelfRig(t, Options{SegmentSize: minSegmentSize, MaxSize: most, Wanted: wanted.has})
	reached, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hang := func() {
		once.Do(func() { close(reached) })
		<-gate
	}
	s.opening.Store(&hang)
	for n := range 200 { // would hang here
		r.call("ses_a", n, 50)
		r.call("ses_b", n, 50)
	}
	<-reached
	if st := r.Stats(); st.Bytes < 2*most {
		t.Errorf("segments were dropped: %+v", st)
	}
	sameNumbers(t, "ses_a", r.story("ses_a", -1), 0, 199)
	if n := len(r.listed()); n != 400 {
		t.Errorf("%d calls are listed", n)
	}
	// It is chosen already, ses_a is being written, and it must not come to be.
	wanted.put("ses_b", false)
	forgotten := make(chan struct{})
	go func() {
		defer close(forgotten)
		r.Forget("ses_b")
	}()
	close(gate)
	<-forgotten
	r.settle()
	sameNumbers(t, "ses_a", r.story("ses_a", -1), 0, 199)
	r.sweep()
	if names := r.keptFiles(); !slices.Equal(names, []string{"ses_a"}) {
		t.Errorf("kept %v", names)
	}
}

// TestForgottenOnTheWay is a session that is forgotten after it was chosen and
// before its calls are written.
func TestForgottenOnTheWay(t *testing.T) {
	r, s := newShelfRig(t, Options{SegmentSize: minSegmentSize, Wanted: only("ses_a", "ses_b")})
	for n := range 100 {
		r.call("ses_a", n, 50)
		r.call("ses_b", n, 50)
	}
	r.Journal.mu.Lock()
	all := passOf(r.segments[:len(r.segments)-1])
	r.Journal.mu.Unlock()
	var once sync.Once
	forget := func() {
		once.Do(func() { r.kept.gone["ses_b"] = true }) // as Forget does when its turn comes
	}
	s.opening.Store(&forget)
	if err := r.carry(all); err != nil {
		t.Fatal(err)
	}
	if names := r.keptFiles(); !slices.Equal(names, []string{"ses_a"}) {
		t.Errorf("kept %v", names)
	}
}

// TestCloseOnTheWay ends a journal that has far more to carry over.
func TestCloseOnTheWay(t *testing.T) {
	r, s := newShelfRig(t, Options{SegmentSize: minSegmentSize, Wanted: only("ses_a", "ses_b", "ses_c")})
	for n := range 100 {
		for _, session := range []string{"ses_a", "ses_b", "ses_c"} {
			r.call(session, n, 50)
		}
	}
	r.wholeIndex(r.listed())
	j := r.Journal
	var once sync.Once
	closed := make(chan error, 1)
	end := func() {
		once.Do(func() {
			go func() { closed <- j.Close() }()
			<-j.closing
		})
	}
	s.opening.Store(&end)
	r.opt.MaxSize = 2 * minSegmentSize
	r.SetLimits(0, r.opt.MaxSize)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if names := r.keptFiles(); !slices.Equal(names, []string{"ses_a"}) {
		t.Errorf("kept %v", names)
	}
	if r.log.Count("WARN") != 0 {
		t.Error("a warning")
	}
	r.Forget("ses_a")
	r.up()
	r.settle()
	for _, session := range []string{"ses_a", "ses_b", "ses_c"} {
		sameNumbers(t, session, r.story(session, -1), 0, 99)
	}
	if err := j.Append(&Entry{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
