//go:build linux && (amd64 || arm64)

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestCopy copies a folder into the workspace, a sandbox and the state of a program and out
// again, over the command line; a fork has it, and no link leads out.
func TestCopy(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	w := startCell(t, "servers:\n"+yamlSand(t, nil, "workspace: true")+
		yamlServer("plain", program, []string{"-dir", "${state.data}"}, "state: [data]")+
		"  memory: {builtin: memory}\n  db: {builtin: sqlite}\n")
	c := w.client(t)
	id := openSession(t, c, api.NewSession{}).ID
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		at := filepath.Join(src, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600), os.Chmod(at, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("a.txt", "one\n", 0o640)
	write("bin/run", "#!/bin/sh\n", 0o755)
	for name, to := range map[string]string{"link": "a.txt", "evil": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	cp := func(args ...string) error {
		_, err := w.tine(t.Context(), append([]string{"session", "cp"}, args...)...)
		return err
	}
	places := []string{"workspace/x", sand + "/tmp/x", "plain/data/x"}
	for n, place := range places {
		if err := cp("-r", src, id+":"+place); err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		back := filepath.Join(dir, fmt.Sprint("back", n))
		if err := cp("-r", id+":"+place, back); err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		if was, is := treeText(t, src), treeText(t, back); was != is {
			t.Errorf("%s came back as\n%s\nwant\n%s", place, is, was)
		}
		for _, bad := range []string{place + "/evil/x", place + "/no/such"} {
			if err := cp(id+":"+bad, filepath.Join(dir, "bad")); err == nil {
				t.Errorf("%s was copied", bad)
			}
		}
	}
	if _, err := c.PutFile(t.Context(), id, "workspace", "x/evil", 0o644, strings.NewReader("x")); err == nil {
		t.Error("a file was written through a link that leads out")
	}
	if _, err := c.PutFile(t.Context(), id, "workspace", "../x", 0o644, strings.NewReader("x")); err == nil {
		t.Error("a file was written outside")
	}
	// A FIFO is left out of a folder, and by itself it is an error that says what it is.
	if _, err := c.Exec(t.Context(), id, api.ExecRequest{Server: sand, Argv: []string{"mkfifo", "/tmp/x/pipe"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(dir, "without")
	if err := cp("-r", id+":"+sand+"/tmp/x", back); err != nil {
		t.Error(err)
	}
	if was, is := treeText(t, src), treeText(t, back); was != is {
		t.Errorf("a folder with a FIFO came back as\n%s\nwant\n%s", is, was)
	}
	if err := cp(id+":"+sand+"/tmp/x/pipe", dir); err == nil || !strings.Contains(err.Error(), "it is a FIFO") {
		t.Errorf("a FIFO by itself: %v", err)
	}
	was := treeText(t, src)
	if err := syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	back = filepath.Join(dir, "in without")
	if err := errors.Join(cp("-r", src, id+":workspace/y"), cp("-r", id+":workspace/y", back)); err != nil {
		t.Error(err)
	}
	if is := treeText(t, back); was != is {
		t.Errorf("a folder of this machine with a FIFO came back as\n%s\nwant\n%s", is, was)
	}
	write("z\xff", "", 0o644)
	if err := cp("-r", src, id+":workspace/z"); err == nil || !strings.Contains(err.Error(), "not UTF-8") || !strings.Contains(err.Error(), "before that is copied") {
		t.Errorf("a copy that breaks off: %v", err)
	}
	// A file that the program may not read is not the request's fault.
	if _, err := c.Exec(t.Context(), id, api.ExecRequest{Server: sand, Argv: []string{"sh", "-c", "echo 1 >/tmp/shut; chmod 0 /tmp/shut"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	_, err = c.GetFiles(t.Context(), id, sand, "tmp/shut", "")
	if e := new(api.Error); !errors.As(err, &e) || e.Status != http.StatusUnprocessableEntity || !strings.Contains(e.Message, "Permission denied") {
		t.Errorf("a file without permissions: %v", err)
	}
	child := fork(t, c, id, 1)[0].ID
	for _, place := range places {
		d, err := c.GetFiles(t.Context(), child, strings.SplitN(place, "/", 2)[0], strings.SplitN(place, "/", 2)[1]+"/a.txt", "")
		if err != nil || d.Dir || d.Mode != 0o640 || d.Size != 4 {
			t.Errorf("%s in the fork: %+v, %v", place, d, err)
			continue
		}
		d.Close()
	}
	for server, says := range map[string]string{"memory": "has no files", "nosuch": "no server"} {
		_, err := c.PutFile(t.Context(), id, server, "x", 0o644, strings.NewReader("x"))
		if e := new(api.Error); !errors.As(err, &e) || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %v", server, err)
		}
	}
	w.over(t)
}

// treeText is a folder with modes, contents and links, a line an entry.
func treeText(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			text, err = os.Readlink(path)
		case info.Mode().IsRegular():
			var b []byte
			b, err = os.ReadFile(path)
			text = string(b)
		}
		rel, _ := filepath.Rel(dir, path)
		lines = append(lines, fmt.Sprintf("%s %s %q", info.Mode(), rel, text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestDiff compares a session with a snapshot: files, rows and a graph. Nothing of it is in
// the trajectory, and no program is started.
func TestDiff(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "servers:\n"+yamlServer("plain", program, []string{"-dir", "${state.data}"}, "state: [data]", "workspace: true")+
		"  memory: {builtin: memory}\n  db: {builtin: sqlite}\n")
	c := g.client(t)
	id := openSession(t, c, api.NewSession{}).ID
	do := func(tool string, args any) {
		t.Helper()
		if _, err := use(t.Context(), c, id, tool, args); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string) {
		t.Helper()
		if _, err := c.PutFile(t.Context(), id, "workspace", name, 0o644, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("same", "s")
	put("text", "old")
	do("memory__create_entities", object{"entities": []object{{"name": "ada", "entityType": "person", "observations": []string{"counts"}}}})
	do("db__execute", object{"sql": "CREATE TABLE t(a, b); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (2, 'y')"})
	if _, err := c.MakeSnapshot(t.Context(), id, api.SnapshotRequest{Name: "before"}); err != nil {
		t.Fatal(err)
	}
	steps := func() (n int) {
		for _, err := range c.Trajectory(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	d, err := c.Diff(t.Context(), id, "before")
	if err != nil || len(d.Files)+len(d.Tables)+len(d.Graph) > 0 {
		t.Errorf("at first: %+v, %v", d, err)
	}
	put("text", "new")
	put("made/x", "")
	do("memory__add_observations", object{"observations": []object{{"entityName": "ada", "contents": []string{"plays"}}}})
	do("db__execute", object{"sql": "UPDATE t SET b = 'z' WHERE a = 1; DELETE FROM t WHERE rowid = 3"})
	was := steps()
	if d, err = c.Diff(t.Context(), id, "before"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range d.Files {
		got = append(got, fmt.Sprintf("%s %s/%s %d", f.Change, f.Place, f.Path, f.Size))
	}
	for _, r := range d.Tables {
		got = append(got, fmt.Sprintf("%s %s %s%s", r.Change, r.Table, r.Row, r.Schema))
	}
	for _, n := range d.Graph {
		got = append(got, fmt.Sprintf("%s %s %s", n.Change, n.Kind, n.Value))
	}
	want := `added workspace/made 0
added workspace/made/x 0
changed workspace/text 3
added t {"a":1,"b":"z"}
removed t {"a":1,"b":"x"}
removed t {"a":2,"b":"y"}
added observation {"entity":"ada","text":"plays"}`
	if strings.Join(got, "\n") != want {
		t.Errorf("the difference is\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	rows := func(snapshot string) (n int) {
		for it, err := range c.State(t.Context(), id, "db", snapshot) {
			if err != nil {
				t.Fatal(err)
			}
			if it.Kind == "table" {
				n++
			}
		}
		return n
	}
	if now, then := rows(""), rows("before"); now != 2 || then != 3 {
		t.Errorf("there are %d rows, and were %d", now, then)
	}
	list, err := c.ListFiles(t.Context(), id, "workspace", "", "before", true)
	if err != nil || len(list.Files) != 2 || list.Files[1].Path != "text" || list.Files[1].Size != 3 {
		t.Errorf("the snapshot lists %+v, %v", list, err)
	}
	unused := openSession(t, c, api.NewSession{}).ID
	if _, err := c.MakeSnapshot(t.Context(), unused, api.SnapshotRequest{Name: "unused"}); err != nil {
		t.Fatal(err)
	}
	if list, err = c.ListFiles(t.Context(), unused, "workspace", "", "unused", true); err != nil || len(list.Files) != 0 {
		t.Errorf("a snapshot from before the workspace was used lists %+v, %v", list, err)
	}
	if is := steps(); is != was {
		t.Errorf("reading added %d steps", is-was)
	}
	s, err := c.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Members {
		if m.Server == "plain" && m.State != api.StateIdle {
			t.Errorf("plain was started: %+v", m)
		}
	}
	if _, err := c.Diff(t.Context(), id, "nosuch"); !isStatus(err, http.StatusNotFound) {
		t.Errorf("a snapshot that is not there: %v", err)
	}
}

func isStatus(err error, status int) bool {
	e := new(api.Error)
	return errors.As(err, &e) && e.Status == status
}
