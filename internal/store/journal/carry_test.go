package journal

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// set is a set of wanted sessions that can change.
type set struct {
	mu    sync.Mutex
	names map[string]bool
	asked map[string]int
}

func (s *set) has(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = make(map[string]int)
	}
	s.asked[session]++
	return s.names[session]
}

func (s *set) put(session string, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[string]bool)
	}
	s.names[session] = wanted
}

// settle waits until nothing is due, nor being carried over.
func (r *rig) settle() {
	r.t.Helper()
	signal(r.keep)
	testkit.Eventually(r.t, "nothing is due", func() bool {
		j := r.Journal
		j.mu.Lock()
		defer j.mu.Unlock()
		room := max(0, j.segmentLimit()-j.segments[len(j.segments)-1].size)
		return j.tooMany(room) == 0 && sum(j.segments) <= j.maxSize.Load()
	})
}

func (r *rig) keptFiles() (names []string) {
	files, _ := os.ReadDir(filepath.Join(r.dir, keptFolder))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), suffix))
	}
	return names
}

// TestWantedStoriesAreWhole is a model of sessions that come and go, with
// segments that hold a few calls each.
func TestWantedStoriesAreWhole(t *testing.T) {
	for seed := range torture.Or[uint64](2, 6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			wanted := new(set)
			r := newRig(t, Options{SegmentSize: minSegmentSize, MaxSize: 8 * minSegmentSize, Wanted: wanted.has})
			type model struct {
				name   string
				wanted bool
				seqs   []int64
			}
			var open []*model
			born := 0
			for range 400 {
				switch p := rnd.IntN(100); {
				case p < 8 || len(open) == 0:
					m := &model{name: fmt.Sprintf("ses_%d", born), wanted: rnd.IntN(2) == 0}
					if born++; rnd.IntN(5) == 0 { // is never asked for
						m.name, m.wanted = "Ses/../"+m.name, false
					}
					wanted.put(m.name, m.wanted)
					open = append(open, m)
				case p < 12:
					i := rnd.IntN(len(open))
					wanted.put(open[i].name, false)
					if rnd.IntN(2) == 0 {
						r.Forget(open[i].name)
					}
					open = slices.Delete(open, i, i+1)
				case p < 13:
					r.again()
				case p < 15:
					r.crash()
					r.up()
				case p < 16:
					r.SetLimits(0, int64(4+rnd.IntN(8))*minSegmentSize)
				case p < 22:
					m := open[rnd.IntN(len(open))]
					if !m.wanted || len(m.seqs) == 0 {
						continue
					}
					n := rnd.IntN(len(m.seqs))
					sameNumbers(t, m.name, r.story(m.name, m.seqs[n]), 0, n)
				default:
					for range rnd.IntN(20) {
						m := open[rnd.IntN(len(open))]
						size := rnd.IntN(300)
						if rnd.IntN(50) == 0 {
							size = rnd.IntN(3 * minSegmentSize)
						}
						m.seqs = append(m.seqs, r.call(m.name, len(m.seqs), size))
					}
				}
			}
			r.settle()
			r.sweep()
			var keep []string
			for _, m := range open {
				told := r.story(m.name, -1)
				if m.wanted {
					sameNumbers(t, m.name, told, 0, len(m.seqs)-1)
					keep = append(keep, m.name)
				} else {
					sameNumbers(t, m.name+", not wanted", told, len(m.seqs)-len(told), len(m.seqs)-1)
				}
			}
			for _, name := range r.keptFiles() {
				if !slices.Contains(keep, name) {
					t.Errorf("%s is kept and not wanted", name)
				}
			}
			for session := range wanted.asked {
				if strings.HasPrefix(session, "Ses") || session == "" {
					t.Errorf("asked for %q", session)
				}
			}
			var size int64
			for _, name := range r.keptFiles() {
				size += int64(len(r.read(r.kept.path(name))))
			}
			if s := r.Stats(); s.Kept != size {
				t.Errorf("%d bytes are kept, %d known", size, s.Kept)
			}
		})
	}
}

