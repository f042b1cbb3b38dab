package folder_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

func write(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFillLeavesAllOrNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, fill := range map[string]func(dir string, do func() error) error{
		"folder": folder.Fill,
		"state":  folder.FillState,
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "a", "b")
		put := func() error { return os.WriteFile(filepath.Join(dir, "file"), nil, 0o400) }
		if err := fill(dir, func() error { return errors.Join(put(), broken) }); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if got := names(t, filepath.Dir(dir)); len(got) != 0 {
			t.Errorf("%s: left of a failed one: %q", name, got)
		}
		if err := fill(dir, put); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := fill(dir, func() error { t.Errorf("%s: another was filled", name); return broken }); err == nil || errors.Is(err, broken) {
			t.Errorf("%s: over another: %v", name, err)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("%s: it holds %q", name, got)
		}
	}
}

func TestAStateMayTakeThePlaceOfAnEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	if err := folder.FillState(dir, func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := folder.Fill(dir, func() error { return nil }); err == nil {
		t.Error("what is no state did so too")
	}
	if err := folder.FillState("", func() error { return nil }); err == nil {
		t.Error("a state without a folder was made")
	}
}

func TestDiscardAndErase(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"discard": func(dir string) error { return folder.Discard(driver.Snapshot{Dir: dir}) },
		"erase":   func(dir string) error { return folder.Erase(driver.Spec{State: dir}) },
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "a")
		write(t, filepath.Join(dir, "locked"), "file")
		if err := os.Chmod(filepath.Join(dir, "locked"), 0o500); err != nil {
			t.Fatal(err)
		}
		for range 2 { // twice is fine
			if err := remove(dir); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := names(t, root); len(got) != 0 {
			t.Errorf("%s: left %q", name, got)
		}
		if err := remove(""); err != nil {
			t.Errorf("%s without a folder: %v", name, err)
		}
	}
}
