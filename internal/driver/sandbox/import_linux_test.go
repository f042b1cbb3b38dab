//go:build amd64 || arm64

package sandbox

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/parcel/parceltest"
)

func TestExportAndImport(t *testing.T) {
	d, dir := keeper(t, Options{}), t.TempDir()
	spec := specAt(filepath.Join(dir, "state"))
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	put(t, dirsOf(spec.State, "data", "a/b"), "b")
	b := newBrain("a thought")
	b.unread = "half \x00 a li"
	snap := frozen(t, d, spec, b)
	var out bytes.Buffer
	if err := d.Export(t.Context(), snap, &out); err != nil {
		t.Fatal(err)
	}
	got, err := d.Import(t.Context(), "other", filepath.Join(dir, "deep/imported"), bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Server != "other" || got.Carries != driver.CarryMemory || got.Size == 0 || len(got.Hello) > 0 {
		t.Errorf("imported as %+v", got)
	}
	was, is := recorded(t, snap.Dir).Image, recorded(t, got.Dir).Image
	if is.ID == was.ID || is.ID == "" {
		t.Errorf("it is called %q as the other", is.ID)
	}
	if string(is.Unread) != b.unread || is.Runsc != was.Runsc || is.Base != was.Base || is.Program != was.Program || is.Size != was.Size || is.GVisor != was.GVisor {
		t.Errorf("imported %+v, was %+v", is, was)
	}
	child := specAt(filepath.Join(dir, "child"))
	if err := d.Seed(t.Context(), child, driver.Source{From: &got, Take: true}); err != nil {
		t.Fatal(err)
	}
	reads(t, filepath.Join(imageOf(child.State), "pages.img"), "a thought")
	reads(t, dirsOf(child.State, "data", "a/b"), "b")
	if r := recorded(t, child.State); string(r.Hello) != string(greetingText) {
		t.Errorf("the child has %+v", r)
	}

	// Of nothing there is an export, too.
	out.Reset()
	if err := d.Export(t.Context(), driver.Snapshot{Driver: driverName}, &out); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Import(t.Context(), "other", filepath.Join(dir, "void"), &out); err != nil || got.Carries != driver.CarryFiles {
		t.Errorf("imported as %+v: %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(imageOf(snap.Dir), "pages.img"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Export(t.Context(), snap, io.Discard); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("what is damaged is exported: %v", err)
	}
}

type entry = parceltest.Entry

var file, other = parceltest.File, parceltest.Other

// archive makes an export with this head, whose end is right.
func archive(t testing.TB, head string, entries ...entry) []byte {
	t.Helper()
	return parceltest.Whole(t, exportForm.Name, head, entries...)
}

// head is that of an export with a memory of six bytes, and more.
func head(image, more string) string {
	if image == "" {
		image = `{"id":"x","runsc":"` + builtHash + `","gvisor":"v1","arch":"` + runtime.GOARCH + `","size":6,"unread":"AAAA"}`
	}
	return `{"format":"tine sandbox state","version":1,"image":` + image + more + `}`
}

var whole = file("image/checkpoint.img", "kernel")

func TestImportTrustsNothing(t *testing.T) {
	sym, link := byte(tar.TypeSymlink), byte(tar.TypeLink)
	withImage := func(image string) []byte { return archive(t, head(image, ""), whole) }
	image := func(runsc, arch, more string) string {
		return `{"runsc":"` + runsc + `","arch":"` + arch + `","size":6` + more + `}`
	}
	good, arch := builtHash, runtime.GOARCH
	with := func(entries ...entry) []byte { return archive(t, head("", ""), append(entries, whole)...) }
	for name, test := range map[string]struct {
		stream []byte
		want   string
	}{
		"another format":     {archive(t, `{"format":"tine process state","version":1}`), "not a snapshot of a sandbox's state"},
		"another version":    {archive(t, `{"format":"tine sandbox state","version":9}`), "version 9"},
		"evil directory":     {archive(t, head("", `,"dirs":{"../x":true}`), whole), "can't be called"},
		"a directory less":   {archive(t, head("", `,"dirs":{"data":true}`), whole), `directory "data" is missing`},
		"no binary":          {withImage(image("", arch, "")), "which binary"},
		"a path of a binary": {withImage(image("../../bin/sh", arch, "")), "which binary"},
		"long version":       {withImage(image(good, arch, `,"gvisor":"`+strings.Repeat("x", 101)+`"`)), "not possible"},
		"odd version":        {withImage(image(good, arch, `,"gvisor":"\u001b[31m"`)), "not possible"},
		"odd machine":        {withImage(image(good, "../x", "")), "not possible"},
		"odd CPU":            {withImage(image(good, arch, `,"cpu":["a b"]`)), "not possible"},
		"a CPU of miracles":  {withImage(image(good, arch, `,"cpu":[`+strings.Repeat(`"a",`, maxFeatures)+`"a"]`)), "not possible"},
		"odd root":           {withImage(image(good, arch, `,"base":"../../../../etc"`)), "not possible"},
		"odd program":        {withImage(image(good, arch, `,"program":"x"`)), "not possible"},
		"of no size":         {withImage(`{"runsc":"` + good + `","arch":"` + arch + `"}`), "not possible"},
		"another build":      {withImage(image("fedcba9876543210", arch, "")), "it does not fit here"},
		"another machine":    {withImage(image(good, "vax", "")), "it does not fit here: it was made on another kind of machine (vax"},
		"another CPU":        {withImage(image(good, arch, `,"cpu":["avx9000"]`)), "the CPU here lacks avx9000"},
		"no memory":          {archive(t, head("", "")), "it has 0 bytes, and had 6"},
		"more of it":         {with(file("image/pages.img", "x")), "it has 7 bytes, and had 6"},
		"twice":              {with(whole), "no place"},
		"another file of it": {with(file("image/evil", "x")), "no place"},
		"below it":           {with(file("image/pages.img/x", "x")), "no place"},
		"out of it":          {with(file("image/../x", "x")), "no place"},
		"a link in it":       {with(other(sym, "image/pages.img", "/etc/passwd")), "not a file"},
		"a hard link in it":  {with(other(link, "image/pages.img", "/etc/passwd")), "not a file"},
		"a pipe for it":      {with(other(tar.TypeFifo, "image/pages.img", "")), "not a file"},
		"the record":         {with(file("state.json", "{}")), "no place"},
		"a link to dirs":     {with(other(sym, "dirs/data", "/")), "no place"},
		"two greetings":      {with(file("hello", "{}"), file("hello", "{}")), "no place"},
		"no greeting":        {with(file("hello", "hi")), "in its handshake"},
		"a list of them":     {with(file("hello", "[{}]")), "in its handshake"},
		"a long greeting":    {with(file("hello", `{"x":"`+strings.Repeat("x", maxHello)+`"}`)), "which is the limit"},
		"much unread":        {with(file("unread", strings.Repeat("x", maxUnread+1))), "which is the limit"},
		"unnamed memory":     {archive(t, `{"format":"tine sandbox state","version":1}`, whole), "no place"},
		"unnamed greeting":   {archive(t, `{"format":"tine sandbox state","version":1}`, file("hello", "{}")), "no place"},
		"too much":           {with(file("image/pages.img", strings.Repeat("x", 3<<20))), "which is the limit"},
		"too many":           {with(file("hello", "{}"), file("unread", "x"), file("image/pages.img", ""), file("image/pages_meta.img", "")), "more than 4 files, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			d := keeper(t, Options{ImportBytes: 2 << 20, ImportFiles: 4})
			d.helpers.current = "" // none is there but by its name
			d.opts.Binary = "/no/such"
			_, err := d.Import(t.Context(), "db", filepath.Join(parent, "snap"), bytes.NewReader(test.stream))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `server "db"`) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			holds(t, parent)
		})
	}
}

