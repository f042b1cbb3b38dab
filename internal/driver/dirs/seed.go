package dirs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// From is a snapshot's part of what directories are seeded from. The zero value
// is none.
type From struct {
	Dirs   Set
	Folder string // where they are
	Take   bool   // they may be used up
}

// A Seeding is directories that are to be made.
type Seeding struct{ all []*seedling }

// seedling is one directory.
type seedling struct {
	to   string
	from string // what it is a copy of; empty for nothing
	take bool   // from may be used up
	took bool
}

// Plan says what each declared directory of a server is made from: from the
// snapshot, from its template, or from nothing. It makes nothing yet.
func Plan(server string, declared []driver.StateDir, folder string, from From) (*Seeding, error) {
	known := make(map[string]bool)
	plan := new(Seeding)
	for _, dir := range declared {
		if err := CheckName(dir.Name); err != nil {
			return nil, err
		}
		known[dir.Name] = true
		s := &seedling{to: filepath.Join(folder, dir.Name)}
		there, frozen := from.Dirs[dir.Name]
		switch {
		case frozen && !there:
			continue // the server had removed it
		case frozen:
			s.from, s.take = filepath.Join(from.Folder, dir.Name), from.Take
		case dir.Template != "":
			template, err := templateDir(dir.Template)
			if err != nil {
				return nil, fmt.Errorf("directory %q: %w; mend its template in servers.%s.state", dir.Name, err, server)
			}
			s.from = template
		}
		plan.all = append(plan.all, s)
	}
	for name := range from.Dirs {
		if !known[name] {
			return nil, fmt.Errorf("the snapshot has the directory %q, which would be lost; add it to servers.%s.state", name, server)
		}
	}
	return plan, nil
}

// templateDir resolves a template, which may be a link: the config means where it
// leads.
func templateDir(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("template %q: %w", path, err)
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("template %q: %w", path, err)
	}
	if !st.IsDir() {
		return "", fmt.Errorf("template %q is not a directory", path)
	}
	return real, nil
}

// Empty reports whether there is nothing to be made.
func (p *Seeding) Empty() bool { return len(p.all) == 0 }

// Make makes the directories in their folder, which is there. Where it fails, or
// what comes after it, GiveBack is called, and the folder removed.
func (p *Seeding) Make(ctx context.Context, progress func(done, total int64)) error {
	progressOf, err := p.meter(progress)
	if err != nil {
		return err
	}
	for _, s := range p.all {
		if err := s.make(ctx, clone.Options{Progress: progressOf(s)}); err != nil {
			return fmt.Errorf("directory %q: %w", filepath.Base(s.to), err)
		}
	}
	return ctx.Err()
}

// GiveBack undoes what was taken, as far as it can be.
func (p *Seeding) GiveBack() {
	for _, s := range p.all {
		if s.took {
			os.Rename(s.to, s.from)
			s.took = false
		}
	}
}

// make makes the directory, private whatever it is a copy of.
func (s *seedling) make(ctx context.Context, o clone.Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case s.from == "":
		return os.Mkdir(s.to, 0o700)
	case s.take:
		// A rename fails between filesystems, and for directories that may not
		// be written to.
		err := os.Rename(s.from, s.to)
		if s.took = err == nil; s.took {
			break
		}
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		fallthrough
	default:
		if err := clone.Tree(ctx, s.to, s.from, o); err != nil {
			return err
		}
	}
	return os.Chmod(s.to, 0o700)
}

// meter measures all that is to be copied, and returns the progress function of each
// piece; nil where progress is not wanted.
func (p *Seeding) meter(progress func(done, total int64)) (func(*seedling) func(done, total int64), error) {
	if progress == nil {
		return func(*seedling) func(int64, int64) { return nil }, nil
	}
	var total int64
	begin := make(map[*seedling]int64)
	for _, s := range p.all {
		begin[s] = total
		if s.from == "" || s.take {
			continue
		}
		n, _, err := clone.Size(s.from)
		if err != nil {
			return nil, err
		}
		total += n
	}
	return func(s *seedling) func(int64, int64) {
		return func(done, _ int64) {
			at := begin[s] + done
			progress(at, max(total, at))
		}
	}, nil
}
