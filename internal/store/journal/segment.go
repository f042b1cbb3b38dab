package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// segment is one file. Its last line ends at size; bytes after it are of a write
// that failed.
type segment struct {
	n     int64
	size  int64
	start int64     // where the header ends
	made  time.Time // when it was begun
	last  time.Time // when it was last written to, or later
}

// empty says that no call stands in it.
func (s *segment) empty() bool { return s.size <= s.start }

const (
	suffix = ".jsonl"
	// maxHeader is more than a header has.
	maxHeader = 256
	// everySegment is above all of them.
	everySegment = math.MaxInt64
)

// segmentHeader begins every segment. It carries data that must last when no call
// is left.
type segmentHeader struct {
	Journal int       `json:"journal"` // version of the format
	Segment int64     `json:"segment"`
	Next    int64     `json:"next"` // Seq of its first call
	Made    time.Time `json:"made"`
}

// file is what the journal needs of a file that it writes to.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

func openFile(path string, flag int) (file, error) {
	return os.OpenFile(path, flag, 0o600)
}

func (j *Journal) path(n int64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%08d", n)+suffix)
}

func sum(all []segment) (size int64) {
	for i := range all {
		size += all[i].size
	}
	return size
}

// readFolder finds the segments, and in the last of them the end of the last
// whole line. It sets next.
func (j *Journal) readFolder() error {
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, entry := range names {
		number, ours := strings.CutSuffix(entry.Name(), suffix)
		n, err := strconv.ParseInt(number, 10, 64)
		if !ours || err != nil || n <= 0 || n == everySegment || j.path(n) != filepath.Join(j.dir, entry.Name()) || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		j.segments = append(j.segments, segment{n: n, size: info.Size(), made: info.ModTime(), last: info.ModTime()})
	}
	slices.SortFunc(j.segments, func(a, b segment) int { return int(max(-1, min(1, a.n-b.n))) })

	j.next = 1
	said := false
	for i := len(j.segments) - 1; i >= 0; i-- {
		s := &j.segments[i]
		h, err := j.readHeader(s)
		if err != nil {
			return err
		}
		if !h.Made.IsZero() {
			s.made = h.Made
			if i > 0 { // nothing was written to one after the next was begun
				j.segments[i-1].last = h.Made
			}
		}
		j.next = max(j.next, h.Next)
		// Calls before the first header from the end are below it. A last segment
		// may have none: it was just begun when the gateway died.
		if !said {
			if err := j.readEnd(s, i == len(j.segments)-1); err != nil {
				return err
			}
		}
		said = said || h.Next > 0
	}
	return nil
}

// readHeader returns an empty header when there is none.
func (j *Journal) readHeader(s *segment) (h segmentHeader, err error) {
	f, err := os.Open(j.path(s.n))
	if err != nil {
		return h, err
	}
	defer f.Close()
	sc := scanner{r: f, end: min(s.size, maxHeader)}
	l, err := sc.next()
	if err == io.EOF || l.kind != header {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	if json.Unmarshal(sc.buf[:l.length], &h) != nil || h.Segment != s.n || h.Next < 1 {
		return segmentHeader{}, nil
	}
	s.start = l.length
	return h, nil
}

// readEnd finds the newest call of a segment, and in the last one cuts off an
// unfinished line.
func (j *Journal) readEnd(s *segment, isLast bool) error {
	f, err := os.Open(j.path(s.n))
	if err != nil {
		return err
	}
	defer f.Close()
	var newest time.Time
	for sc := (scanner{r: f, end: s.size}); ; {
		l, err := sc.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", j.path(s.n), err)
		}
		switch {
		case l.kind == call:
			j.next = max(j.next, l.head.Seq+1)
			if l.head.At.After(newest) {
				newest = l.head.At
			}
		case l.kind == torn && isLast:
			j.log.Warn("the last line of the journal was not written whole and is cut off", "file", j.path(s.n), "bytes", l.length)
			s.size = l.offset
		}
	}
	// Better than the file's own time, which a copy loses.
	if isLast && !newest.IsZero() && newest.Before(s.last) {
		s.last = newest
	}
	return nil
}

// openLast makes the last segment ready to be written to.
func (j *Journal) openLast() error {
	if len(j.segments) > 0 {
		s := &j.segments[len(j.segments)-1]
		f, err := os.OpenFile(j.path(s.n), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if err := f.Truncate(s.size); err != nil {
			f.Close()
			return err
		}
		if s.start > 0 {
			j.active = f
			return nil
		}
		// It has no header: it was just begun when the gateway died, or it is
		// damaged. Its content stays, and new calls go into a new one.
		f.Close()
		if s.size == 0 {
			if err := os.Remove(j.path(s.n)); err != nil {
				return err
			}
			j.segments = j.segments[:len(j.segments)-1]
		}
	}
	return j.rotate()
}

// rotate begins a new segment. The caller holds mu, or is the only one.
func (j *Journal) rotate() error {
	s := segment{n: 1, made: j.now().UTC().Round(0)}
	if len(j.segments) > 0 {
		s.n = j.segments[len(j.segments)-1].n + 1
	}
	s.last = s.made
	const begin = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := j.open(j.path(s.n), begin)
	for errors.Is(err, fs.ErrExist) { // something that is no segment
		s.n++
		f, err = j.open(j.path(s.n), begin)
	}
	if err != nil {
		return err
	}
	b, err := json.Marshal(segmentHeader{Journal: 1, Segment: s.n, Next: j.next, Made: s.made})
	if err != nil {
		f.Close()
		return err
	}
	b = append(b, '\n')
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		os.Remove(j.path(s.n))
		return err
	}
	s.size = int64(len(b))
	s.start = s.size
	if j.active != nil {
		j.active.Close() // nothing of it waits to be written
	}
	j.active = f
	j.segments = append(j.segments, s)
	return nil
}

// holds says whether a call of the index stands where the index says.
func (j *Journal) holds(c store.Call) bool {
	i := slices.IndexFunc(j.segments, func(s segment) bool { return s.n == c.Segment })
	if i < 0 || c.Offset < 0 || c.Length <= 0 || c.Offset+c.Length > j.segments[i].size {
		return false
	}
	f, err := os.Open(j.path(c.Segment))
	if err != nil {
		return false
	}
	defer f.Close()
	sc := scanner{r: f, offset: c.Offset, end: c.Offset + c.Length}
	l, err := sc.next()
	return err == nil && l.is(c)
}

// is says whether a line is the one that the index means. The time tells calls
// of this journal from those of another.
func (l *line) is(c store.Call) bool {
	return l.kind == call && l.length == c.Length && l.head.Seq == c.Seq && l.head.At.UnixNano() == c.At.UnixNano()
}
