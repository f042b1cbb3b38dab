package memory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tine-mcp/tine/internal/layer"
)

const (
	// maxLine is how long a line of a file may be: an entity with all that is
	// known about it.
	maxLine = 32 << 20
	// batch is about how many bytes of lines become one change.
	batch = 256 << 10
)

// commit makes a change of package layer of a plan.
func commit(plan func(g *Graph) (*change, error)) func(*Graph) ([]byte, io.Reader, int64, error) {
	return func(g *Graph) ([]byte, io.Reader, int64, error) {
		c, err := plan(g)
		if err != nil || c.empty() {
			return nil, nil, 0, err
		}
		return c.encode()
	}
}

// Import adds what is in a file of the reference server, a JSON object a line,
// to the graph of a state. The settings are the server's. A file that is not as
// it should be is an error that names the line; what came before it is then in
// the graph. progress, which may be nil, hears of bytes.
func Import(ctx context.Context, from map[string]any, h *layer.Head[*Graph], path string, progress func(done, total int64)) error {
	limits, err := decode(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("template: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("template %s is not a file; give the path of a memory.jsonl", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("template: %w", err)
	}
	defer f.Close()
	im := importer{head: h, limits: limits}
	r := bufio.NewReaderSize(f, 64<<10)
	var read int64
	for n := 1; ; n++ {
		line, err := readLine(r)
		read += int64(len(line))
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("template %s line %d: %w", path, n, err)
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			if err := im.add(text); err != nil {
				return fmt.Errorf("template %s line %d: %w", path, n, err)
			}
		}
		last := err != nil
		if last || im.size >= batch {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("template %s: %w", path, err)
			}
			if err := im.flush(); err != nil {
				return fmt.Errorf("template %s up to line %d: %w", path, n, err)
			}
			if progress != nil {
				progress(read, max(read, info.Size()))
			}
		}
		if last {
			return nil
		}
	}
}

// readLine returns the next line with its end, and io.EOF with the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("is longer than %d MiB", maxLine>>20)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

type importer struct {
	head   *layer.Head[*Graph]
	limits Settings
	c      change
	size   int
}

// add takes one line. Entities are not looked for: the reference reads a file
// as it stands.
func (im *importer) add(line []byte) error {
	if !json.Valid(line) {
		return errors.New("is not JSON")
	}
	var a args
	m := a.object(line, "")
	if m == nil {
		return errors.New("is not a JSON object")
	}
	switch kind := a.string(m["type"], "type"); {
	case len(a.problems) > 0:
	case kind == "entity":
		if len(im.c.Relations) > 0 { // in one change entities come first
			if err := im.flush(); err != nil {
				return err
			}
		}
		if e := a.entity(line, ""); len(a.problems) == 0 {
			im.c.Entities = append(im.c.Entities, e)
		}
	case kind == "relation":
		if r := a.relation(line, ""); len(a.problems) == 0 {
			im.c.Relations = append(im.c.Relations, r)
		}
	default:
		return fmt.Errorf("has the type %.40q; there are entity and relation", kind)
	}
	if len(a.problems) > 0 {
		return errors.New(a.problems[0])
	}
	im.size += len(line)
	return nil
}

func (im *importer) flush() error {
	c := im.c
	im.c, im.size = change{}, 0
	_, err := im.head.Commit(commit(func(g *Graph) (*change, error) {
		if err := im.limits.entities(g, c.Entities); err != nil {
			return nil, err
		}
		return &c, im.limits.relations(g, c.Relations)
	}))
	return err
}
