package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A change of the database file, as its meta part has it:
//
//	version, page size, pages of the file after the change, and then runs of
//	pages: how far after the end of the run before, and how many
//
// all as unsigned varints. The body is the pages, in the order of the runs.
type change struct {
	pageSize int
	pages    uint64
	runs     []run
}

type run struct{ first, count uint64 } // of page indexes, from 0

const changeVersion = 1

// maxPages is how many pages a SQLite database can have at most.
const maxPages = 1<<32 - 2

func (c *change) add(i uint64) {
	if n := len(c.runs); n > 0 && c.runs[n-1].first+c.runs[n-1].count == i {
		c.runs[n-1].count++
		return
	}
	c.runs = append(c.runs, run{i, 1})
}

func (c *change) count() (n uint64) {
	for _, r := range c.runs {
		n += r.count
	}
	return n
}

func (c *change) encode() []byte {
	b := binary.AppendUvarint(nil, changeVersion)
	b = binary.AppendUvarint(b, uint64(c.pageSize))
	b = binary.AppendUvarint(b, c.pages)
	var end uint64
	for _, r := range c.runs {
		b = binary.AppendUvarint(b, r.first-end)
		b = binary.AppendUvarint(b, r.count)
		end = r.first + r.count
	}
	return b
}

// decodeChange reads a change from an untrusted writer; body is the size of what
// comes with it.
func decodeChange(meta []byte, body int64) (*change, error) {
	var err error
	next := func() uint64 {
		v, n := binary.Uvarint(meta)
		if n <= 0 {
			err = errors.New("it is cut short")
			return 0
		}
		meta = meta[n:]
		return v
	}
	if v := next(); err == nil && v != changeVersion {
		return nil, fmt.Errorf("version %d is not known; a newer Tine wrote it", v)
	}
	size, pages := next(), next()
	switch {
	case err != nil:
		return nil, err
	case size < minPage || size > maxPage || size&(size-1) != 0:
		return nil, fmt.Errorf("page size %d is not one of SQLite's", size)
	case pages > maxPages:
		return nil, fmt.Errorf("%d pages are more than SQLite has", pages)
	}
	c := &change{pageSize: int(size), pages: pages}
	left := uint64(body) / size
	var end uint64
	for len(meta) > 0 {
		gap, count := next(), next()
		if err != nil {
			return nil, err
		}
		if gap > pages-end || count == 0 || count > pages-end-gap || count > left {
			return nil, errors.New("a run of pages lies outside of the file or its body")
		}
		c.runs = append(c.runs, run{end + gap, count})
		end += gap + count
		left -= count
	}
	if n := c.count(); uint64(body) != n*size {
		return nil, fmt.Errorf("its body has %d bytes for %d pages of %d", body, n, size)
	}
	return c, nil
}
