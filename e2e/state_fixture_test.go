//go:build unix

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// TestStateOfEarlierGateway starts on a state folder that an earlier gateway
// left: sessions of every kind, a fork, a snapshot, a server that the config has
// otherwise by now, a setting of run time, the journal. All of it is there, goes
// on, and forks. TINE_MAKE_STATE=1 makes the folder anew,
// with the gateway of today.
func TestStateOfEarlierGateway(t *testing.T) {
	t.Parallel()
	const (
		file   = "testdata/state12.tar.gz"
		token  = "tine_of_bob_from_the_time_before_1"
		config = "auth: {tokens: [{name: bob, token: " + token + "}]}\njournal: {max_age: 3650d}\nservers:\n" + yamlBuiltins
		prog   = "  prog: {command: stateserver, args: [-dir, \"${state.data}\"], state: [data]"
	)
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, config+prog+"}\n", "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	shelves := []*shelf{memoryShelf("mem"), filesShelf("files"), sqliteShelf("db"), programShelf("prog")}
	put := func(c *client.Client, session, key, value string) {
		for _, s := range shelves {
			s.mustPut(t, c, session, key, value)
		}
	}
	hold := func(c *client.Client, session string, want map[string]string) {
		t.Helper()
		for _, s := range shelves {
			s.mustHold(t, c, session, want)
		}
	}
	atPaths := map[string]string{"/mcp?session=work": "named", "/mcp": "default"}
	bob := func(path string) *session {
		t.Helper()
		s, err := open(t.Context(), g.url+path, http.Header{"Authorization": {"Bearer " + token}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if os.Getenv("TINE_MAKE_STATE") != "" {
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c := g.clientAs(t, token)
		parent := openSession(t, c, api.NewSession{Labels: map[string]string{"is": "parent"}}).ID
		put(c, parent, "a", "first")
		if _, err := c.MakeSnapshot(t.Context(), parent, api.SnapshotRequest{Name: "kept"}); err != nil {
			t.Fatal(err)
		}
		forks, err := c.Fork(t.Context(), parent, api.ForkRequest{Count: 1, Labels: map[string]string{"is": "child"}})
		if err != nil {
			t.Fatal(err)
		}
		put(c, forks.Sessions[0].ID, "b", "second")
		for path, text := range atPaths {
			bob(path).mustCall(t, "mem__create_entities", object{"entities": []entity{{"e", "thing", []string{text}}}})
		}
		if _, err := g.tine(t.Context(), "servers", "set", "prog", "timeout=17s"); err != nil {
			t.Fatal(err)
		}
		g.stop()
		pack(t, g.state(), file)
	}
	unpack(t, file, g.state())
	g.writeConfig(t, config+prog+", env: {NEWER: \"1\"}}\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	labelled := func(c *client.Client, is string) string {
		t.Helper()
		list, err := c.Sessions(t.Context(), client.SessionQuery{Labels: map[string]string{"is": is}})
		if err != nil || len(list.Sessions) != 1 {
			t.Fatalf("sessions that are the %s: %+v, %v", is, list, err)
		}
		return list.Sessions[0].ID
	}
	for range 2 { // after the stop, and after a kill
		c := g.clientAs(t, token)
		parent, child := labelled(c, "parent"), labelled(c, "child")
		hold(c, parent, map[string]string{"a": "first"})
		hold(c, child, map[string]string{"a": "first", "b": "second"})
		forks, err := c.Fork(t.Context(), child, api.ForkRequest{Labels: map[string]string{"is": "later"}})
		if err != nil {
			t.Fatal(err)
		}
		hold(c, forks.Sessions[0].ID, map[string]string{"a": "first", "b": "second"})
		hold(c, openSession(t, c, api.NewSession{From: "kept"}).ID, map[string]string{"a": "first"})
		for path, want := range atPaths {
			if got := bob(path).mustCall(t, "mem__read_graph", object{}); !strings.Contains(got, want) {
				t.Errorf("the memory at %s is %s", path, got)
			}
		}
		if got := g.show(t, "prog"); !slices.Equal(got.Overrides, []string{"timeout"}) || got.Policy.Timeout != "17s" {
			t.Errorf("what was set at run time: %q, %+v", got.Overrides, got.Policy)
		}
		calls, err := c.Calls(t.Context(), client.CallQuery{Session: child, Limit: 100})
		if err != nil || !slices.ContainsFunc(calls.Calls, func(c api.Call) bool { return strings.Contains(string(c.Arguments), "second") }) {
			t.Errorf("the calls of the child: %+v, %v", calls, err)
		}
		g.kill()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
	}
}

// pack writes the files of a folder to an archive.
func pack(t *testing.T, dir, file string) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = strings.TrimPrefix(path, dir+"/"), 0, 0, "", ""
		if err := archive.WriteHeader(h); err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			_, err = archive.Write(content)
		}
		return err
	})
	for _, close := range []func() error{archive.Close, zip.Close, out.Close} {
		if err == nil {
			err = close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// unpack makes dir what pack found.
func unpack(t *testing.T, file, dir string) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.Open(file)
	fail(err)
	defer in.Close()
	zip, err := gzip.NewReader(in)
	fail(err)
	fail(os.RemoveAll(dir))
	fail(os.Mkdir(dir, 0o700))
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return
		}
		fail(err)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			fail(os.Mkdir(path, h.FileInfo().Mode().Perm()))
			continue
		}
		content, err := io.ReadAll(archive)
		fail(err)
		fail(os.WriteFile(path, content, h.FileInfo().Mode().Perm()))
	}
}
