package process

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

// seedling is one directory of a state that is to be made.
type seedling struct {
	to   string
	from string // what it is a copy of; empty for nothing
	take bool   // from may be used up
	took bool
}

// planSeed says what each declared directory is made from.
func planSeed(spec driver.Spec, src driver.Source) ([]*seedling, error) {
	var snap frozen
	if src.From != nil {
		var err error
		if snap, err = thaw(*src.From); err != nil {
			return nil, err
		}
	}
	declared := make(map[string]bool)
	var plan []*seedling
	for _, dir := range spec.Dirs {
		if err := checkName(dir.Name); err != nil {
			return nil, err
		}
		declared[dir.Name] = true
		s := &seedling{to: filepath.Join(spec.State, dir.Name)}
		there, known := snap.Dirs[dir.Name]
		switch {
		case known && !there:
			continue // the server had removed it
		case known:
			s.from, s.take = filepath.Join(src.From.Dir, dir.Name), src.Take
		case dir.Template != "":
			from, err := templateDir(dir.Template)
			if err != nil {
				return nil, fmt.Errorf("directory %q: %w; mend its template in servers.%s.state", dir.Name, err, spec.Server)
			}
			s.from = from
		}
		plan = append(plan, s)
	}
	for name := range snap.Dirs {
		if !declared[name] {
			return nil, fmt.Errorf("the snapshot has the directory %q, which would be lost; add it to servers.%s.state", name, spec.Server)
		}
	}
	return plan, nil
}

// templateDir resolves a template, which may be a link: whoever wrote the config
// meant where it leads.
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

// giveBack undoes a take, as far as it can be.
func (s *seedling) giveBack() {
	if s.took {
		os.Rename(s.to, s.from)
	}
}

// meter measures all that is to be copied, and returns what to tell the progress
// of each piece to; nil where nobody wants to know.
func meter(plan []*seedling, progress func(done, total int64)) (func(*seedling) func(done, total int64), error) {
	if progress == nil {
		return func(*seedling) func(int64, int64) { return nil }, nil
	}
	var total int64
	begin := make(map[*seedling]int64)
	for _, s := range plan {
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
