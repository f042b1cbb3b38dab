package lines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Files in an instance's folder: the log, and the part before it.
const (
	LogName = "stderr"
	LogOld  = "stderr.old"
)

// Log is the end of what a program wrote to its standard error. Where it can the
// program writes to the file itself, without the gateway. While we watch, a file that
// has grown past half the limit is copied to stderr.old, its end at least, and emptied;
// what the program writes between the two, a moment, is lost.
type Log struct {
	dir   string
	limit int64
	f     *os.File // in append mode: a file that was emptied goes on at its beginning

	written atomic.Int64 // by Write, since it looked at the size last

	mu     sync.Mutex
	closed bool
	last   int64         // its size when we looked last
	rest   time.Duration // until we look again
}

// OpenLog opens the log in a folder, for at most about limit bytes.
func OpenLog(dir string, limit int64) (*Log, error) {
	f, err := os.OpenFile(filepath.Join(dir, LogName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the file for standard error: %w", err)
	}
	return &Log{dir: dir, limit: limit, f: f, rest: minRest}, nil
}

// File is what the program may write to itself.
func (l *Log) File() *os.File { return l.f }

// Write adds to the log, for drivers whose programs don't write to it themselves.
func (l *Log) Write(b []byte) (int, error) {
	n, err := l.f.Write(b)
	if err != nil {
		return n, err
	}
	if l.written.Add(int64(n)) > l.limit/8 {
		l.written.Store(0)
		err = l.Trim()
	}
	return n, err
}

// Close closes the file.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.f.Close()
}

// A quiet child is looked at seldom and a noisy one often.
const (
	minRest = 50 * time.Millisecond
	maxRest = 5 * time.Second
)

// pause is how long to wait before the next Trim.
func (l *Log) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rest
}

// Trim cuts the file when it is too long.
func (l *Log) Trim() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	st, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("look at the file for standard error: %w", err)
	}
	size := st.Size()
	if grown := size - l.last; grown > l.limit/8 {
		l.rest = minRest
	} else {
		l.rest = min(2*l.rest, maxRest)
	}
	l.last = size
	if size <= l.limit/2 {
		return nil
	}
	err = l.keep(size)
	if err != nil {
		// It may be this very file that leaves no room on the disk.
		err = fmt.Errorf("keep the end of standard error: %w", err)
	}
	if emptied := l.f.Truncate(0); emptied != nil {
		return errors.Join(err, fmt.Errorf("empty the file for standard error: %w", emptied))
	}
	l.last = 0
	return err
}

// keep copies the end of the file, which has so many bytes, to the part before it.
func (l *Log) keep(size int64) (err error) {
	old := filepath.Join(l.dir, LogOld)
	to, err := os.OpenFile(old+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(old + ".part")
		}
	}()
	from := max(0, size-l.limit/2)
	// What came meanwhile comes along, so that little can come after it.
	for _, most := range []int64{l.limit / 2, l.limit / 8, l.limit / 8} {
		n, copyErr := io.Copy(to, io.NewSectionReader(l.f, from, most))
		if err = copyErr; err != nil || n == 0 {
			break
		}
		from += n
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return os.Rename(old+".part", old)
}

// Tail returns the last lines, at most max bytes. A line that does not fit is
// left out, unless it is the only one. After Close there are none.
func (l *Log) Tail(max int64) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if max <= 0 || l.closed {
		return nil, nil
	}
	st, err := l.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the file for standard error: %w", err)
	}
	// A child that writes much makes the file longer than what is ever kept.
	from := st.Size() - min(max, st.Size(), l.limit)
	out := make([]byte, st.Size()-from)
	n, err := l.f.ReadAt(out, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the file for standard error: %w", err)
	}
	out = out[:n]
	cut := from > 0
	if !cut {
		old, err := os.ReadFile(filepath.Join(l.dir, LogOld))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read the file for standard error: %w", err)
		}
		if room := max - int64(len(out)); int64(len(old)) > room {
			old = old[int64(len(old))-room:]
		}
		// What was before the old part is gone, so its first line may be a piece.
		cut = len(old) > 0
		out = append(old, out...)
	}
	if cut {
		if i := bytes.IndexByte(out, '\n'); i >= 0 && i+1 < len(out) {
			out = out[i+1:]
		}
	}
	return out, nil
}
