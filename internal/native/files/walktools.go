package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/files/glob"
	"github.com/tine-mcp/tine/internal/workspace"
)

// errEnough ends a walk that is over a limit.
var errEnough = errors.New("enough")

// A walk is one tree or search: what it may still look at and write.
type walk struct {
	s       *server
	ctx     context.Context // of the call, which a walk never outlives
	entries int
	bytes   int64
	full    string // which limit ended it
	out     strings.Builder
}

func (s *server) newWalk(ctx context.Context) *walk {
	return &walk{s: s, ctx: ctx, entries: s.maxEntries, bytes: s.maxRead}
}

// look counts an entry.
func (w *walk) look() error {
	if w.entries--; w.entries < 0 {
		w.full = fmt.Sprintf("after looking at %d entries", w.s.maxEntries)
		return errEnough
	}
	return w.ctx.Err()
}

// room counts bytes that are to be written.
func (w *walk) room(n int) error {
	if w.bytes -= int64(n); w.bytes < 0 {
		w.full = fmt.Sprintf("at the %d bytes that one call returns", w.s.maxRead)
		return errEnough
	}
	return nil
}

func compile(patterns []string) ([]*glob.Glob, error) {
	var out []*glob.Glob
	for _, p := range patterns {
		g, err := glob.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("pattern %.40q: %w", p, err)
		}
		out = append(out, g)
	}
	return out, nil
}

func anyMatch(globs []*glob.Glob, name string) (bool, error) {
	for _, g := range globs {
		if hit, err := g.Match(name); hit || err != nil {
			return hit, err
		}
	}
	return false, nil
}

func (s *server) search(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	asked, pattern, excluded := a.text("path"), a.text("pattern"), a.texts("excludePatterns")
	if a.err != nil {
		return nil, a.err
	}
	globs, err := compile(append([]string{pattern}, excluded...))
	if err != nil {
		return nil, err
	}
	p, list, err := s.directory(asked)
	if err != nil {
		return nil, err
	}
	w := s.newWalk(ctx)
	err = w.search(p.name, "", list, globs[0], globs[1:])
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	found := w.out.String()
	switch {
	case w.full != "":
		found += fmt.Sprintf("(not all: the search stopped %s; search a directory below, or exclude more)", w.full)
	case found == "":
		found = "No matches found"
	default:
		found = strings.TrimSuffix(found, "\n")
	}
	return text(found), nil
}

// search writes the matches below dir, whose name from where the search began is
// below.
func (w *walk) search(dir, below string, list []workspace.Info, pattern *glob.Glob, excluded []*glob.Glob) error {
	for _, e := range list {
		if err := w.look(); err != nil {
			return err
		}
		name, rel := path.Join(dir, e.Name), path.Join(below, e.Name)
		if e.Mode&fs.ModeSymlink != 0 {
			// One that leads out or nowhere is not there.
			if _, err := w.s.resolve(name); err != nil {
				continue
			}
		}
		if left, err := anyMatch(excluded, rel); err != nil {
			return err
		} else if left {
			continue
		}
		hit, err := pattern.Match(rel)
		if err != nil {
			return err
		}
		if hit {
			line := decode([]byte(w.s.shown(name))) + "\n"
			if err := w.room(len(line)); err != nil {
				return err
			}
			w.out.WriteString(line)
		}
		if !e.Mode.IsDir() {
			continue
		}
		inner, err := w.s.tree.ReadDir(name)
		if err != nil {
			continue // it can't be read, or is gone
		}
		if err := w.search(name, rel, inner, pattern, excluded); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) directoryTree(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	asked, patterns := a.text("path"), a.texts("excludePatterns")
	if a.err != nil {
		return nil, a.err
	}
	var all []string
	for _, p := range patterns {
		all = append(all, p)
		if !strings.Contains(p, "*") {
			// A plain name is meant wherever it is.
			all = append(all, "**/"+p, "**/"+p+"/**")
		}
	}
	excluded, err := compile(all)
	if err != nil {
		return nil, err
	}
	p, list, err := s.directory(asked)
	if err != nil {
		return nil, err
	}
	w := s.newWalk(ctx)
	if err := w.tree(p.name, "", list, excluded, 0); err != nil {
		return nil, err
	}
	return text(w.out.String()), nil
}

// tree writes a directory as a JSON array. When a limit is met the open arrays are
// closed, and the outermost ends with a note.
func (w *walk) tree(dir, below string, list []workspace.Info, excluded []*glob.Glob, depth int) error {
	in := strings.Repeat("  ", depth)
	written := 0
	begin := func() {
		if written++; written == 1 {
			w.out.WriteString("[\n")
		} else {
			w.out.WriteString(",\n")
		}
		w.out.WriteString(in + "  {\n")
	}
	for _, e := range list {
		if w.full != "" {
			break
		}
		name, rel := path.Join(dir, e.Name), path.Join(below, e.Name)
		err := w.look()
		if err == nil {
			var left bool
			if left, err = anyMatch(excluded, rel); left {
				continue
			}
		}
		label := quote(decode([]byte(e.Name)))
		if err == nil {
			err = w.room(len(label) + 4*len(in) + 60)
		}
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return err
		}
		kind := "file"
		var inner []workspace.Info
		if e.Mode.IsDir() {
			kind = "directory"
			if inner, err = w.s.tree.ReadDir(name); errors.Is(err, fs.ErrNotExist) {
				continue // it went meanwhile
			} else if err != nil {
				return w.s.fail(err, "scandir", name)
			}
		}
		begin()
		fmt.Fprintf(&w.out, "%s    \"name\": %s,\n%s    \"type\": \"%s\"", in, label, in, kind)
		if e.Mode.IsDir() {
			fmt.Fprintf(&w.out, ",\n%s    \"children\": ", in)
			if err := w.tree(name, rel, inner, excluded, depth+2); err != nil {
				return err
			}
		}
		fmt.Fprintf(&w.out, "\n%s  }", in)
	}
	if w.full != "" && depth == 0 {
		note := "(not all: the tree stopped " + w.full + "; ask for a directory below, or exclude more)"
		begin()
		fmt.Fprintf(&w.out, "    \"name\": %s,\n    \"type\": \"note\"\n  }", quote(note))
	}
	if written == 0 {
		w.out.WriteString("[]")
	} else {
		w.out.WriteString("\n" + in + "]")
	}
	return nil
}

// quote writes a string as JavaScript writes JSON, which escapes less than Go.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ':
			if i := strings.IndexRune("\b\t\n\f\r", r); i >= 0 {
				b.WriteByte('\\')
				b.WriteByte("btnfr"[i])
			} else {
				fmt.Fprintf(&b, "\\u%04x", r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
