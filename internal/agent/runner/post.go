package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// posts is the file of what a program has posted. It is followed as the output is, so that
// an event that was taken is told once, also by the next gateway.
type posts struct {
	run         string // that the token of the program was made for
	path        string
	limit, line int64

	mu   sync.Mutex
	shut bool // the turn is over
}

func newPosts(dir, run string, lim limits) *posts {
	return &posts{run: run, path: filepath.Join(dir, postedName), limit: lim.posted, line: int64(lim.line)}
}

// set opens or shuts it.
func (p *posts) set(shut bool) {
	p.mu.Lock()
	p.shut = shut
	p.mu.Unlock()
}

// add takes an event. When it returns the event outlives the gateway, and is told.
func (p *posts) add(event []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, event); err != nil {
		return executor.Misused("the event can't be read: %v", err)
	}
	line.WriteByte('\n')
	if int64(line.Len()) > p.line {
		return executor.Misused("the event has %d bytes and may have %d; shorten it", line.Len(), p.line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return errPostedLate
	}
	f, err := os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return untaken(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return untaken(err)
	}
	size := st.Size()
	if size+int64(line.Len()) > p.limit {
		return &api.Error{Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the run has posted %d bytes of events, which is all that it may; have it post less", size)}
	}
	data := line.Bytes()
	if last := make([]byte, 1); size > 0 {
		if _, err := f.ReadAt(last, size-1); err != nil {
			return untaken(err)
		}
		if last[0] != '\n' { // a kill cut off an event that was not taken
			data = append([]byte{'\n'}, data...)
		}
	}
	if _, err := f.Write(data); err != nil {
		return untaken(errors.Join(err, f.Truncate(size)))
	}
	return nil
}

// untaken is the error of an event that the gateway's machine could not write down. The program
// is not told where.
func untaken(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err
	}
	return &api.Error{Kind: api.KindInfrastructure, Retryable: true, Message: "the event is not taken: " + err.Error() + "; post it again once the gateway can write to its state folder"}
}

var errPostedLate = &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Message: "the run that the program does has ended, so it takes no events any more"}

// Post takes an event of a run from the program whose token was made for the run by: the
// same one, or an earlier one of the session. It waits while the program is being started or
// adopted.
func (r *Runner) Post(ctx context.Context, run, by string, event []byte) error {
	if _, err := executor.ReadPosted(event); err != nil {
		return err
	}
	r.mu.Lock()
	w := r.active[run]
	r.mu.Unlock()
	if w == nil {
		return &api.Error{Kind: api.KindRefused, Status: http.StatusServiceUnavailable, Retryable: true, Message: "run " + run + " is not at work here now; try again"}
	}
	var another <-chan struct{}
	if by != run {
		another = w.another
	}
	select {
	case <-w.ready:
	case <-another:
		return errPostedLate
	case <-w.over:
		return errPostedLate
	case <-ctx.Done():
		return ctx.Err()
	}
	w.posting.Lock()
	to := w.posts
	w.posting.Unlock()
	if to == nil {
		return executor.Misused("the executor of this run tells of its work by what it prints, and posts no events")
	}
	if to.run != by {
		return errPostedLate
	}
	return to.add(event)
}

// anew says that the run gets a program of its own.
func (w *work) anew() {
	if !done(w.another) {
		close(w.another)
	}
}

// hears has the events of the program taken.
func (w *work) hears() {
	w.posting.Lock()
	defer w.posting.Unlock()
	if w.posts = nil; w.p == nil {
		return
	}
	if _, ok := w.reader.(executor.Hearer); ok {
		w.posts = w.p.takes()
	}
	if !done(w.ready) {
		close(w.ready)
	}
}

// openPosted opens the file for reading. A program that an earlier version started has none.
func openPosted(dir string, at *mark, lim limits) (*tap, error) {
	path := filepath.Join(dir, postedName)
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open what the program posts: %w", err)
	}
	return openTap(path, at, lim.posted, lim.line)
}
