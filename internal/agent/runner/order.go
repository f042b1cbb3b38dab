package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
)

// The streams of a program: what it prints, and the events that it posts.
const (
	streamOut    byte = 'o'
	streamErr    byte = 'e'
	streamPosted byte = 'p'
)

// step says that a stream was read up to a place, and its events were reported.
type step struct {
	stream byte
	to     int64
}

// order is the steps of a turn, in a file: the events of all streams are numbered in
// one row, and a reading after a restart must come to the same numbers. A step is
// written before its events are reported. It need not survive a power cut, which
// the program does not survive either.
type order struct {
	f     *os.File
	steps []step // of earlier readings
}

// openOrder reads the steps. One that was cut by a kill is none: its events were not
// reported.
func openOrder(path string) (*order, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read how far the run was followed: %w", err)
	}
	o := &order{}
	whole := bytes.LastIndexByte(text, '\n') + 1
	for line := range bytes.Lines(text[:whole]) {
		if len(line) < 4 || !slices.Contains([]byte{streamOut, streamErr, streamPosted}, line[0]) || line[1] != ' ' {
			return nil, fmt.Errorf("the file %s is damaged: %q", path, line)
		}
		to, err := strconv.ParseInt(string(line[2:len(line)-1]), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the file %s is damaged: %w", path, err)
		}
		o.steps = append(o.steps, step{line[0], to})
	}
	if o.f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("note how far the run was followed: %w", err)
	}
	if err := o.f.Truncate(int64(whole)); err != nil {
		o.f.Close()
		return nil, fmt.Errorf("note how far the run was followed: %w", err)
	}
	return o, nil
}

func (o *order) note(s step) error {
	line := strconv.AppendInt([]byte{s.stream, ' '}, s.to, 10)
	if _, err := o.f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("note how far the run was followed: %w", err)
	}
	return nil
}

func (o *order) close() { o.f.Close() }
