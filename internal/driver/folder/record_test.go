package folder_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

type note struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

var notes = folder.Records[note]{File: "note.json", What: "note", Is: func(n note) bool { return n.Name != "" }}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := notes.Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a folder without one: %v", err)
	}
	for _, want := range []note{{"a", 1}, {"b", 2}} { // the second replaces the first
		if err := notes.Write(dir, want); err != nil {
			t.Fatal(err)
		}
		if got, err := notes.Read(dir); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if err := notes.Write(filepath.Join(dir, "none"), note{Name: "a"}); err == nil || !strings.Contains(err.Error(), "the record of the note") {
		t.Errorf("into a folder that is not there: %v", err)
	}
}

func TestWhatIsNoRecordIsRefused(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "{}", `{"size": 3}`, `{"name": 3}`} {
		if got, err := notes.Parse([]byte(text)); err == nil || got != (note{}) || !strings.Contains(err.Error(), "the record of the note") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestTheRecordOfAHandle(t *testing.T) {
	kept, torn, empty := t.TempDir(), t.TempDir(), t.TempDir()
	if err := notes.Write(kept, note{Name: "folder"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(torn, notes.File), []byte(`{"na`), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := notes.Data(note{Name: "handle"})
	for name, tt := range map[string]struct {
		h    driver.Handle
		want string // empty where it is gone
		says string
	}{
		"both":             {driver.Handle{Dir: kept, Data: whole}, "handle", ""},
		"handle alone":     {driver.Handle{Dir: empty, Data: whole}, "handle", ""},
		"folder alone":     {driver.Handle{Dir: kept}, "folder", ""},
		"a damaged handle": {driver.Handle{Dir: kept, Data: whole[:5]}, "folder", ""},
		"neither":          {driver.Handle{Dir: empty}, "", "which note it was"},
		"both damaged":     {driver.Handle{Dir: torn, Data: whole[:5]}, "", "which note it was"},
		"no folder":        {driver.Handle{Data: whole}, "", "names no folder"},
		"half a path":      {driver.Handle{Dir: "here", Data: whole}, "", "names no folder"},
	} {
		got, err := notes.Of(tt.h)
		if got.Name != tt.want || (tt.want == "") != errors.Is(err, driver.ErrGone) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v does not say %q", name, err, tt.says)
		}
	}
}
