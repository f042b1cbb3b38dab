package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestViewersReadNoContents checks that a viewer sees that others call, and not
// what they say.
func TestViewersReadNoContents(t *testing.T) {
	w := openCurtain(t)
	s := w.open(t, `{}`, asBob...)
	at := "/v1/sessions/" + s.ID
	all, end := follow(t, w.world, "/v1/calls?follow=true", asEve)
	defer end()
	one, end := follow(t, w.world, at+"/calls?follow=true", asEve)
	defer end()
	mine, end := follow(t, w.world, at+"/calls?follow=true", bearer(s.Token))
	defer end()
	const spoken = "what bob said"
	want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q,"arguments":{"text":%q}}`, s.ID, spoken), asBob...)
	w.ask(t, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__nosuch-%s","session":%q,"arguments":{"text":%q}}`, "x", s.ID, spoken), asBob...)
	uri := `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"x://` + strings.ReplaceAll(spoken, " ", "-") + `"}}`
	w.do(t, "POST", "/s/"+s.ID+"/mcp/n", uri, append([]string{"Content-Type", "application/json"}, asBob...)...)
	saysNothing := func(where, text string) {
		t.Helper()
		if strings.Contains(text, spoken) || strings.Contains(text, "what-bob-said") || strings.Contains(text, `"content"`) {
			t.Errorf("%s a viewer reads %s", where, text)
		}
	}
	var id string
	for _, path := range []string{"/v1/calls", at + "/calls", "/v1/calls?session=" + s.ID} {
		var list api.CallList
		testkit.Eventually(t, "the calls are listed", func() bool {
			list = want[api.CallList](t, w, "GET", path, "", asEve...)
			return len(list.Calls) >= 3
		})
		b, _ := json.Marshal(list)
		saysNothing("at "+path, string(b))
		for _, c := range list.Calls {
			if !c.Withheld || c.Principal != "bob" || c.Method == "tools/call" && c.Name == "" || c.Error != "" {
				t.Errorf("at %s a call is %+v", path, c)
			}
			if c.Name == "add" {
				id = c.ID
			}
		}
	}
	saysNothing("of one call", string(w.ask(t, "GET", "/v1/calls/"+id, "", asEve...).body))
	w.refused(t, 403, "GET", at+"/trajectory", "", asEve...)
	w.refused(t, 409, "POST", "/v1/calls/"+id+"/replay", "", asEve...)
	w.refused(t, 403, "GET", "/v1/servers/n/logs", "", asEve...)
	for what, lines := range map[string]<-chan string{"the stream of all": all, "that of the session": one} {
		for range 3 {
			saysNothing("in "+what, <-lines)
		}
	}
	// Neither in what went wrong last.
	saysNothing("of the server", string(w.ask(t, "GET", "/v1/servers/n", "", asEve...).body))
	saysNothing("of the servers", string(w.ask(t, "GET", "/v1/servers", "", asEve...).body))
	// Who could have made them reads all.
	for who, headers := range map[string][]string{"bob": asBob, "an operator": asOps} {
		got := want[api.Call](t, w, "GET", "/v1/calls/"+id, "", headers...)
		if got.Withheld || !strings.Contains(string(got.Arguments), spoken) || len(got.Result) == 0 {
			t.Errorf("%s reads %+v", who, got)
		}
	}
	if line := <-mine; !strings.Contains(line, spoken) {
		t.Errorf("who has the session's token reads %s", line)
	}
	// A viewer reads its own.
	mineOnly := w.open(t, `{}`, asEve...)
	want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q,"arguments":{"text":"hers"}}`, mineOnly.ID), asEve...)
	testkit.Eventually(t, "her own call is listed", func() bool {
		return slices.ContainsFunc(want[api.CallList](t, w, "GET", "/v1/calls?session="+mineOnly.ID, "", asEve...).Calls, func(c api.Call) bool {
			return !c.Withheld && strings.Contains(string(c.Arguments), "hers")
		})
	})
}

// TestDeniedCallsAreWrittenDown checks that every call which the rules keep from
// being made is in the journal, with its reason for operators, and without telling
// its maker that there is such a server.
func TestDeniedCallsAreWrittenDown(t *testing.T) {
	w := openCurtain(t)
	s := w.open(t, `{}`, asAda...)
	post := func(path, tool string) {
		w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`, append([]string{"Content-Type", "application/json"}, asAda...)...)
	}
	ways := map[string]func(){
		"the control API": func() {
			w.ask(t, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q}`, s.ID), asAda...)
		},
		"the merged view": func() { post("/s/"+s.ID+"/mcp", "n__add") },
		"its own view":    func() { post("/s/"+s.ID+"/mcp/n", "add") },
		"rollout": func() {
			w.rollout(t, "call_backend_tool", fmt.Sprintf(`{"session_id":%q,"backend_name_ref":"n","tool_name":"add","tool_args":{}}`, s.ID), asAda...)
		},
	}
	seen := 0
	for what, call := range ways {
		call()
		testkit.Eventually(t, "a call by "+what+" is in the journal", func() bool {
			n := 0
			for _, c := range want[api.CallList](t, w, "GET", "/v1/calls?server=n", "", asOps...).Calls {
				if c.Outcome == "invalid" && c.Principal == "ada" && c.Session == s.ID && strings.Contains(c.Error, `auth.rules give "ada" no server n`) && c.Journal == "meta" {
					n++
				}
			}
			return n == seen+1
		})
		seen++
	}
	// A viewer sees the rows, not why.
	list := want[api.CallList](t, w, "GET", "/v1/calls?server=n", "", asEve...).Calls
	if len(list) != seen || list[0].Error != "" {
		t.Errorf("a viewer sees %+v", list)
	}
	// Ada is not told that there is a server n.
	for _, path := range []string{"/v1/calls", "/v1/calls?server=n", "/v1/sessions/" + s.ID + "/calls", "/v1/calls?failed=true"} {
		for _, c := range want[api.CallList](t, w, "GET", path, "", asAda...).Calls {
			if c.Server == "n" {
				t.Errorf("at %s ada sees %+v", path, c)
			}
		}
	}
	w.refused(t, 404, "GET", "/v1/calls/"+list[0].ID, "", asAda...)
	w.refused(t, 404, "POST", "/v1/calls/"+list[0].ID+"/replay", "", asAda...)
	w.refused(t, 409, "POST", "/v1/calls/"+list[0].ID+"/replay", "", asOps...)
	want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"m__add","session":%q}`, s.ID), asAda...)
	for who, headers := range map[string][]string{"ada": asAda, "ops": asOps} {
		denied, last := 0, int64(0)
		for _, step := range w.steps(t, s.ID, headers...) {
			if step.Server == "n" {
				denied++
			}
			if who == "ada" && (step.Server == "n" || strings.Contains(step.Error, "rules")) {
				t.Errorf("ada exports %+v", step)
			}
			last = max(last, step.Step)
		}
		if who == "ops" && denied != seen {
			t.Errorf("an operator exports %d of %d", denied, seen)
		}
		if last != 1 { // what was not made is no step
			t.Errorf("%s exports %d steps", who, last)
		}
	}
	// Of a server that she knows she sees that it was denied, and not why. Nothing of
	// it is in another principal's session.
	other := w.open(t, `{}`, asBob...)
	post("/s/"+other.ID+"/mcp/n", "add")
	for _, c := range want[api.CallList](t, w, "GET", "/v1/sessions/"+other.ID+"/calls", "", asBob...).Calls {
		t.Errorf("bob's session has %+v", c)
	}
}
