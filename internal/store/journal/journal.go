// Package journal keeps every call that went through the gateway: one line of
// JSON each, appended to a file before the caller gets its answer, and an index
// of them in the store that follows a moment later.
//
// The files are the truth. They are called segments, NNNNNNNN.jsonl, and hold calls
// in the order of Seq. Only the last one is written to, at its end, with one write
// a call; when it is full a new one begins, and the oldest are deleted when all
// together are too large or too old. A call for which Append returned is in a file
// even if the process is then killed. A machine that loses power may lose the last
// seconds: nothing waits for the disk.
//
// The index is behind the files by at most a batch normally, and by more while the
// database can't be written. It is always a prefix of the files: the calls up to
// one, and none after it. So its newest call says where to continue, after a
// restart or a failure, and an index that does not match the files is rebuilt from
// them.
//
// Some sessions are wanted for longer than the bounds allow. Before a segment is
// deleted their calls are copied from it to the archive, kept/SESSION.jsonl, by
// the one goroutine that then deletes segments; Append never waits for that.
//
// A call is written when it ends. While it runs there is a note of it, from which the
// next Open makes a line if the process was killed meanwhile.
//
// Members of a line stand in a fixed order, the sizes of params and result before
// them and these two last. A reader has all that a list needs in the first part of
// a line, and finds the next line without reading the megabytes between.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// ErrClosed is returned by methods of a journal after Close.
var ErrClosed = errors.New("the journal is closed")

const (
	defaultSegmentSize = 16 << 20
	minSegmentSize     = 4 << 10
	// parts is how many segments at least share a bound, so that dropping one
	// takes a small part of what is kept.
	parts = 8
	// keepEvery is how often the bounds are checked without calls.
	keepEvery = time.Minute
	// openWithin and closeWithin bound how long Open and Close wait for the index.
	openWithin  = 5 * time.Second
	closeWithin = 5 * time.Second
)

// Options are the settings of a Journal.
type Options struct {
	Dir   string      // made if missing; no other process writes to it
	Index store.Calls // must stay open until Close returned
	// MaxAge and MaxSize bound what is kept; zero for no bound. Whole segments
	// are dropped, so a call may stay an eighth longer than MaxAge. A call larger
	// than MaxSize is kept without params and result, and its Note says so.
	MaxAge  time.Duration
	MaxSize int64
	// Wanted chooses the sessions whose calls are all kept as long as it does, at
	// any age and size: they are carried over before their segment is dropped, and
	// deleted when Wanted says no. Archived calls do not count for MaxSize, and
	// segments may exceed it while they are carried over. Nil chooses none, and
	// leaves the archive alone.
	//
	// It is called already while Open runs and must say yes if it does not know. It
	// is called with no lock of the journal held, mostly in the background, but
	// also by Append for a call larger than MaxSize; it must not call the journal.
	// It is never called for a session whose id has more than lower-case letters,
	// digits, - and _.
	Wanted func(session string) bool
	// SegmentSize is where a new file begins. 16 MiB unless given; an eighth of
	// MaxSize where that is less.
	SegmentSize int64
	// Hub is raised after each call that is written, and wakes followers; nil for one of
	// the journal's own.
	Hub *store.Hub
	Log *slog.Logger // nil for none
}

// Stats is the state of a Journal.
type Stats struct {
	Bytes    int64 // of all segments
	Kept     int64 // bytes of the archive
	Segments int
	Lag      int64 // calls that are written and not yet indexed
	Errors   int64 // failed writes to files and index since Open
}

// Journal is the journal of one folder. Its methods may run at once.
type Journal struct {
	dir         string
	index       store.Calls
	log         *slog.Logger
	segmentSize int64
	now         func() time.Time
	open        func(path string, flag int) (file, error)
	wanted      func(session string) bool
	kept        archive
	stuck       bool // calls can't be carried over, as was logged; the keeper's

	maxSize  atomic.Int64
	errors   atomic.Int64
	underway underway
	buffers  sync.Pool
	scanners sync.Pool  // of followers
	big      sync.Mutex // held while a line is made that no pooled buffer takes

	mu       sync.Mutex
	closed   bool
	maxAge   time.Duration
	segments []segment // oldest first; the last is written to
	active   file
	undead   []segment // dropped, but the file is still there
	next     int64     // Seq of the next call

	// pending are the newest calls that are not indexed: all of them, or the
	// last few when there are too many to keep.
	pending  []store.Call
	reached  place         // calls from here on are not indexed
	indexed  int64         // every call up to this Seq is in the index, or can't be read
	drop     int64         // the index must forget the segments below this
	failing  bool          // the index, when it was last written
	progress chan struct{} // closed when indexed has moved; nil while no goroutine waits

	hub *store.Hub // wakes followers

	wake, full, keep chan struct{} // signals with a place for one
	closing          chan struct{}
	stop             context.CancelFunc // ends what waits for the index
	running          sync.WaitGroup
	closeOnce        sync.Once
	closeErr         error
}

