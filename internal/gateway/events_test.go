package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// happened reads the events that there are, as lines, and holds them against the document.
// The last position comes last, in an event without a type.
func happened(t *testing.T, w *worlds, query string, who ...string) []api.Event {
	t.Helper()
	r := w.ask(t, "GET", "/v1/events?follow=false&"+query, "", append([]string{"Accept", "application/x-ndjson"}, who...)...)
	if r.status != http.StatusOK {
		t.Fatalf("events %s: status %d %s", query, r.status, r.body)
	}
	var all []api.Event
	at := ""
	for line := range bytes.Lines(r.body) {
		var e api.Event
		if err := json.Unmarshal(line, &e); err != nil || e.ID == "" {
			t.Fatalf("events %s: %v in %s", query, err, line)
		}
		if at = e.ID; e.Type != "" {
			all = append(all, e)
		}
	}
	return append(all, api.Event{ID: at})
}

// toldTypes are the types of events, with the session's or the call's name.
func toldTypes(all []api.Event) (out []string) {
	for _, e := range all {
		switch {
		case e.Type == "":
		case e.Call != nil:
			out = append(out, "call "+cmp.Or(e.Call.Name, e.Call.Method))
		default:
			out = append(out, strings.TrimSpace(e.Type+" "+cmp.Or(e.Lost, e.Server)))
		}
	}
	return out
}

// without are events without their positions.
func without(all []api.Event) []api.Event {
	out := slices.Clone(all)
	for i := range out {
		out[i].ID = ""
	}
	return out
}

// aLife opens a session as bob and does all that a session can go through.
func aLife(t *testing.T, w *worlds) (session string, want []string) {
	t.Helper()
	s := w.open(t, `{}`, asBob...)
	at := "/v1/sessions/" + s.ID
	w.tool(t, s.ID, "add", asBob...)
	want1[api.Snapshot](t, w, "POST", at+"/snapshots", `{}`, asBob...)
	w.tool(t, s.ID, "show", asBob...)
	want1[api.Forks](t, w, "POST", at+"/forks", `{"count":2}`, asBob...)
	w.ask(t, "POST", at+"/rewind", "{}", asBob...)
	w.tool(t, s.ID, "add", asBob...)
	w.gone(t, at, asBob...)
	return s.ID, []string{
		"session.opened", "call add", "session.snapshot", "call show", "session.opened", "session.opened", "session.forked", "session.rewound", "call add", "session.closed",
	}
}

// TestEventsFromEveryPosition resumes behind every event, also in a gateway that was
// restarted since, and gets each event after it once.
func TestEventsFromEveryPosition(t *testing.T) {
	w := openWorlds(t, teamYAML)
	session, want := aLife(t, w)
	all := happened(t, w, "after=start", asBob...)
	if got := toldTypes(all); !reflect.DeepEqual(got, want) {
		t.Fatalf("what happened was told as %q, want %q", got, want)
	}
	for _, e := range all[:len(all)-1] {
		if !e.Durable || e.At.IsZero() || e.Session == "" || e.Type != api.EventCall && e.Owner != "bob" {
			t.Errorf("an event is %+v", e)
		}
	}
	if o, f := all[4], all[6]; o.Parent != session || !reflect.DeepEqual(f.Children, []string{o.Session, all[5].Session}) || all[7].Snapshot == "" {
		t.Errorf("a fork is told as %+v, %+v", o, f)
	}
	check := func(when string) {
		t.Helper()
		// A stream that leaves others out has the same positions for sessions.
		for _, e := range happened(t, w, "after=start&types=session.opened,session.rewound", asBob...) {
			i := slices.IndexFunc(all, func(a api.Event) bool { return a.Type == e.Type && a.Session == e.Session })
			if e.Type == "" {
				continue
			}
			if got := happened(t, w, "after="+e.ID, asBob...); !reflect.DeepEqual(toldTypes(got), toldTypes(all[i+1:])) {
				t.Errorf("%s, after %s of another stream: %q", when, e.Type, toldTypes(got))
			}
		}
		for i, e := range all {
			if got := happened(t, w, "after="+e.ID, asBob...); !reflect.DeepEqual(without(got), without(append(all[min(i+1, len(all)-1):len(all)-1:len(all)-1], api.Event{}))) {
				t.Errorf("%s, after event %d: %q", when, i, toldTypes(got))
			}
		}
		for n := range len(want) + 2 {
			if got := toldTypes(happened(t, w, fmt.Sprintf("last=%d", n), asBob...)); n > 0 && !reflect.DeepEqual(got, want[max(0, len(want)-n):]) || n == 0 && got != nil {
				t.Errorf("%s, the last %d are %q", when, n, got)
			}
		}
	}
	check("at once")
	w.restart()
	check("after a restart")

	for query, types := range map[string][]string{
		"types=call":                                    {"call add", "call show", "call add"},
		"types=session.closed":                          {"session.closed"},
		"types=session.closed,call":                     {"call add", "call show", "call add", "session.closed"},
		"types=session.snapshot,run&session=" + session: {"session.snapshot"},
		"types=server":                                  nil,
		"types=session&session=" + all[4].Session:       {"session.opened"},
		"run=run_1":                                     nil,
	} {
		got := happened(t, w, "after=start&"+query, asBob...)
		if !reflect.DeepEqual(toldTypes(got), types) {
			t.Errorf("%s: %q, want %q", query, toldTypes(got), types)
		}
		// The last position is behind all that was passed over.
		if more := happened(t, w, "after="+got[len(got)-1].ID, asBob...); toldTypes(more) != nil {
			t.Errorf("%s: after the last position there are %q", query, toldTypes(more))
		}
	}
	for _, query := range []string{"types=sessio", "types=nosuch,call", "types=,", "after=x", "after=1-2", "after=a-z-1", "last=-1", "types=gap"} {
		w.refused(t, http.StatusBadRequest, "GET", "/v1/events?"+query, "", asBob...)
	}
}

