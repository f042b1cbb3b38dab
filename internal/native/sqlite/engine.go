package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/tine-mcp/tine/internal/layer"
)

const (
	maxMemory = 64 << 20         // of SQLite, per connection
	cacheSize = 1 << 20          // of pages
	idleAfter = 60 * time.Second // memory that SQLite once took it does not give back
)

// engine runs one call after the other on the database of one instance. Its connection
// is opened when it is first needed, and closed when it was idle for a while: nothing
// that lasts is in it.
type engine struct {
	head *layer.Head[*DB]
	set  limits
	idle time.Duration
	life context.Context // ends with Close, and every call with it
	end  context.CancelFunc

	turn  chan struct{} // held by the running call; guards what follows
	conn  *conn
	timer *time.Timer
}

// limits of a database and of what runs on it.
type limits struct {
	timeout time.Duration
	maxRows int
	maxSize int64
}

func newEngine(head *layer.Head[*DB], set limits) *engine {
	e := &engine{head: head, set: set, idle: idleAfter, turn: make(chan struct{}, 1)}
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// call runs f on the connection when it is its turn. The connection is
// interrupted when ctx ends or the time of a call is over.
func (e *engine) call(ctx context.Context, f func(ctx context.Context, c *conn) error) error {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the calls before: %w", ctx.Err())
	case <-e.life.Done():
		return errClosed
	}
	defer func() { <-e.turn }()
	if e.life.Err() != nil {
		return errClosed
	}
	if e.conn == nil {
		c, err := open(e.head, e.set.maxSize)
		if err != nil {
			return fmt.Errorf("open the database: %w", err)
		}
		e.conn = c
	}
	c := e.conn
	inner, cancel := context.WithTimeoutCause(ctx, e.set.timeout, errTimeout)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	err := c.guarded(inner, f)
	if c.spoiled {
		c.close()
		e.conn = nil
	}
	e.rest()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case e.life.Err() != nil:
		return errClosed
	case errors.Is(err, sqlite3.INTERRUPT) && context.Cause(inner) == errTimeout:
		return fmt.Errorf("it took longer than %s and was stopped; nothing was changed. Ask for less, or raise settings.timeout", e.set.timeout)
	}
	return explain(err)
}

// rest sees to it that a connection which is not needed is closed.
func (e *engine) rest() {
	switch {
	case e.conn == nil && e.timer != nil:
		e.timer.Stop()
	case e.conn != nil && e.timer != nil:
		e.timer.Reset(e.idle)
	case e.conn != nil:
		e.timer = time.AfterFunc(e.idle, func() {
			select {
			case e.turn <- struct{}{}:
				e.drop()
				<-e.turn
			default: // a call is running, and sets the timer again
			}
		})
	}
}

func (e *engine) drop() {
	if e.conn != nil {
		e.conn.close()
		e.conn = nil
	}
}

// Close stops the running call and closes the connection. Twice is fine.
func (e *engine) Close() error {
	e.end()
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if e.timer != nil {
		e.timer.Stop()
	}
	e.drop()
	return nil
}

// conn is a connection to a database, and whatever is known about it.
type conn struct {
	*sqlite3.Conn
	vfs   string
	file  *mainFile
	guard guard
	// spoiled is set when the connection must not be used for another call: it has
	// something temporary, or something went wrong in its depths.
	spoiled bool
}

// open connects to the database of a head.
func open(head *layer.Head[*DB], maxSize int64) (*conn, error) {
	latest := func() (source, int) {
		v := head.Value()
		return v, v.pageSize
	}
	var f *mainFile
	r := &room{left: 3*maxSize + 64<<20}
	f = newMainFile(r, latest, func(c *change, body io.Reader) error {
		_, err := head.Commit(func(v *DB) ([]byte, io.Reader, int64, error) {
			if source(v) != f.src {
				return nil, nil, 0, errors.New("another connection has changed the database")
			}
			return c.encode(), body, int64(c.count()) * int64(c.pageSize), nil
		})
		return err
	})
	return connect(f, r, maxSize)
}

