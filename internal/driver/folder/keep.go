package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// Fill makes a folder that is not there and has it filled. Where that fails
// nothing of it is left.
func Fill(dir string, fill func() error) error {
	if err := New(dir); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return errors.Join(err, clone.Remove(dir))
	}
	return nil
}

// FillState is Fill for the state of an instance. An empty folder may be in its
// place.
func FillState(dir string, fill func() error) error {
	if dir == "" {
		return errors.New("there is no folder for it")
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is something in its place: %w", err)
	}
	return Fill(dir, fill)
}

// Discard removes a snapshot that is a folder and nothing else.
func Discard(s driver.Snapshot) error {
	if s.Dir == "" {
		return nil
	}
	if err := clone.Remove(s.Dir); err != nil {
		return fmt.Errorf("server %q: discard its snapshot: %w", s.Server, err)
	}
	return nil
}

// Erase removes a state that is a folder and nothing else.
func Erase(spec driver.Spec) error {
	if spec.State == "" {
		return nil
	}
	if err := clone.Remove(spec.State); err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	}
	return nil
}
