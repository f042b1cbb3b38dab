package session_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
)

// exported is a snapshot as a file.
func (w *world) exported(id string) []byte {
	w.t.Helper()
	var out bytes.Buffer
	if err := w.Export(w.t.Context(), id, nil, &out); err != nil {
		w.t.Fatal(failure(err))
	}
	return out.Bytes()
}

// sections takes a file apart: the manifest and the states, chunks joined.
func sections(t *testing.T, file []byte) (magic string, parts [][]byte) {
	t.Helper()
	const sum = sha256.Size
	end := bytes.IndexByte(file, '\n') + 1
	magic = string(file[:end])
	if want := sha256.Sum256(file[:len(file)-sum]); !bytes.Equal(want[:], file[len(file)-sum:]) {
		t.Fatal("the file does not end with its checksum")
	}
	var part []byte
	for rest := file[end : len(file)-sum]; len(rest) > 0; {
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if n == 0 {
			parts, part = append(parts, part), nil
			continue
		}
		part = append(part, rest[:n]...)
		rest = rest[n:]
	}
	return magic, parts
}

// assemble makes a file whose checksum is right, whatever else is wrong.
func assemble(magic string, parts ...[]byte) []byte {
	out := []byte(magic)
	for _, p := range parts {
		if len(p) > 0 {
			out = binary.BigEndian.AppendUint32(out, uint32(len(p)))
			out = append(out, p...)
		}
		out = binary.BigEndian.AppendUint32(out, 0)
	}
	return summed(out)
}

// summed puts the right checksum behind a file.
func summed(file []byte) []byte {
	sum := sha256.Sum256(file)
	return append(file, sum[:]...)
}

