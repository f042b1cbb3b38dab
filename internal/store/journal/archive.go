package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// keptFolder is the folder of calls that outlive their segments.
const keptFolder = "kept"

// archive keeps calls of sessions beyond the bounds of the journal: a file a
// session, with lines as in the segments, in the order of Seq. A line is whole and
// on the disk before its segment is deleted, and no line is added twice, so that
// carrying over may be interrupted anywhere and repeated.
type archive struct {
	dir  string
	open func(path string, flag int) (file, error)
	size atomic.Int64 // of all files

	mu    sync.Mutex // held while one file is changed
	files map[string]*keptFile
	gone  map[string]bool // forgotten since begin; nil before it and after end
	fresh bool            // there are files that the folder may not have after a power cut
	out   *bufio.Writer
}

// keptFile is the file of a session.
type keptFile struct {
	size int64 // where the last whole line ends, or the file, when it was not yet read
	last int64 // Seq of the last line
	read bool
}

// spot is where a call of a known session stands; in the archive where segment
// is zero.
type spot struct{ seq, segment, offset, length int64 }

// keepable says whether a session can have a file. All sessions of a gateway can;
// no other text may name a file.
func keepable[S string | []byte](session S) bool {
	for i := range len(session) {
		c := session[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(session) > 0 && len(session) <= 128
}

func (a *archive) path(session string) string {
	return filepath.Join(a.dir, session+suffix)
}

// readFolder finds the files of the archive.
func (a *archive) readFolder() error {
	a.files = make(map[string]*keptFile)
	names, err := os.ReadDir(a.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range names {
		session, ours := strings.CutSuffix(entry.Name(), suffix)
		if !ours || !keepable(session) || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		a.files[session] = &keptFile{size: info.Size()}
		a.size.Add(info.Size())
	}
	return nil
}

// begin is called before the sessions whose calls are carried over are chosen.
func (a *archive) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = make(map[string]bool)
}

// end makes the new files last.
func (a *archive) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone, a.out = nil, nil
	if !a.fresh {
		return nil
	}
	for _, dir := range []string{a.dir, filepath.Dir(a.dir)} {
		if err := syncFolder(dir); err != nil {
			return err
		}
	}
	a.fresh = false
	return nil
}

// add copies the lines that it does not have, and returns when they are on the
// disk.
func (a *archive) add(session string, lines []spot, from func(segment int64) (io.ReaderAt, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone[session] {
		return nil
	}
	k := a.files[session]
	if k != nil && k.read {
		if lines = newer(lines, k.last); len(lines) == 0 {
			return nil
		}
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	f, err := a.open(a.path(session), os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	if k == nil {
		k = new(keptFile)
		a.files[session] = k
	}
	if !k.read {
		a.fresh = true
		if err := a.load(session, k); err != nil {
			return err
		}
		lines = newer(lines, k.last)
	}
	size, err := a.copy(f, k.size, lines, from)
	if err == nil {
		// Also when nothing is new: the process that wrote it may have been killed
		// before this.
		err = f.Sync()
	}
	if err != nil {
		// The next write overwrites it, so that this need not succeed.
		_ = f.Truncate(k.size)
		return fmt.Errorf("write %s: %w", a.path(session), err)
	}
	a.size.Add(size - k.size)
	k.size = size
	if len(lines) > 0 {
		k.last = lines[len(lines)-1].seq
	}
	return nil
}

// newer returns the lines after a Seq.
func newer(lines []spot, last int64) []spot {
	n := slices.IndexFunc(lines, func(s spot) bool { return s.seq > last })
	if n < 0 {
		return nil
	}
	return lines[n:]
}

// load finds the end of the last whole line of a file.
func (a *archive) load(session string, k *keptFile) error {
	f, err := os.Open(a.path(session))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	whole, last := int64(0), int64(0)
	for sc := (scanner{r: f, end: info.Size()}); ; {
		l, err := sc.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", a.path(session), err)
		}
		if l.kind == torn {
			continue
		}
		whole = l.offset + l.length
		if l.kind == call {
			last = max(last, l.head.Seq)
		}
	}
	a.size.Add(whole - k.size)
	k.size, k.last, k.read = whole, last, true
	return nil
}

// copy writes lines to f from an offset on, and returns where they end.
func (a *archive) copy(f file, at int64, lines []spot, from func(segment int64) (io.ReaderAt, error)) (int64, error) {
	out := io.NewOffsetWriter(f, at)
	if a.out == nil {
		a.out = bufio.NewWriterSize(nil, 4*chunk)
	}
	a.out.Reset(out)
	defer a.out.Reset(nil)
	for len(lines) > 0 {
		// Lines that stand one behind the other are copied as one.
		first, length, n := lines[0], int64(0), 0
		for n < len(lines) && lines[n].segment == first.segment && lines[n].offset == first.offset+length {
			length += lines[n].length
			n++
		}
		r, err := from(first.segment)
		if err != nil {
			return at, err
		}
		got, err := io.Copy(a.out, io.NewSectionReader(r, first.offset, length))
		if err == nil && got < length {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return at, err
		}
		at += length
		lines = lines[n:]
	}
	return at, a.out.Flush()
}

// forget deletes the file of a session.
func (a *archive) forget(session string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone != nil {
		a.gone[session] = true
	}
	k := a.files[session]
	if k == nil {
		return nil
	}
	if err := os.Remove(a.path(session)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(a.files, session)
	a.size.Add(-k.size)
	return nil
}

// sessions are those with calls in the archive.
func (a *archive) sessions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]string, 0, len(a.files))
	for session := range a.files {
		all = append(all, session)
	}
	return all
}

func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders can't be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
