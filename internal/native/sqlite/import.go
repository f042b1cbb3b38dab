package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/layer"
)

// Import seeds an empty database from a file of the host: a SQLite database, or
// with the ending .sql a script. Progress, which may be nil, hears how many bytes
// are done of how many. When it fails, the database is as it was.
func Import(ctx context.Context, h *layer.Head[*DB], path string, progress func(done, total int64)) error {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("import a database: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("import a database: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("import a database: %s is not a file", path)
	}
	in := &counting{ctx: ctx, r: f, total: info.Size(), progress: progress}
	if strings.EqualFold(filepath.Ext(path), ".sql") {
		err = importScript(ctx, h, in)
	} else {
		err = importFile(ctx, h, f, in)
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", path, err)
	}
	return nil
}

func importScript(ctx context.Context, h *layer.Head[*DB], in io.Reader) error {
	c, err := open(h, mostSize)
	if err != nil {
		return err
	}
	defer c.close()
	// As sqlite3 reads a dump: rows may come before those they refer to.
	if err := c.Exec("PRAGMA foreign_keys=OFF"); err != nil {
		return err
	}
	err = c.guarded(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.execute(ctx, in, nil, 0)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return explain(err)
}

// importFile copies a database file page by page.
func importFile(ctx context.Context, h *layer.Head[*DB], f *os.File, in *counting) error {
	src, err := inspect(f, in.total)
	if err != nil || src.pages == 0 {
		return err
	}
	if err := src.try(ctx); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	in.total = src.Size()
	in.r = io.NewSectionReader(src, 0, in.total)
	c := &change{pageSize: src.pageSize, pages: src.pages, runs: []run{{0, src.pages}}}
	_, err = h.Commit(func(*DB) ([]byte, io.Reader, int64, error) {
		return c.encode(), &unchanged{in, src}, in.total, nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// original is a database file of the host, as it is taken over.
type original struct {
	f        *os.File
	head     [100]byte // in rollback mode, whatever the file's is
	counter  [4]byte   // goes up with every change
	size     int64     // of the file
	pageSize int
	pages    uint64
}

func (o *original) Size() int64 { return int64(o.pages) * int64(o.pageSize) }

// ReadAt implements [io.ReaderAt].
func (o *original) ReadAt(p []byte, off int64) (int, error) {
	if off >= o.Size() {
		return 0, io.EOF
	}
	n, err := o.f.ReadAt(p, off)
	if off < int64(len(o.head)) {
		copy(p[:n], o.head[off:])
	}
	return n, err
}

// inspect checks that a file is a database which can be copied.
func inspect(f *os.File, size int64) (*original, error) {
	for _, beside := range []struct{ ending, what string }{
		{"-wal", "a write-ahead log with changes that are not in the file; run PRAGMA wal_checkpoint(TRUNCATE) on it with sqlite3 first"},
		{"-journal", "the journal of a transaction that did not end; open it with sqlite3 once, which mends it"},
	} {
		info, err := os.Stat(f.Name() + beside.ending)
		if err == nil && info.Size() > 0 {
			return nil, fmt.Errorf("beside it is %s", beside.what)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	o := &original{f: f, size: size}
	if size == 0 {
		return o, nil // so is a new database
	}
	if _, err := f.ReadAt(o.head[:], 0); err != nil || string(o.head[:16]) != "SQLite format 3\x00" {
		return nil, errors.New("it is not a SQLite database (a script must have the ending .sql)")
	}
	o.counter = [4]byte(o.head[24:])
	if o.pageSize = int(binary.BigEndian.Uint16(o.head[16:])); o.pageSize == 1 {
		o.pageSize = maxPage
	}
	if o.pageSize < minPage || o.pageSize&(o.pageSize-1) != 0 {
		return nil, fmt.Errorf("it is damaged: a page size of %d", o.pageSize)
	}
	o.pages = uint64(size) / uint64(o.pageSize)
	if n := uint64(binary.BigEndian.Uint32(o.head[28:])); n > 0 && [4]byte(o.head[24:]) == [4]byte(o.head[92:]) {
		if n > o.pages {
			return nil, fmt.Errorf("it is damaged: its header says %d pages, and it has %d", n, o.pages)
		}
		o.pages = n
	}
	if o.pages == 0 {
		return nil, errors.New("it is damaged: it is shorter than one page")
	}
	o.head[18], o.head[19] = 1, 1 // write-ahead logging, if it was on, is off here
	return o, nil
}

// try opens the file as a database and reads its schema.
func (o *original) try(ctx context.Context) error {
	r := &room{left: 64 << 20}
	c, err := connect(newMainFile(r, func() (source, int) { return o, o.pageSize }, nil), r, mostSize)
	if err != nil {
		return fmt.Errorf("it can't be read as a database: %w", explain(err))
	}
	defer c.close()
	err = c.guarded(ctx, func(_ context.Context, c *conn) error {
		_, err := c.tables(1)
		return err
	})
	if err != nil {
		return fmt.Errorf("it can't be read as a database: %w", explain(err))
	}
	return nil
}

// unchanged reads a file to its end, and fails there when it was changed
// meanwhile: what was read is then of no moment.
type unchanged struct {
	in *counting
	o  *original
}

func (u *unchanged) Read(p []byte) (int, error) {
	n, err := u.in.Read(p)
	if err != io.EOF {
		return n, err
	}
	var counter [4]byte
	info, serr := u.o.f.Stat()
	if _, rerr := u.o.f.ReadAt(counter[:], 24); serr != nil || rerr != nil {
		return n, errors.Join(serr, rerr)
	}
	wal, werr := os.Stat(u.o.f.Name() + "-wal")
	if counter != u.o.counter || info.Size() != u.o.size || (werr == nil && wal.Size() > 0) {
		return n, errors.New("it was changed while it was copied; stop what writes to it, or copy it before")
	}
	return n, io.EOF
}

// counting tells how far reading has come, and stops when ctx ends.
type counting struct {
	ctx         context.Context
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
}

func (c *counting) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.progress(c.done, c.total)
	return n, err
}