// What no head may say, and what fits this gateway alone.
func TestImportMakesItOurs(t *testing.T) {
	d, dir := keeper(t, Options{}), filepath.Join(t.TempDir(), "snap")
	s, err := d.Import(t.Context(), "db", dir, bytes.NewReader(archive(t, head("", ""), whole)))
	if err != nil {
		t.Fatal(err)
	}
	if i := recorded(t, dir).Image; i.ID == "x" || len(i.Unread) > 0 {
		t.Errorf("imported %+v", i)
	}
	// Its handshake is not known, unless the session has it.
	spec := driver.Spec{Server: "db", State: filepath.Join(t.TempDir(), "state")}
	if err := d.Seed(t.Context(), spec, driver.Source{From: &s}); err == nil || !strings.Contains(err.Error(), "handshake is not known") {
		t.Errorf("got %v", err)
	}
	s.Hello = greetingText
	if err := d.Seed(t.Context(), spec, driver.Source{From: &s}); err != nil {
		t.Error(err)
	}
}

// A memory that does not fit is left out where there are directories.
func TestImportWithoutMemory(t *testing.T) {
	d, dir := keeper(t, Options{}), filepath.Join(t.TempDir(), "snap")
	strange := `{"runsc":"` + builtHash + `","arch":"vax","size":6}`
	s, err := d.Import(t.Context(), "db", dir, bytes.NewReader(archive(t, head(strange, `,"dirs":{"data":true}`),
		file("hello", "{}"), file("unread", "x"), whole, other(tar.TypeDir, "dirs/data", ""), file("dirs/data/x", "x"))))
	if err != nil {
		t.Fatal(err)
	}
	if s.Carries != driver.CarryFiles || s.Size != 1 {
		t.Errorf("imported as %+v", s)
	}
	holds(t, dir, stateName, dirsName)
	child := specAt(filepath.Join(t.TempDir(), "state"))
	if err := d.Seed(t.Context(), child, driver.Source{From: &s}); err != nil {
		t.Fatal(err)
	}
	reads(t, dirsOf(child.State, "data", "x"), "x")
}
