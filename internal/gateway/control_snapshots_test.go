package gateway_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// steps reads a trajectory.
func (w *worlds) steps(t testing.TB, session string, who ...string) (out []api.Step) {
	t.Helper()
	path := "/v1/sessions/" + session + "/trajectory"
	r := w.ask(t, "GET", path, "", who...)
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s: status %d %s", path, r.status, r.body)
	}
	for line := range strings.Lines(string(r.body)) {
		var s api.Step
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, s)
	}
	return out
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{}`)
	snapshots := "/v1/sessions/" + s.ID + "/snapshots"
	w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+s.ID+"/rewind", "") // there is none yet
	w.tool(t, s.ID, "add")
	one := want[api.Snapshot](t, w, "POST", snapshots, `{"name":"base","labels":{"a":"b"}}`)
	if !strings.HasPrefix(one.ID, "snp_") || one.Name != "base" || one.Session != s.ID || one.Labels["a"] != "b" || len(one.Servers) != 1 || one.Call == "" {
		t.Errorf("made %+v", one)
	}
	if e := w.refused(t, http.StatusConflict, "POST", snapshots, `{"name":"base"}`); e.Kind != api.KindInvalid {
		t.Errorf("the same name: %+v", e)
	}
	w.tool(t, s.ID, "add")
	two := want[api.Snapshot](t, w, "POST", snapshots, "")
	w.tool(t, s.ID, "add")

	if got := want[api.Session](t, w, "POST", "/v1/sessions/"+s.ID+"/rewind", ""); got.ID != s.ID {
		t.Errorf("rewound %+v", got)
	}
	if got := w.tool(t, s.ID, "show"); got != "2" {
		t.Errorf("after a rewind to the newest: %s", got)
	}
	want[api.Session](t, w, "POST", "/v1/sessions/"+s.ID+"/rewind", `{"snapshot":"base","wait":"10s"}`)
	if got := w.tool(t, s.ID, "show"); got != "1" {
		t.Errorf("after a rewind to base: %s", got)
	}
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions/"+s.ID+"/rewind", `{"snapshot":"nosuch"}`)
	if from := w.open(t, `{"from":"base"}`); from.From != one.ID || w.tool(t, from.ID, "show") != "1" {
		t.Errorf("from a name: %+v", from)
	}
	if from := w.open(t, `{"from":"`+two.ID+`"}`); w.tool(t, from.ID, "show") != "2" {
		t.Errorf("from an id: %+v", from)
	}

	for _, path := range []string{"/v1/snapshots", snapshots} {
		list := want[api.SnapshotList](t, w, "GET", path, "")
		if len(list.Snapshots) != 2 || list.Snapshots[0].ID != two.ID || list.Next != "" {
			t.Errorf("%s: %+v", path, list)
		}
		page := want[api.SnapshotList](t, w, "GET", path+"?limit=1", "")
		next := want[api.SnapshotList](t, w, "GET", path+"?limit=1&after="+page.Next, "")
		if len(page.Snapshots) != 1 || page.Snapshots[0].ID != two.ID || len(next.Snapshots) != 1 || next.Snapshots[0].ID != one.ID || next.Next != "" {
			t.Errorf("%s in pages: %+v, %+v", path, page, next)
		}
	}
	if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots?label=a=b&owner=", ""); len(list.Snapshots) != 1 || list.Snapshots[0].ID != one.ID {
		t.Errorf("by label: %+v", list)
	}
	for _, ref := range []string{"base", one.ID} {
		if got := want[api.Snapshot](t, w, "GET", "/v1/snapshots/"+ref, ""); got.ID != one.ID {
			t.Errorf("%s: %+v", ref, got)
		}
	}

	file := w.ask(t, "GET", "/v1/snapshots/base/export", "")
	if file.status != http.StatusOK || file.header.Get("Content-Disposition") != `attachment; filename="base.tine"` || len(file.body) == 0 {
		t.Fatalf("export: status %d %v", file.status, file.header)
	}
	in := want[api.Snapshot](t, w, "POST", "/v1/snapshots/import?name=again", string(file.body))
	if in.Name != "again" || in.ID == one.ID {
		t.Errorf("imported %+v", in)
	}
	w.refused(t, http.StatusConflict, "POST", "/v1/snapshots/import?name=again", string(file.body))
	for _, bad := range []string{"", "x", string(file.body[:len(file.body)/2])} {
		w.refused(t, http.StatusBadRequest, "POST", "/v1/snapshots/import?name=bad", bad)
	}
	w.gone(t, "/v1/snapshots/base")
	w.gone(t, "/v1/snapshots/"+two.ID)
	w.refused(t, http.StatusNotFound, "GET", "/v1/snapshots/base", "")
	w.refused(t, http.StatusNotFound, "DELETE", "/v1/snapshots/base", "")
	w.restart()
	if from := w.open(t, `{"from":"again"}`); w.tool(t, from.ID, "show") != "1" {
		t.Errorf("from an import: %+v", from)
	}
	if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots", ""); len(list.Snapshots) != 1 {
		t.Errorf("left: %+v", list)
	}
}

// TestImportIsBounded checks that a file may be larger than any other request,
// and not larger than all snapshots of one principal.
func TestImportIsBounded(t *testing.T) {
	t.Parallel()
	from := openWorlds(t, "")
	s := from.open(t, `{}`)
	from.tool(t, s.ID, "grow")
	want[api.Snapshot](t, from, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"a"}`)
	file := string(from.ask(t, "GET", "/v1/snapshots/a/export", "").body)

	roomy := openWorlds(t, "limits: {body: 64KiB}\n")
	want[api.Snapshot](t, roomy, "POST", "/v1/snapshots/import?name=a", file)
	if c := roomy.open(t, `{"from":"a"}`); roomy.tool(t, c.ID, "show") != "1" {
		t.Error("what came in is not what went out")
	}
	tight := openWorlds(t, "sessions: {snapshots: 1MiB}\n")
	// What is left counts, not what there is in all.
	half := openWorlds(t, "sessions: {snapshots: 3MiB}\n")
	want[api.Snapshot](t, half, "POST", "/v1/snapshots/import?name=a", file)
	for w, had := range map[*worlds]int{tight: 0, half: 1} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(file)
			if chunked {
				body = io.MultiReader(body) // of unknown length
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", w.at("/v1/snapshots/import?name=b"), body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var e api.Error
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || e.Kind != api.KindRefused ||
				!strings.Contains(e.Message, "sessions.snapshots") || !strings.Contains(e.Message, "left") {
				t.Errorf("chunked=%v: status %d %+v %v", chunked, resp.StatusCode, e, err)
			}
			resp.Body.Close()
			if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots", ""); len(list.Snapshots) != had {
				t.Errorf("a part was kept: %+v", list)
			}
		}
	}
	// With nothing left it says so.
	full := openWorlds(t, "sessions: {snapshots: 2MiB}\n")
	s = full.open(t, `{}`)
	full.tool(t, s.ID, "grow")
	want[api.Snapshot](t, full, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"a"}`)
	if e := full.refused(t, http.StatusTooManyRequests, "POST", "/v1/snapshots/import?name=b", file); e.Kind != api.KindRefused || !strings.Contains(e.Message, "sessions.snapshots") {
		t.Errorf("with nothing left: %+v", e)
	}
}

// TestImportOnce checks the keys of imports: of the request the name counts.
func TestImportOnce(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{}`)
	snapshots := "/v1/sessions/" + s.ID + "/snapshots"
	want[api.Snapshot](t, w, "POST", snapshots, `{"name":"a"}`)
	file := string(w.ask(t, "GET", "/v1/snapshots/a/export", "").body)
	first := w.ask(t, "POST", "/v1/snapshots/import?name=b", file, key("k")...)
	if first.status != http.StatusOK {
		t.Fatalf("status %d %s", first.status, first.body)
	}
	w.restart()
	for _, body := range []string{file, "another file", ""} {
		if again := w.ask(t, "POST", "/v1/snapshots/import?name=b", body, key("k")...); again.status != http.StatusOK || string(again.body) != string(first.body) {
			t.Errorf("again: status %d %s", again.status, again.body)
		}
	}
	w.refused(t, http.StatusConflict, "POST", "/v1/snapshots/import?name=c", file, key("k")...)
	w.refused(t, http.StatusConflict, "POST", snapshots, `{"name":"b"}`, key("k")...)
	// What failed may be tried again.
	w.refused(t, http.StatusBadRequest, "POST", "/v1/snapshots/import?name=d", file[:len(file)/2], key("l")...)
	want[api.Snapshot](t, w, "POST", "/v1/snapshots/import?name=d", file, key("l")...)
	if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots", ""); len(list.Snapshots) != 3 {
		t.Errorf("%d snapshots", len(list.Snapshots))
	}
}

