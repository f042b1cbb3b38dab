//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// gVisor counts how often a sandbox was paused, and one that is resumed once too
// often dies of it. What it writes down itself comes after the deed, and not whole
// or not at all. So a mark is there from before a sandbox is paused until after it
// was resumed: the helper after one that was killed in between knows that it has
// to look.

// mark is the file that is there while a sandbox may be paused.
func (b *box) mark() string { return filepath.Join(b.conf.RootDir, b.c.ID+".paused") }

// pause lets nothing in the sandbox run.
func (b *box) pause() error {
	if err := b.look(); err != nil || b.paused {
		return err
	}
	if b.gone {
		return errors.New("it is not there any more")
	}
	if err := os.WriteFile(b.mark(), nil, 0o600); err != nil {
		return err
	}
	if err := b.c.Sandbox.Pause(b.c.ID); err != nil {
		b.known = false
		if !isOf(b.pid, b.c.ID) { // it has ended, and its removal may have begun
			_ = b.unmark()
		}
		return err
	}
	b.paused = true
	return nil
}

// resume lets it go on.
func (b *box) resume() error {
	if err := b.look(); err != nil {
		return err
	}
	if b.paused {
		if err := b.c.Sandbox.Resume(b.c.ID); err != nil {
			b.known = false
			return err
		}
		b.paused = false
	}
	return b.unmark()
}

func (b *box) unmark() error {
	if err := os.Remove(b.mark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// look finds out whether the sandbox is paused, where that is not known.
func (b *box) look() error {
	if b.known {
		return nil
	}
	_, err := os.Lstat(b.mark())
	if err == nil {
		stacks, err := b.c.Sandbox.Stacks()
		if err != nil {
			return fmt.Errorf("find out whether it is paused: %w", err)
		}
		b.paused = stopped(stacks)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b.known = true
	return nil
}

// stopped reports whether every task of the program stands still, by what gVisor's
// threads for them wait for.
func stopped(stacks string) bool {
	tasks := 0
	for one := range strings.SplitSeq(stacks, "\n\n") {
		if !strings.Contains(one, "kernel.(*Task).run(") {
			continue
		}
		if tasks++; !strings.Contains(one, "kernel.(*Task).doStop(") {
			return false
		}
	}
	return tasks > 0
}