// TestEventGaps says so wherever an event that was asked for is not kept any more.
func TestEventGaps(t *testing.T) {
	w := openWorlds(t, teamYAML)
	before := happened(t, w, "", asBob...)[0].ID
	adas := happened(t, w, "", asAda...)[0].ID
	_, want := aLife(t, w)
	after := happened(t, w, "", asBob...)[0].ID
	for _, s := range want1[api.SessionList](t, w, "GET", "/v1/sessions", "", asBob...).Sessions {
		w.gone(t, "/v1/sessions/"+s.ID, asBob...)
	}
	if _, err := w.db.DropSessions(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	calls := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !strings.HasPrefix(s, "call") })
	for name, c := range map[string]struct {
		query string
		who   []string
		want  []string
	}{
		"from before what was dropped":   {"after=" + before, asBob, append([]string{"gap session"}, calls...)},
		"as a viewer":                    {"after=" + before, asEve, append([]string{"gap session"}, calls...)},
		"calls alone":                    {"after=" + before + "&types=call", asBob, calls},
		"from between":                   {"after=" + after, asBob, []string{"gap session"}}, // the forks were closed later
		"of others":                      {"after=" + adas, asAda, nil},
		"from the start of what is kept": {"after=start", asBob, calls},
		"from now":                       {"", asBob, nil},
		"of another gateway":             {"after=0-1-1", asBob, []string{"gap all"}},
		"of another, from the start":     {"after=0-0-0", asBob, []string{"gap all"}},
		"events that never were":         {"after=" + before[:strings.Index(before, "-")] + "-ffffffff-1", asBob, []string{"gap all"}},
		"calls that never were":          {"after=" + before[:strings.Index(before, "-")] + "-1-ffffffff", asBob, []string{"gap all"}},
	} {
		got := happened(t, w, c.query, c.who...)
		if !reflect.DeepEqual(toldTypes(got), c.want) {
			t.Errorf("%s: %q, want %q", name, toldTypes(got), c.want)
		}
		// It is said once.
		if more := happened(t, w, "after="+got[len(got)-1].ID, c.who...); toldTypes(more) != nil {
			t.Errorf("%s: after the end there are %q", name, toldTypes(more))
		}
	}
}

// putRun writes events of a run as a coordinator does.
func putRun(t *testing.T, w *worlds, session, run string, all ...api.RunEvent) {
	t.Helper()
	var events []store.Event
	for _, e := range all {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, store.Event{Session: session, Run: run, Owner: "bob", At: time.Now().UTC(), Kind: store.EventRun, Call: w.journal.Last(), Data: data})
	}
	if err := w.db.PutEvents(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	w.hub.Wrote()
}

