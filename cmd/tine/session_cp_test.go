package main

import (
	"archive/tar"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestTarNotes reads what the root at the end of a folder's tar says.
func TestTarNotes(t *testing.T) {
	folder := func(key, text string) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []*tar.Header{
			{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
			{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644},
			{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755, PAXRecords: map[string]string{key: text}},
		} {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		return &b
	}
	done, leftOut, err := unpackFolder(folder(api.TarLeftOut, `["pipe","d/s"]`), t.TempDir())
	if err != nil || done.Files != 1 || !slices.Equal(leftOut, []string{"pipe", "d/s"}) {
		t.Errorf("%+v, left out %q, %v", done, leftOut, err)
	}
	_, _, err = unpackFolder(folder(api.TarError, `{"kind":"lost","message":"the sandbox is gone"}`), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "broke off: the sandbox is gone") {
		t.Errorf("a copy that broke off: %v", err)
	}
}
