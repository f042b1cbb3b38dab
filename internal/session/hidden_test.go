package session_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Import implements driver.Keeper: what is in a memory runs.
func (b *boxes) Import(ctx context.Context, server, dir string, r io.Reader) (driver.Snapshot, error) {
	s, err := b.desk.Import(ctx, server, dir, r)
	s.Carries, s.Runs = driver.CarryMemory, true
	return s, err
}

// A curtain hides server own from ada while it is drawn.
type curtain struct{ drawn atomic.Bool }

func (c *curtain) starts(*config.Config) func(string, []byte, string) bool {
	return func(owner string, _ []byte, member string) bool {
		base, _, _ := strings.Cut(member, "~")
		return owner != "ada" || base != "own" || !c.drawn.Load()
	}
}

// hiddenWorld is a world in which nothing of server own is started for ada.
func hiddenWorld(t *testing.T, yaml string) (*world, *curtain) {
	t.Helper()
	c := &curtain{}
	return makeWorld(t, yaml, func(w *world) {
		w.change = func(o *session.Options) { o.Starts = c.starts }
	}), c
}

// started is how many instances of a server were ever started.
func (m *machine) started(server string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.procs {
		if p.spec.Server == server {
			n++
		}
	}
	return n
}

// TestHiddenMembersStayFrozen has a fork and a snapshot carry a server that its
// owner may not see, and start it only for a principal who may.
func TestHiddenMembersStayFrozen(t *testing.T) {
	w, c := hiddenWorld(t, kept)
	ada := session.OpenOptions{Owner: session.Owner{Name: "ada"}, Eager: true}
	s := w.opened(ada)
	set(t, s, "own", "a", "1")
	c.drawn.Store(true)
	before := w.m.started("own")
	child := w.fork(s, 2)[1]
	snap := w.frozen(s, "base")
	ada.From = snap.ID
	opened := w.opened(ada)
	ada.Members = map[string]catalog.Member{"own": {Instances: 3}}
	several := w.opened(ada)
	if n := w.m.started("own"); n != before {
		t.Fatalf("%d instances were started of what is hidden", n-before)
	}
	for _, one := range []*session.Session{child, opened, several} {
		grand := w.fork(one, 1)[0]
		if n := w.m.started("own"); n != before {
			t.Fatalf("a fork of it started %d", n-before)
		}
		// It was carried all the same, and is there for a principal who may see it.
		wantDump(t, "what was carried", grand, "own", `{"a":"1"}`)
		before = w.m.started("own")
	}
	// The others have it running.
	bob := w.opened(session.OpenOptions{Owner: session.Owner{Name: "bob"}, Eager: true})
	if w.m.worksOn(w.dir+"/sessions/"+bob.ID+"/own") == nil {
		t.Error("it does not run for a principal who may see it")
	}
}

// TestEagerServersAreNotStartedWhereTheyAreHidden looks at those that the config
// wants to run from the beginning: in sessions that come by themselves, after a
// reload, and after a restart.
func TestEagerServersAreNotStartedWhereTheyAreHidden(t *testing.T) {
	yaml := strings.Replace(kept, "command: own,", "command: own, eager: true,", 1)
	if yaml == kept {
		t.Fatal("the config has no server own")
	}
	w, c := hiddenWorld(t, yaml)
	c.drawn.Store(true)
	ada, bob := w.session("ada"), w.session("bob")
	testkit.Eventually(t, "bob's starts", func() bool { return w.m.worksOn(w.dir+"/sessions/"+bob.ID+"/own") != nil })
	check := func(when string) {
		t.Helper()
		if w.m.worksOn(w.dir+"/sessions/"+ada.ID+"/own") != nil {
			t.Errorf("%s it runs for ada", when)
		}
	}
	check("at once")
	w.apply(yaml + "separator: _\n")
	check("after a reload")
	w.close(false)
	w.open(yaml)
	testkit.Eventually(t, "bob's starts again", func() bool { return w.m.worksOn(w.dir+"/sessions/"+bob.ID+"/own") != nil })
	check("after a restart")
}

// TestExportLeavesOutWhatIsHidden checks that a state does not leave with a file
// of a principal who may not see its server.
func TestExportLeavesOutWhatIsHidden(t *testing.T) {
	w := newWorld(t, whole)
	s := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"own": {Instances: 2}, "mem": {Instances: 2}}})
	set(t, s, "own", "secret", "1")
	set(t, s, "own~1", "secret", "2")
	set(t, s, "mem", "open", "3")
	snap := w.frozen(s, "")
	hidden := func(member string) bool { return strings.HasPrefix(member, "own") }
	var file bytes.Buffer
	if err := w.Export(t.Context(), snap.ID, hidden, &file); err != nil {
		t.Fatal(failure(err))
	}
	if bytes.Contains(file.Bytes(), []byte("secret")) || bytes.Contains(file.Bytes(), []byte(`"own`)) {
		t.Errorf("it is in the file: %.600q", file.Bytes())
	}
	in, err := w.Import(t.Context(), session.ImportOptions{Hidden: hidden}, &file)
	if err != nil {
		t.Fatal(failure(err))
	}
	wantDump(t, "what is left", w.opened(session.OpenOptions{From: in.ID}), "mem", `{"open":"3"}`)
}

