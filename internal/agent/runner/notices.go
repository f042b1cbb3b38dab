package runner

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// notices wake the followers of programs when a file in their folders changes. All
// share one watcher, since a user has few of them (128 on Linux by default).
type notices struct {
	watcher *fsnotify.Watcher // nil where the system has none
	done    chan struct{}

	mu    sync.Mutex
	wakes map[string]chan struct{} // by folder
}

func newNotices() *notices {
	n := &notices{wakes: make(map[string]chan struct{}), done: make(chan struct{})}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		close(n.done)
		return n // followers look by themselves
	}
	n.watcher = watcher
	go n.run()
	return n
}

func (n *notices) run() {
	defer close(n.done)
	for events, failures := n.watcher.Events, n.watcher.Errors; events != nil || failures != nil; {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			n.mu.Lock()
			wake(n.wakes[filepath.Dir(e.Name)])
			n.mu.Unlock()
		case _, ok := <-failures: // some were lost
			if !ok {
				failures = nil
				continue
			}
			n.mu.Lock()
			for _, ch := range n.wakes {
				wake(ch)
			}
			n.mu.Unlock()
		}
	}
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // also where ch is nil
	}
}

// watch returns a channel that gets a value after each change in a folder, until stop
// is called. It reports false where the system does not tell.
func (n *notices) watch(dir string) (changed <-chan struct{}, stop func(), ok bool) {
	if n.watcher == nil {
		return nil, func() {}, false
	}
	ch := make(chan struct{}, 1)
	n.mu.Lock()
	n.wakes[dir] = ch
	n.mu.Unlock()
	stop = func() {
		_ = n.watcher.Remove(dir) // the folder may be gone
		n.mu.Lock()
		delete(n.wakes, dir)
		n.mu.Unlock()
	}
	if err := n.watcher.Add(dir); err != nil { // too many watches
		stop()
		return nil, func() {}, false
	}
	return ch, stop, true
}

func (n *notices) close() {
	if n.watcher != nil {
		n.watcher.Close()
	}
	<-n.done
}
