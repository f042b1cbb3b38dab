package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func get(t *testing.T, s *Store, path string) Image {
	t.Helper()
	img, err := s.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestAnArchiveIsReadOnce(t *testing.T) {
	s := newStore(t)
	at := place(t, tarOf(t, reg("a", "1")))
	info, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	first := get(t, s, at)
	// A file at its place that looks the same is not read again.
	b, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(at, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(make([]byte, len(b)))
	}
	if err = errors.Join(err, f.Close(), os.Chtimes(at, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	again := &Store{Dir: s.Dir} // after a restart too
	if img := get(t, again, at); img.Digest != first.Digest {
		t.Errorf("it was read again: %+v", img)
	}
}

func TestAnArchiveThatChangedIsAnotherImage(t *testing.T) {
	s := newStore(t)
	at := place(t, tarOf(t, reg("a", "1")))
	first := get(t, s, at)
	replaceWith(t, at, tarOf(t, reg("a", "2")), 2*time.Hour)
	second := get(t, s, at)
	if first.Digest == second.Digest || describe(t, second.Dir) != "a=2" || describe(t, first.Dir) != "a=1" {
		t.Errorf("%+v, %+v", first, second)
	}
}

func TestAnArchiveThatWasJustWrittenIsNotRemembered(t *testing.T) {
	s := newStore(t)
	at := place(t, tarOf(t, reg("a", "1")))
	replaceWith(t, at, tarOf(t, reg("a", "1")), 0)
	get(t, s, at)
	if left, _ := filepath.Glob(filepath.Join(s.Dir, "*"+seenSuffix)); len(left) != 0 {
		t.Errorf("its time is too new to differ from the next: %q", left)
	}
}

func TestAnImageThatIsDamagedIsUnpackedAgain(t *testing.T) {
	s := newStore(t)
	at := place(t, tarOf(t, reg("a", "1")))
	for name, spoil := range map[string]func(dir string) error{
		"no record": func(dir string) error { return os.Remove(filepath.Join(dir, recordName)) },
		"another version": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, recordName), []byte(`{"version": 0}`), 0o600)
		},
		"no record that can be read": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, recordName), []byte(`{`), 0o600)
		},
		"no root": func(dir string) error { return os.RemoveAll(filepath.Join(dir, rootName)) },
	} {
		img := get(t, s, at)
		if err := spoil(filepath.Dir(img.Dir)); err != nil {
			t.Fatal(err)
		}
		if got := describe(t, get(t, s, at).Dir); got != "a=1" {
			t.Errorf("%s: got %s", name, got)
		}
	}
	alone(t, s)
}

func TestOneThatIsCutLeavesNothing(t *testing.T) {
	s := newStore(t)
	at := place(t, saved(t, tarOf(t, reg("a", "1"))))
	info, err := os.Stat(at)
	if err = errors.Join(err, s.open()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.Progress = func(string) { cancel() } // when the first part is there
	if _, err := s.image(ctx, stampOf(at, info), strings.Repeat("a", 64)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	alone(t, s)
	if _, err := s.Get(ctx, at); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.Progress = nil
	if got := describe(t, get(t, s, at).Dir); got != "a=1" {
		t.Errorf("got %s", got)
	}
}

func TestItLastsWhereTheSystemCanSeeToThat(t *testing.T) {
	s := newStore(t)
	s.sync = nil
	if got := describe(t, get(t, s, place(t, tarOf(t, reg("a", "1")))).Dir); got != "a=1" {
		t.Errorf("got %s", got)
	}
	s.sync = func(string) error { return errors.New("the disk is gone") }
	if _, err := s.Get(t.Context(), place(t, tarOf(t, reg("a", "2")))); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("got %v", err)
	}
	alone(t, s)
}

func TestSweepRemovesWhatWasCut(t *testing.T) {
	s := newStore(t)
	img := get(t, s, place(t, tarOf(t, reg("a", "1"))))
	cut := filepath.Join(s.Dir, strings.Repeat("0", 64)+".abc.part")
	if err := os.MkdirAll(filepath.Join(cut, "root", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(cut, "root"), 0o555); err != nil {
		t.Fatal(err)
	}
	goes := filepath.Join(s.Dir, "goes.on.part")
	if err := os.Mkdir(goes, 0o700); err != nil {
		t.Fatal(err)
	}
	s.hold(goes, true)
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(cut); !os.IsNotExist(err) {
		t.Errorf("what was cut is still there: %v", err)
	}
	if _, err := os.Lstat(goes); err != nil {
		t.Errorf("what goes on was removed: %v", err)
	}
	if got := describe(t, img.Dir); got != "a=1" {
		t.Errorf("got %s", got)
	}
	if err := (&Store{Dir: filepath.Join(t.TempDir(), "none")}).Sweep(); err != nil {
		t.Errorf("without a folder: %v", err)
	}
}