func TestExportAndImport(t *testing.T) {
	w := newWorld(t, whole)
	s := w.opened(session.OpenOptions{Owner: session.Owner{Name: "ada"}})
	w.remember(s, "then")
	set(t, s, "mem", "it", strings.Repeat("x", 600<<10)) // several chunks
	snap, err := w.Freeze(t.Context(), s, session.SnapshotOptions{Name: "base", Labels: map[string]string{"a": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	file := w.exported(snap.ID)
	if !bytes.HasPrefix(file, []byte("tine snapshot 1\n")) {
		t.Errorf("it begins with %q", file[:20])
	}
	for _, secret := range []string{"command", "args"} {
		if bytes.Contains(file[:1000], []byte(secret)) {
			t.Errorf("how servers are run is in it: %q", file[:1000])
		}
	}
	// Another gateway with the same servers reads it, however it comes in.
	other := newWorld(t, whole)
	in, err := other.Import(t.Context(), session.ImportOptions{Owner: "bob", Name: ""}, iotest.HalfReader(bytes.NewReader(file)))
	if err != nil {
		t.Fatal(failure(err))
	}
	if in.Name != "base" || in.Owner != "bob" || in.Labels["a"] != "1" || len(in.Servers) != 3 || in.Size < 600<<10 {
		t.Errorf("it is %+v", in)
	}
	got := other.opened(session.OpenOptions{From: in.ID})
	wantDump(t, "what was imported", got, "own", `{"it":"then"}`)
	if n := len(dump(t, got, "mem")); n < 600<<10 {
		t.Errorf("mem remembers %d bytes", n)
	}
	if text := do(t.Context(), t, got, "tree", "read", "path", "it"); text != `"then"` {
		t.Errorf("its file has %s", text)
	}
	// Its name is taken now; another one is chosen, or none.
	again, err := other.Import(t.Context(), session.ImportOptions{Owner: "bob", Name: ""}, bytes.NewReader(file))
	if err != nil || again.Name != "" {
		t.Errorf("the second has the name %q, %v", again.Name, err)
	}
	if _, err = other.Import(t.Context(), session.ImportOptions{Owner: "bob", Name: "base"}, bytes.NewReader(file)); err == nil {
		t.Error("a name was taken twice")
	}
	third, err := other.Import(t.Context(), session.ImportOptions{Owner: "bob", Name: "third"}, bytes.NewReader(file))
	if err != nil || third.Name != "third" {
		t.Errorf("the third has the name %q, %v", third.Name, err)
	}
	// And it outlives the gateway.
	other.crash(whole)
	wantDump(t, "after a restart", other.opened(session.OpenOptions{From: third.ID}), "own", `{"it":"then"}`)
	if err := w.Export(t.Context(), "snp_000000000000", nil, io.Discard); !strings.Contains(failure(err), "there is no snapshot") {
		t.Errorf("exporting what is not there: %v", err)
	}
	if err := w.Export(t.Context(), snap.ID, nil, failingWriter{}); err == nil {
		t.Error("a disk that is full was not noticed")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFailed }

// A session that was opened from what was imported keeps its servers too.
func TestImportedSessionsArePinned(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	in, err := w.Import(t.Context(), session.ImportOptions{Owner: "", Name: "in"}, bytes.NewReader(w.exported(w.frozen(s, "out").ID)))
	if err != nil {
		t.Fatal(failure(err))
	}
	got := w.opened(session.OpenOptions{From: in.ID})
	w.apply(strings.Replace(kept, "command: own", "command: own2", 1))
	wantDump(t, "what was opened before", got, "own", `{"a":"1"}`)
	if p := w.m.worksOn(w.dir + "/sessions/" + got.ID + "/own"); p == nil || p.spec.Command != "own" {
		t.Errorf("it runs %+v", p)
	}
}

// Whatever is wrong with a file, it is refused, and nothing of it is left.
func TestImportOfDamage(t *testing.T) {
	w := newWorld(t, kept+"  ws: {builtin: files}\n")
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	set(t, s, "mem", "a", "1")
	do(t.Context(), t, s, "ws", "write", "path", "f", "text", "x")
	id := w.frozen(s, "").ID
	file := w.exported(id)
	before, layers := strings.Join(w.left(), " "), w.layersLeft()
	refused := func(what string, r io.Reader, parts ...string) {
		t.Helper()
		_, err := w.Import(t.Context(), session.ImportOptions{Owner: "", Name: ""}, r)
		if err == nil {
			t.Errorf("%s was imported", what)
			return
		}
		testkit.Has(t, what, failure(err), append(parts, "invalid: ")...)
		if got := strings.Join(w.left(), " "); got != before || len(w.Snapshots()) != 1 {
			t.Fatalf("%s: left is %s, and it was %s; %d snapshots", what, got, before, len(w.Snapshots()))
		}
	}
	// At every boundary of a section, and here and there.
	at := map[int]bool{0: true, 15: true, 16: true, len(file) - 1: true, len(file) - 32: true, len(file) - 33: true}
	for rest := 16; rest < len(file)-32; {
		n := int(binary.BigEndian.Uint32(file[rest:]))
		at[rest], at[rest+3], at[rest+4], at[rest+4+n/2] = true, true, true, true
		rest += 4 + n
	}
	for n := range at {
		refused("a file cut short", bytes.NewReader(file[:n]))
		flipped := bytes.Clone(file)
		flipped[n] ^= 0x41
		refused("a file with a wrong byte", bytes.NewReader(flipped))
	}
	refused("a reader that fails", iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(file))))
	magic, parts := sections(t, file)
	if len(parts) != 5 {
		t.Fatalf("there are %d sections", len(parts))
	}
	manifest := func(old, to string) [][]byte {
		t.Helper()
		if !bytes.Contains(parts[0], []byte(old)) {
			t.Fatalf("the manifest has no %s: %s", old, parts[0])
		}
		return append([][]byte{bytes.Replace(parts[0], []byte(old), []byte(to), 1)}, parts[1:]...)
	}
	for what, tt := range map[string]struct {
		file []byte
		want string
	}{
		"another kind of file":    {[]byte("#!/bin/sh\necho tine snapshot 1\n"), "not a snapshot"},
		"another version":         {assemble("tine snapshot 3\n", parts...), "version"},
		"a manifest of nothing":   {assemble(magic, nil), "manifest"},
		"a manifest of noise":     {assemble(magic, []byte("]")), "manifest"},
		"an unknown server":       {assemble(magic, manifest(`"server":"own"`, `"server":"nix"`)...), `"nix"`},
		"a shared server":         {assemble(magic, manifest(`"server":"own"`, `"server":"all"`)...), `"all"`},
		"a server twice":          {assemble(magic, manifest(`"server":"mem"`, `"server":"own"`)...), `"own"`},
		"another driver":          {assemble(magic, manifest(`"driver":"process"`, `"driver":"sandbox"`)...), `"sandbox"`},
		"another built-in server": {assemble(magic, manifest(`"builtin":"memory"`, `"builtin":"sqlite"`)...), "sqlite"},
		"a state too few":         {assemble(magic, parts[0], parts[1], parts[2], parts[3]), ""},
		"a state of noise":        {assemble(magic, parts[0], parts[1], []byte("noise"), parts[3], parts[4]), `"mem"`},
		"a workspace of noise":    {assemble(magic, parts[0], parts[1], parts[2], parts[3], []byte("noise")), "workspace"},
		"a huge chunk":            {append([]byte(magic), 0xff, 0xff, 0xff, 0xff), "too large"},
		"a huge manifest":         {append([]byte(magic), bytes.Repeat(append([]byte{0, 4, 0, 0}, bytes.Repeat([]byte(" "), 256<<10)...), 20)...), "manifest"},
	} {
		refused(what, bytes.NewReader(tt.file), tt.want)
	}
	for _, point := range []string{"import own", "import mem", "put snapshot"} {
		w.m.fail(point, 0)
		if _, err := w.Import(t.Context(), session.ImportOptions{Owner: "", Name: ""}, bytes.NewReader(file)); err == nil {
			t.Errorf("it was imported although %s failed", point)
		}
		if got := strings.Join(w.left(), " "); got != before {
			t.Errorf("%s: left is %s, and it was %s", point, got, before)
		}
	}
	if n := w.layersLeft(); n != layers {
		t.Errorf("%d layers are left, and there were %d", n, layers)
	}
	// After all of that it can still be imported.
	if _, err := w.Import(t.Context(), session.ImportOptions{Owner: "", Name: ""}, bytes.NewReader(file)); err != nil {
		t.Error(failure(err))
	}
}

// A server of the same name that is another one can't be imported.
func TestImportElsewhere(t *testing.T) {
	w := newWorld(t, inside)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "x")
	file := w.exported(w.frozen(s, "").ID)
	other := newWorld(t, "servers:\n  mem: {builtin: sqlite}\n  tree: {builtin: files}\n")
	_, err := other.Import(t.Context(), session.ImportOptions{Owner: "", Name: ""}, bytes.NewReader(file))
	testkit.Has(t, "another server of that name", failure(err), "invalid: ", `"mem"`, "memory", "sqlite")
	wantLeft(t, other)
}

// What could not be imported again is not exported: nothing is written of it.
func TestExportOfWhatCannotBeImported(t *testing.T) {
	w := boxWorld(t, boxed1)
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	snap := w.frozen(s, "")
	w.boxes.stays = errors.New(`server "box": data/ln: it is a link to "/etc/shadow", which leads out of the state`)
	var out bytes.Buffer
	err := w.Export(t.Context(), snap.ID, nil, &out)
	testkit.Has(t, "the export", failure(err), "refused: ", snap.ID, `server "box": data/ln`, "/etc/shadow")
	if out.Len() > 0 {
		t.Errorf("%d bytes were written", out.Len())
	}
}

// An import that fails names the server once.
func TestFailedImportNamesTheServerOnce(t *testing.T) {
	w := newWorld(t, "servers: {mem: {builtin: memory}}\n")
	s := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"mem": {Instances: 2}}})
	for _, id := range []string{"mem", "mem~1"} {
		set(t, s, id, "a", "1")
		magic, parts := sections(t, w.exported(w.frozen(s, "").ID))
		parts[len(parts)-1-strings.Count(magic, "2")] = []byte("nonsense")
		_, err := w.Import(t.Context(), session.ImportOptions{}, bytes.NewReader(assemble(magic, parts...)))
		got := failure(err)
		testkit.Has(t, "the import", got, `server "`+id+`": import a snapshot: `)
		if strings.Count(got, "server ") != 1 {
			t.Errorf("the import says %s", got)
		}
	}
}
