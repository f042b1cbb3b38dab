package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
)

// asAPI is an error of the API; nil for any other.
func asAPI(err error) *api.Error {
	var e *api.Error
	errors.As(err, &e)
	return e
}

// annotate notes a reward and returns the id of the annotation.
func (w *world) annotate(id, call string, reward float64) string {
	w.t.Helper()
	a, err := w.Annotate(w.t.Context(), "trainer", id, api.NewAnnotation{Call: call, Reward: &reward}, "")
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return a.ID
}

// rows is a trajectory in short: calls by what they set, annotations by their reward and
// what the call they are of set; ~ before what was undone.
func (w *world) rows(id string) string {
	w.t.Helper()
	var out []string
	sets := map[string]string{}
	err := w.Trajectory(w.t.Context(), id, func(s api.Step) error {
		line := s.Type
		switch s.Type {
		case "call":
			var a map[string]string
			if err := json.Unmarshal(s.Arguments, &a); err != nil {
				return err
			}
			line = a["v"]
			sets[s.ID] = line
		case "annotation":
			line = fmt.Sprintf("%g:%s", *s.Reward, sets[s.Call])
			if s.ID == "" || s.Session == "" || s.At.IsZero() {
				w.t.Errorf("an annotation is %+v", s)
			}
		}
		if s.Undone {
			line = "~" + line
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return strings.Join(out, " ")
}

// calls are the ids of the calls in a trajectory, by what they set.
func (w *world) calls(id string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	err := w.Trajectory(w.t.Context(), id, func(s api.Step) error {
		if s.Type == "call" {
			var a map[string]string
			if err := json.Unmarshal(s.Arguments, &a); err != nil {
				return err
			}
			out[a["v"]] = s.ID
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return out
}

// Annotations stand where they were made: a fork has those from before it, a rewind
// undoes those from after its snapshot and those of calls that it undid.
func TestAnnotations(t *testing.T) {
	w := recording(t, kept)
	root := w.opened(session.OpenOptions{})
	set(t, root, "own", "it", "r1")
	w.annotate(root.ID, w.calls(root.ID)["r1"], 1)
	child := w.fork(root, 1)[0]
	set(t, root, "own", "it", "r2")
	w.annotate(root.ID, "", 2)
	w.annotate(child.ID, w.calls(root.ID)["r1"], 3) // of the line before the fork
	snap := w.frozen(child, "")
	set(t, child, "own", "it", "c1")
	c1 := w.calls(child.ID)["c1"]
	w.annotate(child.ID, c1, 4)
	w.annotate(child.ID, "", 5)
	w.rewound(child, snap.ID)
	w.annotate(child.ID, c1, 6)
	w.annotate(child.ID, "", 7)
	w.CloseSession(t.Context(), child)
	w.annotate(child.ID, "", 8)
	check := func() {
		t.Helper()
		for id, want := range map[string]string{
			root.ID:  "session r1 1:r1 fork r2 2:",
			child.ID: "session r1 1:r1 fork session 3:r1 snapshot ~c1 ~4:c1 ~5: rewind ~6:c1 7: close 8:",
		} {
			if got := w.rows(id); got != want {
				t.Errorf("the rows are\n\t%s, want\n\t%s", got, want)
			}
		}
	}
	check()
	w.crash(kept)
	check()
	// After a restart a call is found by the index.
	w.annotate(child.ID, c1, 9)
}

// What is noted comes back as it was.
func TestAnnotationIsWhole(t *testing.T) {
	w := recording(t, kept)
	s := w.opened(session.OpenOptions{})
	reward := 0.1
	in := api.NewAnnotation{
		Reward: &reward, Text: strings.Repeat("é\"<&>\n", 20_000), TokenIDs: []int64{0, 1, math.MaxInt64},
		Logprobs: []api.Logprob{-0.25, api.Logprob(math.NaN()), -1e-300}, Data: json.RawMessage(`{"n":12345678901234567890,"secret":"hunter2"}`),
	}
	if _, err := w.Annotate(t.Context(), "", s.ID, in, ""); err != nil {
		t.Fatal(failure(err))
	}
	var got api.Step
	if err := w.Trajectory(t.Context(), s.ID, func(s api.Step) error { got = s; return nil }); err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(in)
	have, _ := json.Marshal(api.NewAnnotation{Call: got.Call, Reward: got.Reward, Text: got.Text, TokenIDs: got.TokenIDs, Logprobs: got.Logprobs, Data: got.Data})
	if got.Type != "annotation" || string(have) != string(want) {
		t.Errorf("of %.200s there is\n%.200s", want, have)
	}
}

// A request that is repeated with its key after a kill is written twice and told once.
func TestAnnotationIsToldOnce(t *testing.T) {
	w := recording(t, kept)
	s := w.opened(session.OpenOptions{})
	for _, note := range []struct {
		reward float64
		mark   string
	}{{1, "a"}, {1, "a"}, {2, "a"}, {1, "b"}, {1, ""}, {1, ""}} {
		if _, err := w.Annotate(t.Context(), "", s.ID, api.NewAnnotation{Reward: &note.reward}, note.mark); err != nil {
			t.Fatal(failure(err))
		}
	}
	child := w.fork(s, 1)[0]
	if got := w.rows(child.ID); got != "session 1: 2: 1: 1: 1: fork session" {
		t.Errorf("the rows are %s", got)
	}
}

// Only a call of the trajectory can be annotated.
func TestAnnotationOfWhat(t *testing.T) {
	w := recording(t, kept)
	s, other := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	set(t, s, "own", "it", "s1")
	child := w.fork(s, 1)[0]
	set(t, s, "own", "it", "s2")
	set(t, other, "own", "it", "o1")
	note := w.annotate(s.ID, "", 1)
	for what, call := range map[string]string{
		"a call of the parent after the fork": w.calls(s.ID)["s2"],
		"another session's call":              w.calls(other.ID)["o1"],
		"an annotation":                       note,
		"a call that does not exist":          "call_0000000fffff",
	} {
		reward := 1.0
		_, err := w.Annotate(t.Context(), "", child.ID, api.NewAnnotation{Call: call, Reward: &reward}, "")
		if e := asAPI(err); e == nil || e.Status != http.StatusNotFound || !strings.Contains(e.Message, "is not one of session") {
			t.Errorf("%s: %v", what, failure(err))
		}
	}
	for _, call := range []string{"call_1", "x", "call_00000000002A"} {
		_, err := w.Annotate(t.Context(), "", child.ID, api.NewAnnotation{Call: call, Text: "x"}, "")
		if e := asAPI(err); e == nil || e.Kind != api.KindInvalid || !strings.Contains(e.Message, "no id of a call") {
			t.Errorf("%s: %v", call, failure(err))
		}
	}
	if got := w.rows(child.ID); got != "session s1 fork session" {
		t.Errorf("after all that was refused the rows are %s", got)
	}
}

func TestAnnotationWithoutAJournal(t *testing.T) {
	w := makeWorld(t, kept, func(*world) {})
	s := w.opened(session.OpenOptions{})
	_, err := w.Annotate(t.Context(), "", s.ID, api.NewAnnotation{Text: "x"}, "")
	if e := asAPI(err); e == nil || e.Kind != api.KindRefused || !strings.Contains(e.Message, "journal.mode") {
		t.Errorf("%v", failure(err))
	}
}