// TestEventsForEveryRole shows each caller what it may see, and no more.
func TestEventsForEveryRole(t *testing.T) {
	w := openCurtain(t)
	const spoken = "what bob said"
	s := w.open(t, `{}`, asBob...)
	at := "/v1/sessions/" + s.ID
	want1[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q,"arguments":{"text":%q}}`, s.ID, spoken), asBob...)
	want1[api.Annotation](t, w, "POST", at+"/annotations", `{"reward":1}`, asBob...)
	putRun(t, w, s.ID, "run_1",
		api.RunEvent{Type: api.RunEventState, Agent: "poet", State: api.RunRunning},
		api.RunEvent{Type: api.RunEventText, Agent: "poet", Data: json.RawMessage(`{"text":"` + spoken + `"}`)})
	// Its session is not open yet.
	putRun(t, w, "ses_ffffffffffff", "run_2", api.RunEvent{Type: api.RunEventState, Agent: "critic", State: api.RunPending})
	ada := w.open(t, `{}`, asAda...)
	own := []string{"session.opened", "call add", "call tine/annotation", "run.state", "run.text", "run.state"}
	inside := []string{"session.opened", "call add", "call tine/annotation", "run.state", "run.text"}
	for name, c := range map[string]struct {
		query  string
		who    []string
		want   []string
		spoken bool
	}{
		"its owner":                 {"", asBob, own, true},
		"its owner, there":          {"session=" + s.ID, asBob, inside, true},
		"its owner, of a run":       {"run=run_1", asBob, []string{"run.state", "run.text"}, true},
		"its owner, of an agent":    {"agent=critic", asBob, []string{"run.state"}, false},
		"its token":                 {"", bearer(s.Token), slices.Delete(slices.Clone(inside), 2, 3), true},
		"its token, there":          {"types=call&session=" + s.ID, bearer(s.Token), []string{"call add"}, true},
		"its token, of another run": {"run=run_2", bearer(s.Token), nil, false},
		"another":                   {"", asAda, []string{"session.opened"}, false},
		"another, of a run":         {"run=run_1", asAda, nil, false},
		"another, of an agent":      {"agent=poet", asAda, nil, false},
		"another token":             {"", bearer(ada.Token), []string{"session.opened"}, false},
		"a viewer":                  {"", asEve, append(slices.Clone(own), "session.opened"), false},
		"a viewer, there":           {"session=" + s.ID, asEve, inside, false},
		"a viewer, of a run":        {"run=run_1", asEve, []string{"run.state", "run.text"}, false},
		"an operator":               {"", asOps, append(slices.Clone(own), "session.opened"), true},
	} {
		all := happened(t, w, "after=start&"+c.query, c.who...)
		if got := toldTypes(all); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s sees %q, want %q", name, got, c.want)
		}
		if b, _ := json.Marshal(all); strings.Contains(string(b), spoken) != c.spoken {
			t.Errorf("%s reads what was said: %v in %s", name, !c.spoken, b)
		}
	}
	for _, e := range happened(t, w, "after=start&run=run_1", asEve...) {
		if e.Type == api.EventRunText && (!e.Withheld || e.Agent != "poet" || e.Data != nil) {
			t.Errorf("a viewer sees %+v", e)
		}
	}
	w.refused(t, http.StatusNotFound, "GET", "/v1/events?session="+s.ID, "", asAda...)
	w.refused(t, http.StatusNotFound, "GET", "/v1/events?session="+ada.ID, "", bearer(s.Token)...)
}

// TestEventsOfServers tells how a server is doing as it changes, why to operators alone,
// and nothing to those who don't know of it.
func TestEventsOfServers(t *testing.T) {
	up := httptest.NewServer(http.NotFoundHandler())
	up.Close()
	w := open(t, curtainYAML+"servers:\n  n: {url: \""+up.URL+"\"}\n  m: {url: \""+up.URL+"\"}\n")
	lines := map[string]<-chan string{}
	for name, who := range map[string][]string{"ada": asAda, "bob": asBob, "ops": asOps} {
		var end context.CancelFunc
		lines[name], end = followEvents(t, w, "types=server", who)
		defer end()
	}
	next := func(who string) (e api.Event) {
		t.Helper()
		if err := json.Unmarshal([]byte(testkit.Within(t, "an event for "+who, lines[who])), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, server := range []string{"n", "m"} {
		w.do(t, "POST", "/v1/call", `{"tool":"`+server+`__x"}`, append([]string{"Content-Type", "application/json"}, asBob...)...)
		for _, who := range []string{"ops", "bob"} {
			e := next(who)
			if e.Type != api.EventServer || e.Server != server || e.State != api.HealthFailing || e.Durable || e.Kind != api.KindInfrastructure || (e.Reason != "") != (who == "ops") || e.ID == "" {
				t.Errorf("%s is told %+v", who, e)
			}
		}
	}
	if e := next("ada"); e.Server != "m" || e.Reason != "" {
		t.Errorf("ada is told %+v", e)
	}
}

// followEvents follows the feed as lines with a type.
func followEvents(t *testing.T, w *world, query string, who []string) (<-chan string, context.CancelFunc) {
	t.Helper()
	return follow(t, w, "/v1/events?"+query, append([]string{"Accept", "application/x-ndjson"}, who...))
}

// TestSlowEventFollower has one that reads nothing while much is written: no writer waits,
// and it then gets each event once, in order.
func TestSlowEventFollower(t *testing.T) {
	w := openWorlds(t, teamYAML)
	s := w.open(t, `{}`, asBob...)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", w.at("/v1/events?session="+s.ID), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(asBob[0], asBob[1])
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	const rounds, each = 60, 100
	text := strings.Repeat("x", 2000) // more than any buffer between
	for i := range rounds {
		var all []api.RunEvent
		for n := range each {
			all = append(all, api.RunEvent{Type: api.RunEventText, Data: json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, i*each+n, text))})
		}
		putRun(t, w, s.ID, "run_1", all...)
		w.tool(t, s.ID, "add", asBob...)
	}
	dec := json.NewDecoder(resp.Body)
	texts, calls, last := 0, 0, ""
	for texts < rounds*each || calls < rounds {
		var e api.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("after %d texts and %d calls: %v", texts, calls, err)
		}
		switch e.Type {
		case "":
		case api.EventCall:
			if calls++; texts < calls*each {
				t.Fatalf("call %d comes after %d texts", calls, texts)
			}
			if e.Call.ID <= last {
				t.Fatalf("call %s comes after %s", e.Call.ID, last)
			}
			last = e.Call.ID
		case api.EventRunText:
			var d struct{ N int }
			if err := json.Unmarshal(e.Data, &d); err != nil || d.N != texts {
				t.Fatalf("text %d comes as number %d, %v", d.N, texts, err)
			}
			texts++
		default:
			t.Fatalf("there is %+v", e)
		}
	}
}

// TestEventsAsServerSentOnes reads the feed as a browser does.
func TestEventsAsServerSentOnes(t *testing.T) {
	w := openWorlds(t, teamYAML)
	at := happened(t, w, "", asBob...)[0].ID
	w.open(t, `{}`, asBob...)
	all := happened(t, w, "after=start", asBob...)
	first := all[0]
	b, _ := json.Marshal(first)
	for _, c := range []struct{ query, last, want string }{
		// What a browser adds when it connects again comes before what its page asked for.
		{"&after=" + first.ID, at, "event: message\nid: " + first.ID + "\ndata: " + string(b) + "\n\n"},
		{"", "", ": ok\nid: " + all[len(all)-1].ID + "\n\n"},
	} {
		req, err := http.NewRequest("GET", w.at("/v1/events?follow=false"+c.query), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(asBob[0], asBob[1])
		req.Header.Set("Last-Event-ID", c.last)
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if media := resp.Header.Get("Content-Type"); err != nil || media != "text/event-stream" || string(got) != c.want {
			t.Errorf("%s %q, %v, want %q", media, got, err, c.want)
		}
	}
}

// TestEventFollowersAreFew refuses a principal more streams than it may have.
func TestEventFollowersAreFew(t *testing.T) {
	w := open(t, teamYAML+"servers: {}\n")
	var ends []context.CancelFunc
	for range 256 {
		_, end := followEvents(t, w, "types=session", asAda)
		ends = append(ends, end)
	}
	if r := w.do(t, "GET", "/v1/events", "", asAda...); r.status != http.StatusTooManyRequests {
		t.Errorf("status %d %s", r.status, r.body)
	}
	_, end := followEvents(t, w, "", asBob)
	end()
	ends[0]()
	testkit.Eventually(t, "there is room again", func() bool {
		return w.do(t, "GET", "/v1/events?follow=false", "", asAda...).status == http.StatusOK
	})
	for _, end := range ends {
		end()
	}
}