// TestImportOfHiddenServers checks that a file with a server that is hidden from
// who imports is answered like one with a server that there is not.
func TestImportOfHiddenServers(t *testing.T) {
	w := newWorld(t, whole)
	s := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"own": {Instances: 2}}})
	set(t, s, "own", "a", "1")
	set(t, s, "mem", "b", "1")
	magic, parts := sections(t, w.exported(w.frozen(s, "").ID))
	hidden := func(name string) func(string) bool {
		return func(server string) bool { return server == name }
	}
	refusal := func(what, server string, manifest []byte) string {
		t.Helper()
		before := len(w.Snapshots())
		_, err := w.Import(t.Context(), session.ImportOptions{Hidden: hidden("own")}, bytes.NewReader(assemble(magic, append([][]byte{manifest}, parts[1:]...)...)))
		if err == nil {
			t.Fatalf("%s was imported", what)
		}
		if len(w.Snapshots()) != before {
			t.Errorf("%s is kept", what)
		}
		return strings.ReplaceAll(failure(err), server, "SERVER")
	}
	as := func(from, to string) []byte { return bytes.ReplaceAll(parts[0], []byte(from), []byte(to)) }
	unknown := as(`"own`, `"nosuch`)
	if got, want := refusal("a hidden server", "own", parts[0]), refusal("an unknown one", "nosuch", unknown); got != want {
		t.Errorf("of a hidden server it says %q, of one that is not there %q", got, want)
	}
	// Neither does it tell which driver a hidden one has.
	if got, want := refusal("a hidden server", "own", as(`"driver":"process"`, `"driver":"docker"`)), refusal("an unknown one", "nosuch", bytes.ReplaceAll(unknown, []byte(`"driver":"process"`), []byte(`"driver":"docker"`))); got != want || strings.Contains(got, "process") {
		t.Errorf("of another driver it says %q, of an unknown server %q", got, want)
	}
	counts := func(server string) []byte { return []byte(`{"members":[],"counts":{"` + server + `":2}}`) }
	if got, want := refusal("a hidden server", "own", counts("own")), refusal("an unknown one", "nosuch", counts("nosuch")); got != want {
		t.Errorf("of a count it says %q, of an unknown server %q", got, want)
	}
	if n := w.m.passed("import mem"); n != 0 {
		t.Errorf("states were read %d times before it was looked at whose they are", n)
	}
}

// TestForeignPrograms checks that programs are imported from files that this
// gateway wrote, and from others only by an operator.
func TestForeignPrograms(t *testing.T) {
	key := filepath.Join(t.TempDir(), "snapshot.key")
	sealed := func(path string) *world {
		return makeWorld(t, boxed1, func(w *world) {
			w.boxes = &boxes{}
			w.change = func(o *session.Options) {
				seal, err := session.OpenSeal(path)
				if err != nil {
					t.Fatal(err)
				}
				o.Seal = seal
			}
		})
	}
	w := sealed(key)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info, err)
	}
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	file := w.exported(w.frozen(s, "").ID)
	try := func(what string, in *world, file []byte, programs, want bool) {
		t.Helper()
		before := len(in.Snapshots())
		_, err := in.Import(t.Context(), session.ImportOptions{Programs: programs}, bytes.NewReader(file))
		if (err == nil) != want || len(in.Snapshots()) != before && err != nil {
			t.Errorf("%s, with programs of others %v: %s", what, programs, failure(err))
		}
		if err != nil && !want && !strings.Contains(failure(err), "an operator may import it") {
			t.Errorf("%s: it says %s", what, failure(err))
		}
	}
	try("its own file", w, file, false, true)
	// The key outlives the gateway, and is no other's.
	w.crash(boxed1)
	try("its own file after a restart", w, file, false, true)
	other := sealed(filepath.Join(t.TempDir(), "key"))
	for _, programs := range []bool{false, true} {
		try("a file of another gateway", other, file, programs, programs)
	}
	// A changed file is not recognized, and neither is one without a seal or with an
	// empty one.
	const seal = 4 + 32 + 4 // a chunk, and the end of it
	end := bytes.IndexByte(file, '\n') + 1
	body := file[end : len(file)-32-seal]
	changed := bytes.Replace(body, []byte("\x00\x00\x00\x02{}"), []byte("\x00\x00\x00\x03{ }"), 1)
	if bytes.Equal(changed, body) {
		t.Fatalf("nothing was changed in %q", body)
	}
	sums := func(parts ...[]byte) []byte { return summed(bytes.Join(parts, nil)) }
	for what, forged := range map[string][]byte{
		"changed":             sums(file[:end], changed, file[len(file)-32-seal:len(file)-32]),
		"without a seal":      sums([]byte("tine snapshot 1\n"), body),
		"an empty seal":       sums(file[:end], body, []byte{0, 0, 0, 0}),
		"a short seal":        sums(file[:end], body, []byte{0, 0, 0, 1, 7, 0, 0, 0, 0}),
		"of no gateway's key": sums(file[:end], body, []byte{0, 0, 0, 32}, make([]byte, 32), []byte{0, 0, 0, 0}),
	} {
		for _, programs := range []bool{false, true} {
			try(what, w, forged, programs, programs)
		}
	}
	// A gateway without a key recognizes no file.
	bare := boxWorld(t, boxed1)
	try("an empty seal without a key", bare, sums(file[:end], body, []byte{0, 0, 0, 0}), false, false)
	try("a file without a key", bare, file, false, false)
}

func TestSealKeyThatIsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot.key")
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := session.OpenSeal(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("it says %v", err)
	}
}
