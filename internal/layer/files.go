package layer

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// handle is what is needed of an *os.File.
type handle interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// files opens layers' files by id and keeps at most max of them open, closing
// the least recently used. Every operation takes a descriptor for its own
// duration only and none while it holds another, so waiting for one to come
// free always ends.
type files struct {
	dir  string
	max  int
	open func(path string, flag int) (handle, error)

	mu     sync.Mutex
	free   sync.Cond // a file has no users any more, or count went down
	byID   map[string]*file
	recent list.List // of *file, front is the latest
	count  int       // open, or being opened
	closed bool
}

type file struct {
	id    string
	f     handle
	users int
	gone  bool // to be removed by its last user
	elem  *list.Element
}

func newFiles(dir string, limit int) *files {
	s := &files{dir: dir, max: limit, byID: map[string]*file{}}
	s.open = func(path string, flag int) (handle, error) { return os.OpenFile(path, flag, 0o600) }
	s.free.L = &s.mu
	return s
}

func (s *files) path(id string) string { return filepath.Join(s.dir, id+fileSuffix) }

func (s *files) acquire(id string, flag int) (*file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return nil, fmt.Errorf("layer store: %w", fs.ErrClosed)
		}
		if e := s.byID[id]; e != nil {
			e.users++
			s.recent.MoveToFront(e.elem)
			return e, nil
		}
		if s.count < s.max {
			break
		}
		if !s.evict() {
			s.free.Wait()
		}
	}
	s.count++
	s.mu.Unlock()
	f, err := s.open(s.path(id), os.O_RDWR|flag)
	s.mu.Lock()
	if err == nil && s.closed {
		f.Close()
		err = fmt.Errorf("layer store: %w", fs.ErrClosed)
	}
	if err != nil {
		s.count--
		s.free.Broadcast()
		return nil, err
	}
	if e := s.byID[id]; e != nil { // another was faster
		f.Close()
		s.count--
		s.free.Broadcast()
		e.users++
		return e, nil
	}
	e := &file{id: id, f: f, users: 1}
	e.elem = s.recent.PushFront(e)
	s.byID[id] = e
	return e, nil
}

// evict closes the least recently used file that is not in use.
func (s *files) evict() bool {
	for el := s.recent.Back(); el != nil; el = el.Prev() {
		if e := el.Value.(*file); e.users == 0 {
			s.drop(e)
			e.f.Close()
			return true
		}
	}
	return false
}

func (s *files) drop(e *file) {
	delete(s.byID, e.id)
	s.recent.Remove(e.elem)
	s.count--
	s.free.Broadcast()
}

func (s *files) release(e *file) {
	s.mu.Lock()
	e.users--
	if e.users > 0 {
		s.mu.Unlock()
		return
	}
	gone, last := e.gone, e.gone || s.closed
	if !last {
		s.free.Broadcast()
	}
	s.mu.Unlock()
	if !last {
		return
	}
	s.closeOne(e)
	if gone {
		// What fails here is found as a stray by the next Recover.
		os.Remove(s.path(e.id))
	}
}

// closeOne closes a file that can't be found any more. It counts until it is closed,
// or there would be one too many.
func (s *files) closeOne(e *file) {
	e.f.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	s.free.Broadcast()
}

func (s *files) use(id string, flag int, do func(handle) error) error {
	e, err := s.acquire(id, flag)
	if err != nil {
		return err
	}
	defer s.release(e)
	return do(e.f)
}

// create makes an empty file. A file that a failed attempt left is made empty: no
// other layer has this id.
func (s *files) create(id string) error {
	return s.use(id, os.O_CREATE|os.O_TRUNC, func(handle) error { return nil })
}

func (s *files) readAt(id string, p []byte, off int64) (int, error) {
	e, err := s.acquire(id, 0)
	if err != nil {
		return 0, err
	}
	defer s.release(e)
	n, err := e.f.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (s *files) writeAt(id string, p []byte, off int64) error {
	return s.use(id, 0, func(f handle) error {
		_, err := f.WriteAt(p, off)
		return err
	})
}

func (s *files) truncate(id string, size int64) error {
	return s.use(id, 0, func(f handle) error { return f.Truncate(size) })
}

func (s *files) sync(id string) error {
	return s.use(id, 0, func(f handle) error { return f.Sync() })
}

// remove deletes a file. Where it is being read, the last reader does: not
// every system can delete an open file.
func (s *files) remove(id string) error {
	s.mu.Lock()
	if e := s.byID[id]; e != nil {
		e.gone = true
		delete(s.byID, id)
		s.recent.Remove(e.elem)
		if e.users > 0 {
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		s.closeOne(e)
	} else {
		s.mu.Unlock()
	}
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove layer: %w", err)
	}
	return nil
}

// close closes what is open; what is in use is closed by its last user.
func (s *files) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, e := range s.byID {
		if e.users == 0 {
			s.count--
			errs = append(errs, e.f.Close())
		}
	}
	clear(s.byID)
	s.recent.Init()
	s.free.Broadcast()
	return errors.Join(errs...)
}