// Open opens the journal in a folder: it cuts off a last line that was not
// written whole, finds out where the index ends, and adds to it what it lacks.
// When that takes more than a few seconds the rest is done in the background.
// The caller must Close it, before the index.
func Open(ctx context.Context, o Options) (*Journal, error) {
	return open(ctx, o, time.Now, openFile)
}

func open(ctx context.Context, o Options, now func() time.Time, openFile func(string, int) (file, error)) (*Journal, error) {
	j := &Journal{
		dir: o.Dir, index: o.Index, log: o.Log, segmentSize: o.SegmentSize, now: now, open: openFile,
		maxAge: o.MaxAge, wanted: o.Wanted,
		kept: archive{dir: filepath.Join(o.Dir, keptFolder), open: openFile},
		hub:  o.Hub,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), keep: make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	if j.log == nil {
		j.log = slog.New(slog.DiscardHandler)
	}
	if j.hub == nil {
		j.hub = new(store.Hub)
	}
	if j.segmentSize <= 0 {
		j.segmentSize = defaultSegmentSize
	}
	j.maxSize.Store(o.MaxSize)

	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the journal %s: %w", j.dir, err)
	}
	err := j.recover(ctx)
	if err == nil {
		err = j.kept.readFolder()
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal %s: %w", j.dir, err)
	}
	work, cancel := context.WithCancel(context.Background())
	j.stop = cancel
	if j.wanted == nil {
		j.bound()
	} else {
		signal(j.keep) // may take long
	}
	j.running.Go(func() { j.runIndex(work) })
	j.running.Go(j.runKeeper)
	j.openUnderway()
	j.flush(ctx, openWithin)
	return j, nil
}

// recover reads the folder and compares it with the index.
func (j *Journal) recover(ctx context.Context) error {
	if err := j.readFolder(); err != nil {
		return err
	}
	last, ok, err := j.index.LastCall(ctx)
	if err != nil {
		return err
	}
	known := ok && j.holds(last)
	if ok {
		j.next = max(j.next, last.Seq+1)
	}
	if err := j.openLast(); err != nil {
		return err
	}
	j.reached = place{j.segments[0].n, 0}
	switch {
	case known:
		j.indexed, j.drop = last.Seq, j.segments[0].n
		j.reached = place{last.Segment, last.Offset + last.Length}
	case ok:
		j.log.Warn("the index of the journal does not match its files and is rebuilt", "folder", j.dir, "call", last.ID)
		j.drop = everySegment
	}
	return nil
}

// SetLimits changes MaxAge and MaxSize.
func (j *Journal) SetLimits(age time.Duration, size int64) {
	j.mu.Lock()
	j.maxAge = age
	j.mu.Unlock()
	j.maxSize.Store(size)
	signal(j.keep)
}

// Stats returns the size of the journal and the progress of the index.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Stats{
		Bytes:    sum(j.segments) + sum(j.undead),
		Kept:     j.kept.size.Load(),
		Segments: len(j.segments) + len(j.undead),
		Lag:      j.next - 1 - j.indexed,
		Errors:   j.errors.Load(),
	}
}

// Close ends the followers and brings the index up to date, as far as that is
// possible in a few seconds; the next Open does the rest. It may be called
// twice.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		j.mu.Lock()
		j.closed = true
		j.mu.Unlock()
		j.underway.close()
		close(j.closing)
		late := time.AfterFunc(closeWithin, j.stop)
		j.running.Wait()
		late.Stop()
		j.stop()
		if lag := j.Stats().Lag; lag > 0 {
			j.closeErr = fmt.Errorf("close the journal: %d calls are not in its index; the next start adds them", lag)
		}
		if err := j.active.Close(); err != nil {
			j.closeErr = errors.Join(j.closeErr, fmt.Errorf("close the journal: %w", err))
		}
	})
	return j.closeErr
}

// signal sends to a channel with a place for one, without waiting.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
