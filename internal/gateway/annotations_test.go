package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
)

// annotate notes something of a session that must be taken.
func (w *worlds) annotate(t testing.TB, session, body string, who ...string) api.Annotation {
	t.Helper()
	return want[api.Annotation](t, w, "POST", "/v1/sessions/"+session+"/annotations", body, who...)
}

// ofType are the steps of one type.
func ofType(steps []api.Step, kind string) (out []api.Step) {
	for _, s := range steps {
		if s.Type == kind {
			out = append(out, s)
		}
	}
	return out
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	s := w.open(t, `{}`, asAda...)
	called := want[api.CallResponse](t, w, "POST", "/v1/call", `{"tool":"n__add","session":"`+s.ID+`","meta":{"turn":12345678901234567890,"traceparent":"x"}}`, asAda...)
	if !strings.HasPrefix(called.Call, "call_") {
		t.Fatalf("the call is %+v", called)
	}
	a := w.annotate(t, s.ID, `{"call":"`+called.Call+`","reward":0.5,"text":"I add.","token_ids":[1,2,3],"logprobs":[-0.5,null,-1e-9],"data":{"n":12345678901234567890}}`, asAda...)
	if a.ID == "" || a.At.IsZero() || a.Session != s.ID || a.Call != called.Call || *a.Reward != 0.5 {
		t.Errorf("annotated %+v", a)
	}
	w.annotate(t, s.ID, `{"data":[null]}`, asOps...)
	if r := w.do(t, "PUT", "/v1/sessions/"+s.ID+"/files/workspace/check.py", "assert 1", asAda...); r.status >= 300 {
		t.Fatalf("put: %+v", r)
	}
	steps := w.steps(t, s.ID, asAda...)
	calls, notes := ofType(steps, "call"), ofType(steps, "annotation")
	if len(calls) != 1 || calls[0].ID != called.Call || string(calls[0].Meta) != `{"turn":12345678901234567890}` {
		t.Errorf("the calls are %+v", calls)
	}
	if len(notes) != 2 || notes[0].ID != a.ID || notes[0].Call != called.Call || *notes[0].Reward != 0.5 || notes[0].Text != "I add." || notes[0].Step != 1 ||
		fmt.Sprint(notes[0].TokenIDs, notes[0].Logprobs) != "[1 2 3] [-0.5 NaN -1e-09]" || string(notes[0].Data) != `{"n":12345678901234567890}` || string(notes[1].Data) != `[null]` {
		t.Errorf("the annotations are %+v", notes)
	}
	if put := ofType(steps, "put"); len(put) != 1 || put[0].Name != "workspace/check.py" {
		t.Errorf("what was copied in is %+v", put)
	}
	// The agent in the session neither scores itself nor sees its score, or what checks it.
	mine := bearer(s.Token)
	if e := w.refused(t, http.StatusForbidden, "POST", "/v1/sessions/"+s.ID+"/annotations", `{"reward":1}`, mine...); e.Kind != api.KindRefused {
		t.Errorf("with the session's token: %+v", e)
	}
	told := w.steps(t, s.ID, mine...)
	if seen := append(ofType(told, "annotation"), ofType(told, "put")...); len(seen) > 0 || len(ofType(told, "call")) != 1 {
		t.Errorf("the session's token reads %+v", told)
	}
	for _, who := range [][]string{mine, asAda} {
		n := 0
		for _, c := range want[api.CallList](t, w, "GET", "/v1/sessions/"+s.ID+"/calls", "", who...).Calls {
			if c.Method == "tine/annotation" {
				n++
			}
		}
		if want := map[bool]int{true: 0, false: 2}[who[1] == mine[1]]; n != want {
			t.Errorf("%d annotations are listed among the calls for %s, want %d", n, who[1][:12], want)
		}
	}
	// Others don't reach it.
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions/"+s.ID+"/annotations", `{"reward":1}`, asBob...)
	w.refused(t, http.StatusForbidden, "POST", "/v1/sessions/"+s.ID+"/annotations", `{"reward":1}`, asEve...)
	// A closed session takes more, and all of it lasts.
	w.gone(t, "/v1/sessions/"+s.ID, asAda...)
	w.annotate(t, s.ID, `{"reward":-1}`, asAda...)
	w.restart()
	if notes := ofType(w.steps(t, s.ID, asAda...), "annotation"); len(notes) != 3 || *notes[2].Reward != -1 {
		t.Errorf("after a restart the annotations are %+v", notes)
	}
	if e := w.refused(t, http.StatusConflict, "POST", "/v1/calls/"+a.ID+"/replay", "", asAda...); !strings.Contains(e.Message, "tine/annotation") {
		t.Errorf("a replay: %+v", e)
	}
}