// TestCarriedTwice ends carrying over at bytes of the archive, and has it begun
// again with all the segments still there.
func TestCarriedTwice(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize, Wanted: only("ses_a", "ses_b")})
	for n := range 60 {
		r.call("ses_a", n, n)
		if n%2 == 0 {
			r.call("ses_b", n/2, 2*n)
		}
		r.call("ses_c", n, 100)
	}
	r.down()
	before := make(map[string][]byte)
	for _, f := range r.files() {
		before[f] = r.read(f)
	}
	known := r.ix.inner.(*memory)
	r.opt.MaxSize = 2 * minSegmentSize
	// run does it with what an earlier one has left, and returns what is kept.
	run := func(left map[string][]byte) map[string][]byte {
		t.Helper()
		for f, b := range before {
			r.write(f, b)
		}
		os.RemoveAll(filepath.Join(r.dir, keptFolder))
		if err := os.Mkdir(filepath.Join(r.dir, keptFolder), 0o700); err != nil {
			t.Fatal(err)
		}
		for session, b := range left {
			r.write(filepath.Join(r.dir, keptFolder, session+suffix), b)
		}
		r.ix = &index{inner: known.clone()}
		r.up()
		defer r.down()
		r.settle()
		sameNumbers(t, "ses_a", r.story("ses_a", -1), 0, 59)
		sameNumbers(t, "ses_b", r.story("ses_b", -1), 0, 29)
		kept := make(map[string][]byte)
		var size int64
		for _, session := range r.keptFiles() {
			kept[session] = r.read(r.kept.path(session))
			size += int64(len(kept[session]))
		}
		if s := r.Stats(); s.Kept != size {
			t.Errorf("%d bytes are kept, %d known", size, s.Kept)
		}
		return kept
	}
	want := run(nil)
	if len(want) != 2 || len(want["ses_a"]) < minSegmentSize {
		t.Fatalf("kept %d files", len(want))
	}
	a := want["ses_a"]
	end := bytes.IndexByte(a, '\n')
	cuts := []int{0, 1, end, end + 1, end + 2, len(a) - 1, len(a)}
	for cut := 500; cut < len(a); cut += 1201 {
		cuts = append(cuts, cut)
	}
	for _, cut := range cuts {
		left := map[string][]byte{"ses_a": a[:cut]}
		if cut%2 == 0 {
			left["ses_b"] = want["ses_b"]
		}
		got := run(left)
		for session := range want {
			if !bytes.Equal(got[session], want[session]) {
				t.Fatalf("cut at %d: %d bytes of %s, want %d", cut, len(got[session]), session, len(want[session]))
			}
		}
	}
}

// TestStoriesAtOnce is everything at the same time.
func TestStoriesAtOnce(t *testing.T) {
	const sessions, calls = 6, 150
	wanted := new(set)
	name := func(i int) string { return fmt.Sprint("ses_", i) }
	for i := range sessions {
		wanted.put(name(i), i%2 == 0)
	}
	r := newRig(t, Options{SegmentSize: minSegmentSize, MaxSize: 4 * minSegmentSize, Wanted: wanted.has})
	var writers, others sync.WaitGroup
	for i := range sessions {
		writers.Go(func() {
			for n := range calls {
				e := numbered(name(i), n, n%200)
				if err := r.Append(&e); err != nil {
					t.Error(err)
				}
				if n%40 != 7 || i%2 == 1 {
					continue
				}
				told := 0
				err := r.Story(context.Background(), name(i), -1, func(e Entry) error {
					got, err := checked(&e, name(i))
					if err == nil && got != told {
						err = fmt.Errorf("%s: call %d, want %d", name(i), got, told)
					}
					told++
					return err
				})
				if err != nil || told != n+1 {
					t.Errorf("%s: %d calls of %d, %v", name(i), told, n+1, err)
				}
			}
		})
	}
	done := make(chan struct{})
	for _, work := range []func(){
		func() { r.Forget(name(1), name(3)) },
		func() { r.SetLimits(0, 4*minSegmentSize); r.Stats() },
		func() { r.Story(context.Background(), name(5), -1, func(Entry) error { return nil }) },
	} {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					work()
					runtime.Gosched()
				}
			}
		})
	}
	writers.Wait()
	close(done)
	others.Wait()
	r.settle()
	for i := 0; i < sessions; i += 2 {
		sameNumbers(t, name(i), r.story(name(i), -1), 0, calls-1)
	}
	for _, kept := range r.keptFiles() {
		if !wanted.has(kept) {
			t.Errorf("%s is kept", kept)
		}
	}
}