// snapshotFile is one that says what it likes of itself.
func snapshotFile(manifest string) string {
	b := []byte("tine snapshot 1\n")
	b = binary.BigEndian.AppendUint32(b, uint32(len(manifest)))
	b = append(b, manifest...)
	b = append(b, 0, 0, 0, 0)
	sum := sha256.Sum256(b)
	return string(append(b, sum[:]...))
}

// TestImportChecksTheFile checks that of what a file says of itself nothing is
// taken over that a request could not say.
func TestImportChecksTheFile(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	many := make(map[string]string)
	for i := range 65 {
		many[fmt.Sprint("k", i)] = "v"
	}
	for what, m := range map[string]map[string]any{
		"a name like an id": {"name": "snp_000000000000"}, "a name of control characters": {"name": "a\x1b[2J"}, "a long name": {"name": strings.Repeat("n", 100_000)},
		"a large label": {"labels": map[string]string{"k": strings.Repeat("v", 100_000)}}, "a label of control characters": {"labels": map[string]string{"k": "a\nb"}},
		"a key that is none": {"labels": map[string]string{"a b": ""}}, "too many labels": {"labels": many},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := want[api.Snapshot](t, w, "POST", "/v1/snapshots/import", snapshotFile(string(b))); got.Name != "" || len(got.Labels) != 0 {
			t.Errorf("%s was taken over: name %.80q, %d labels", what, got.Name, len(got.Labels))
		}
	}
	if got := want[api.Snapshot](t, w, "POST", "/v1/snapshots/import", snapshotFile(`{"name":"good","labels":{"a":"b"}}`)); got.Name != "good" || got.Labels["a"] != "b" {
		t.Errorf("a good one: %+v", got)
	}
}