// TestInventedTools holds that the trajectory has what the caller sent and was told of a tool
// of no server, where arguments are kept.
func TestInventedTools(t *testing.T) {
	t.Parallel()
	for mode, kept := range map[string]bool{"full": true, "meta": false} {
		w := openWorlds(t, "journal: {mode: "+mode+"}\n")
		s := w.open(t, `{}`)
		r := w.do(t, "POST", "/v1/call", `{"tool":"no__tool","arguments":{"a":1},"session":"`+s.ID+`"}`, "Content-Type", "application/json")
		if r.status != http.StatusBadRequest {
			t.Fatalf("%s: %+v", mode, r)
		}
		calls := ofType(w.steps(t, s.ID), "call")
		if len(calls) != 1 || calls[0].Journal != mode || r.header.Get("Tine-Call") != calls[0].ID {
			t.Fatalf("%s: %+v", mode, calls)
		}
		if got := string(calls[0].Arguments) + string(calls[0].Result); kept && got != `{"a":1}{"code":-32602,"message":"Unknown tool: no__tool"}` || !kept && got != "" {
			t.Errorf("%s: it has %s", mode, got)
		}
	}
}

func TestAnnotationChecks(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{}`)
	at := "/v1/sessions/" + s.ID + "/annotations"
	for body, says := range map[string]string{
		``:                                      "empty",
		`{}`:                                    "needs a reward",
		`{"text":""}`:                           "needs a reward",
		`{"data":null}`:                         "needs a reward",
		`{"reward":null}`:                       "needs a reward",
		`{"token_ids":[]}`:                      "needs a reward",
		`{"reward":"1"}`:                        "reward must be a number",
		`{"reward":1e400}`:                      "reward must be a number",
		`{"reward":NaN}`:                        "not JSON",
		`{"token_ids":[1,-2]}`:                  "token_ids[1] is -2",
		`{"token_ids":[1.5]}`:                   "whole number",
		`{"logprobs":["a"]}`:                    "logprobs must be a number",
		`{"token_ids":[1],"logprobs":[null,1]}`: "1 token_ids and 2 logprobs",
		`{"rewrad":1}`:                          "unknown field",
		`{"reward":1,"call":"x"}`:               "no id of a call",
		`{"reward":1} {}`:                       "more than one value",
		`{"text":"` + strings.Repeat("x", 8<<20+1) + `"}`: "8388609 bytes",
	} {
		if e := w.refused(t, http.StatusBadRequest, "POST", at, body); e.Kind != api.KindInvalid || !strings.Contains(e.Message, says) {
			t.Errorf("%.60s: %+v, want %q", body, e, says)
		}
	}
	w.refused(t, http.StatusNotFound, "POST", at, `{"reward":1,"call":"call_0000000fffff"}`)
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions/ses_nosuch/annotations", `{"reward":1}`)
	w.refused(t, http.StatusRequestEntityTooLarge, "POST", at, `{"data":"`+strings.Repeat("x", 17<<20)+`"}`)
	if got := ofType(w.steps(t, s.ID), "annotation"); len(got) > 0 {
		t.Errorf("after all was refused there is %+v", got)
	}
	for body, says := range map[string]string{
		`[]`: "must be an object", `{"progressToken":1}`: "progressToken", `{"tine/caller":1}`: "tine/caller",
	} {
		if e := w.refused(t, http.StatusBadRequest, "POST", "/v1/call", `{"tool":"n__add","meta":`+body+`}`); !strings.Contains(e.Message, says) {
			t.Errorf("meta %s: %+v", body, e)
		}
	}
}

// With a key an annotation is made once, also where its answer could not be recorded.
func TestAnnotationKeys(t *testing.T) {
	t.Parallel()
	disk := new(fullDisk)
	w := openWorldsWith(t, "", func(o *gateway.Options) {
		disk.Creations = o.Creations
		o.Creations = disk
	})
	s := w.open(t, `{}`)
	at := "/v1/sessions/" + s.ID + "/annotations"
	one := w.ask(t, "POST", at, `{"reward":1}`, key("k")...)
	two := w.ask(t, "POST", at, `{"reward":1}`, key("k")...)
	if one.status != http.StatusOK || !bytes.Equal(one.body, two.body) {
		t.Errorf("%s\n%s", one.body, two.body)
	}
	w.refused(t, http.StatusConflict, "POST", at, `{"reward":2}`, key("k")...)
	disk.end.Store(true)
	if e := w.refused(t, http.StatusBadGateway, "POST", at, `{"reward":3}`, key("l")...); !strings.Contains(e.Message, "counts once") {
		t.Errorf("unrecorded: %+v", e)
	}
	disk.end.Store(false)
	want[api.Annotation](t, w, "POST", at, `{"reward":3}`, key("l")...)
	if notes := ofType(w.steps(t, s.ID), "annotation"); len(notes) != 2 || *notes[0].Reward != 1 || *notes[1].Reward != 3 {
		t.Errorf("the annotations are %+v", notes)
	}
}

// told are the lines of the trajectories of many, by session in their order, and how many
// the last line says there are.
func (w *worlds) told(t testing.TB, query string, who ...string) (order []string, of map[string][]api.Step, said int) {
	t.Helper()
	r := w.ask(t, "GET", "/v1/trajectories?"+query, "", who...)
	if r.status != http.StatusOK {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	of, said = map[string][]api.Step{}, -1
	for line := range strings.Lines(string(r.body)) {
		var s api.Step
		decode(t, []byte(line), &s)
		switch {
		case said >= 0:
			t.Errorf("after the end comes %s", line)
		case s.Type == "end":
			said = *s.Sessions
			if want := fmt.Sprintf(`{"type":"end","step":0,"sessions":%d}`+"\n", said); line != want {
				t.Errorf("the last line is %s", line)
			}
		default:
			if len(of[s.Of]) == 0 {
				order = append(order, s.Of)
			} else if order[len(order)-1] != s.Of {
				t.Errorf("%s is told in two parts", s.Of)
			}
			of[s.Of] = append(of[s.Of], s)
		}
	}
	return order, of, said
}

// The trajectories of many sessions are those of each, one after the other.
func TestTrajectories(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	one := w.open(t, `{"labels":{"run":"7"}}`, asAda...)
	w.tool(t, one.ID, "add", asAda...)
	fork := want[api.Forks](t, w, "POST", "/v1/sessions/"+one.ID+"/forks", `{"labels":{"arm":"x"}}`, asAda...).Sessions[0]
	w.tool(t, fork.ID, "add", asAda...)
	w.annotate(t, fork.ID, `{"reward":1}`, asAda...)
	w.open(t, `{"labels":{"run":"8"}}`, asAda...)
	bobs := w.open(t, `{"labels":{"run":"7"}}`, asBob...)
	w.gone(t, "/v1/sessions/"+one.ID, asAda...)
	for _, tt := range []struct {
		query string
		who   []string
		want  []string
	}{
		{"label=run%3D7&closed=true", asAda, []string{one.ID, fork.ID}},
		{"label=run%3D7", asAda, []string{fork.ID}},
		{"label=run%3D7&label=arm%3Dx&owner=ada", asAda, []string{fork.ID}},
		{"label=run%3D9", asAda, nil},
		{"label=run%3D7", asBob, []string{bobs.ID}},
		{"label=run%3D7", asEve, nil}, // a viewer reads its own alone
		{"label=run%3D7&closed=true", asOps, []string{one.ID, fork.ID, bobs.ID}},
		{"label=run%3D7&owner=bob", asOps, []string{bobs.ID}},
	} {
		order, of, said := w.told(t, tt.query, tt.who...)
		if !slices.Equal(order, tt.want) || said != len(tt.want) {
			t.Errorf("%s by %.14s: %v, and the end says %d; want %v", tt.query, tt.who[1], order, said, tt.want)
		}
		for id, got := range of {
			alone := w.steps(t, id, tt.who...)
			for i := range got {
				got[i].Of = ""
			}
			if a, b := fmt.Sprintf("%+v", alone), fmt.Sprintf("%+v", got); len(alone) != len(got) || len(a) != len(b) {
				t.Errorf("%s alone is told as\n%s\nand among others as\n%s", id, a, b)
			}
		}
	}
	w.refused(t, http.StatusForbidden, "GET", "/v1/trajectories?owner=bob", "", asAda...)
	w.refused(t, http.StatusForbidden, "GET", "/v1/trajectories?owner=bob", "", asEve...)
	w.refused(t, http.StatusForbidden, "GET", "/v1/trajectories", "", bearer(fork.Token)...)
	w.refused(t, http.StatusBadRequest, "GET", "/v1/trajectories?label=x", "", asAda...)
	w.refused(t, http.StatusBadRequest, "GET", "/v1/trajectories?lable=x", "", asAda...)
}
