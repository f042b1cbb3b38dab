package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// size is a number of bytes in words, empty for none.
func size(bytes int64) string {
	switch {
	case bytes == 0:
		return ""
	case bytes < 1<<20:
		return fmt.Sprintf("%d KiB", (bytes+1023)>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

func (l Limits) hold(bytes int64, files int) error {
	switch {
	case bytes > l.Bytes:
		return driver.Final(fmt.Errorf("%w: it has more than %s; use a smaller package", ErrLimit, size(l.Bytes)))
	case files > l.Files:
		return driver.Final(fmt.Errorf("%w: it has more than %d files; use a smaller package", ErrLimit, l.Files))
	}
	return nil
}

// measure adds up a tree, which may change meanwhile.
func measure(dir string) (bytes int64, files int, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		if d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				bytes += st.Size()
			}
		}
		return nil
	})
	return bytes, files, err
}

// logEvery is between two lines of a log on one fetch.
const logEvery = 10 * time.Second

// watch holds a fetch to its limits and tells how far it is, until rest is
// called. What installers download and what they unpack is counted apart, since
// the same bytes are in both.
func (f *fetching) watch(ctx context.Context, cancel context.CancelCauseFunc, p *progress) (rest func()) {
	stop := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		began, looked, cost := time.Now(), time.Now(), time.Duration(0)
		var logged time.Time
		var bytes int64
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Looking at a large tree takes a while; it must not take most of the time.
			if time.Since(looked) >= 10*cost {
				at := time.Now()
				bytes = 0
				for _, dir := range []string{f.tree, f.home} {
					b, files, _ := measure(dir)
					bytes = max(bytes, b)
					if err := f.store.opts.Limits.hold(b, files); err != nil {
						cancel(err)
						return
					}
				}
				looked, cost = time.Now(), time.Since(at)
				counted := bytes
				if strings.HasPrefix(f.step.Load().(string), "uv ") { // which says it itself
					counted = 0
				}
				p.set(counted, f.out)
			}
			if time.Since(logged) < logEvery {
				continue
			}
			logged = time.Now()
			f.store.opts.Log.Info(logFetching, "package", mask(f.w.Package), "step", f.step.Load(), "size", size(bytes), "for", time.Since(began).Round(time.Second), "says", f.out.news())
		}
	})
	return func() { close(stop); over.Wait() }
}

// settle makes all that is below a folder readable by every user that it is shown to. It
// stays its owner's to write: it is shown read-only, and a program whose user is shown
// as the owner may write beside itself where that is kept in memory.
func settle(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		switch {
		case d.IsDir():
			// Before it is read: one may be closed to us.
			return os.Chmod(path, 0o755)
		case d.Type().IsRegular():
			st, err := d.Info()
			if err != nil {
				return err
			}
			if st.Mode().Perm()&0o111 != 0 {
				return os.Chmod(path, 0o755)
			}
			return os.Chmod(path, 0o644)
		}
		return nil
	})
}