func connect(f *mainFile, r *room, maxSize int64) (*conn, error) {
	c := &conn{file: f, vfs: fmt.Sprintf("tine-%p", f)}
	c.guard.conn = c
	vfs.Register(c.vfs, &filesystem{main: f, room: r})
	if err := c.open(maxSize); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) open(maxSize int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	ctx := sqlite3.WithMaxMemory(context.Background(), maxMemory)
	if c.Conn, err = sqlite3.OpenContext(ctx, "file:/main?vfs="+c.vfs); err != nil {
		return err
	}
	if err := c.confine(); err != nil {
		return err
	}
	pageSize := c.file.pageSize
	if pageSize == 0 {
		pageSize = 4096
	}
	return c.Exec(fmt.Sprintf(`PRAGMA cache_size=-%d; PRAGMA temp_store=FILE; PRAGMA cell_size_check=ON; PRAGMA max_page_count=%d`,
		cacheSize>>10, max(maxSize/int64(pageSize), 1)))
}

// guarded runs f. SQLite's binding panics when memory is used up; that is the
// statement's failure and not the program's.
func (c *conn) guarded(ctx context.Context, f func(ctx context.Context, c *conn) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.spoiled = true
			err = panicked(p)
		}
		c.SetInterrupt(context.Background())
		if !c.spoiled {
			c.guard.mode = modeInternal
		}
	}()
	c.SetInterrupt(ctx)
	c.file.err = nil
	err = f(ctx, c)
	if errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.CORRUPT) {
		c.spoiled = true
	}
	return err
}

// close ends the connection. Nothing that was not committed stays.
func (c *conn) close() {
	defer vfs.Unregister(c.vfs)
	if c.Conn == nil {
		c.file.Close()
		return
	}
	c.SetInterrupt(context.Background())
	for {
		var last *sqlite3.Stmt
		for s := range c.Stmts() {
			last = s
		}
		if last == nil {
			break
		}
		quietly(last.Close) // its error is the one of its last step
	}
	quietly(c.Conn.Close)
}

// quietly calls f and survives its panic. A connection that ran out of memory may
// do so again while it is closed.
func quietly(f func() error) {
	defer func() { recover() }()
	f()
}

var (
	errTimeout  = errors.New("time is over")
	errClosed   = fmt.Errorf("the database is closed: %w", fs.ErrClosed)
	errNoRoom   = errors.New("the statement needs more temporary space than it may use")
	errNoMemory = fmt.Errorf("the statement needs more memory than it may use (%d MiB); nothing was changed", maxMemory>>20)
)

func panicked(p any) error {
	err, ok := p.(error)
	if !ok {
		err = fmt.Errorf("%v", p)
	}
	if strings.Contains(err.Error(), "out of memory") {
		return errNoMemory
	}
	return fmt.Errorf("SQLite failed: %w", err)
}

// explain words an error of SQLite for the sender of the statement.
func explain(err error) error {
	var done *statementError
	if err == nil || errors.As(err, &done) {
		return err
	}
	say := func(format string, args ...any) error { return &statementError{fmt.Sprintf(format, args...), err} }
	switch {
	case errors.Is(err, errNoRoom):
		return say("%v; nothing was changed", errNoRoom)
	case errors.Is(err, sqlite3.FULL):
		return say("the database is full: it would grow beyond its limit (settings.max_size); nothing was changed. Delete something, or raise the limit")
	case errors.Is(err, sqlite3.TOOBIG):
		return say("a string or blob is larger than %d MiB, or a statement larger than %d MiB; nothing was changed", maxLength>>20, maxSQL>>20)
	case errors.Is(err, sqlite3.NOMEM):
		return errNoMemory
	case errors.Is(err, sqlite3.INTERRUPT):
		return say("it was interrupted; nothing was changed")
	}
	var code sqlite3.ErrorCode
	if errors.As(err, &code) {
		return say("%s", strings.NewReplacer("sqlite3: ", "", "SQL logic error: ", "").Replace(err.Error()))
	}
	return err
}

// statementError is an error of SQLite in words for the sender of the statement.
type statementError struct {
	text string
	err  error
}

func (e *statementError) Error() string { return e.text }
func (e *statementError) Unwrap() error { return e.err }
