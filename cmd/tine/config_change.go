package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// configToChange is the full path of the config file that a command writes to, and its
// initial content if it is missing; nil if it must exist. If no config is named or
// found, it is the first file that "tine serve" looks for here, and begins with the
// built-in defaults, which would be lost otherwise.
func (c *cli) configToChange(ctx context.Context, flag string) (path string, begin []byte, err error) {
	path = cmp.Or(flag, c.getenv("TINE_CONFIG"))
	begin = config.Empty(path)
	if path == "" {
		begin = nil
		if path, err = c.runningConfig(ctx); err != nil {
			return "", nil, err
		}
		if path == "" {
			path, err = c.findConfig("")
		}
		if path == "" && err == nil {
			path, begin = c.configSearch()[0], config.Standard()
		}
		if err != nil {
			return "", nil, err
		}
	}
	path, err = filepath.Abs(path)
	return path, begin, err
}

// runningConfig is the config of the gateway that the other commands would use;
// empty when none runs on the state folder, or it has the built-in defaults.
func (c *cli) runningConfig(ctx context.Context) (string, error) {
	url := c.flags.url
	if url == "" {
		url = c.getenv("TINE_URL")
	}
	var run *gatewayFile
	if state, err := c.stateDir(); err == nil {
		run = c.running(ctx, state, "", false)
	}
	switch {
	case url != "" && (run == nil || !sameURL(url, run.URL)):
		return "", usagef("the config file of the gateway at %s is not known; name it with --config, on its machine", url)
	case run == nil:
		return "", nil
	}
	return run.Config, nil
}

// changeWait is how long another process may take to change the same file.
const changeWait = 2 * time.Second

// replaceFile replaces the content of a file as a whole with the result of change. Its
// mode and owner stay. A missing file begins as empty, with the given mode, or is an
// error if empty is nil. Of two processes that change a file at once the second waits.
func (c *cli) replaceFile(ctx context.Context, path string, empty []byte, mode fs.FileMode, change func([]byte) ([]byte, error)) (made bool, err error) {
	f, err := c.newBeside(ctx, path, mode)
	if err != nil {
		return false, err
	}
	defer func() {
		f.Close() // a second close does no harm
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && empty != nil:
		info = nil
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("there is no file %s", path)
	case err != nil:
		return false, err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := filepath.EvalSymlinks(path)
		if err != nil {
			return false, fmt.Errorf("%s is a link that leads nowhere: %w; mend it", path, err)
		}
		return false, fmt.Errorf("%s is a link, which would be replaced; name what it leads to: --config %s", path, shellWord(to))
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a file; name one with --config", path)
	}
	old := empty
	if info != nil {
		if old, err = readFile(path, maxConfig); err != nil {
			return false, err
		}
	}
	text, err := change(old)
	if err != nil {
		return false, err
	}
	if info != nil { // before anything is in it that others may not read
		if err := keepOwner(f, info); err != nil {
			return false, fmt.Errorf("%s belongs to another user, and can't be given back to that user: %w; run this as its owner", path, err)
		}
		if err := f.Chmod(info.Mode().Perm()); err != nil {
			return false, fmt.Errorf("give the new config the mode of the old one: %w", err)
		}
	}
	if _, err := f.Write(text); err != nil {
		return false, fmt.Errorf("write the new config: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return false, fmt.Errorf("write the new config: %w", err)
	}
	// An editor does not wait.
	now, err := readFile(path, maxConfig)
	if info == nil && !errors.Is(err, fs.ErrNotExist) || info != nil && (err != nil || !bytes.Equal(now, old)) {
		return false, fmt.Errorf("%s was changed by another program meanwhile; try again", path)
	}
	return info == nil, os.Rename(f.Name(), path)
}

// newBeside makes the file that replaces another. There is one at a time, so that
// no change is lost.
func (c *cli) newBeside(ctx context.Context, path string, mode fs.FileMode) (*os.File, error) {
	beside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tine-new")
	giveUp := time.Now().Add(changeWait)
	for {
		f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, fmt.Errorf("write beside %s: %w", path, err)
		case time.Now().After(giveUp):
			return nil, fmt.Errorf("%s is being changed by another tine process, or one was killed meanwhile; if none runs, remove %s", path, beside)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