func TestTrajectory(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+"\n")
	s := w.open(t, `{"labels":{"k":"<&>"}}`, asAda...)
	w.tool(t, s.ID, "add", asAda...)
	const secret = "sk-proj-abcdefghijklmnopqrstuvwx0123456789abcdef"
	want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q,"arguments":{"token":%q,"big":12345678901234567890}}`, s.ID, secret), asAda...)
	for _, who := range [][]string{asAda, asOps, bearer(s.Token)} {
		steps := w.steps(t, s.ID, who...)
		var calls []api.Step
		for _, s := range steps {
			if s.Type == "call" && s.Method == "tools/call" {
				calls = append(calls, s)
			}
		}
		if len(calls) != 2 || steps[0].Type != "session" || steps[0].Labels["k"] != "<&>" {
			t.Fatalf("got %+v", steps)
		}
		if args := string(calls[1].Arguments); !strings.Contains(args, secret) || !strings.Contains(args, "12345678901234567890") || len(calls[1].Result) == 0 {
			t.Errorf("cut or masked: %s %s", args, calls[1].Result)
		}
	}
	// In listings it is masked, and a viewer has no more than those.
	if r := w.ask(t, "GET", "/v1/sessions/"+s.ID+"/calls", "", asEve...); r.status != http.StatusOK || strings.Contains(string(r.body), secret) {
		t.Errorf("a viewer lists: status %d %s", r.status, r.body)
	}
	if e := w.refused(t, http.StatusForbidden, "GET", "/v1/sessions/"+s.ID+"/trajectory", "", asEve...); e.Kind != api.KindRefused {
		t.Errorf("a viewer: %+v", e)
	}
	w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/"+s.ID+"/trajectory", "", asBob...)
}
