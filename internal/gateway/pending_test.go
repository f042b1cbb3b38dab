package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A call of a modern client that a legacy server interrupts with a question is
// pending: the client gets the question as a result and comes back.

type inputRequired struct {
	ResultType    string `json:"resultType"`
	RequestState  string `json:"requestState"`
	InputRequests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
}

const bothCaps = `{"elicitation":{},"sampling":{}}`

// question decodes a result that must be one.
func question(t testing.TB, m message) inputRequired {
	t.Helper()
	var q inputRequired
	if m.Result == nil {
		t.Fatalf("want a question, got %s", m.raw)
	}
	decode(t, m.Result, &q)
	if q.ResultType != "input_required" || len(q.InputRequests) == 0 || q.RequestState == "" {
		t.Fatalf("want a question, got %s", m.raw)
	}
	return q
}

// accept renders answers to every question of q.
func (q inputRequired) accept(who string) string {
	answers := map[string]any{}
	for key, r := range q.InputRequests {
		if r.Method == "sampling/createMessage" {
			answers[key] = map[string]any{"role": "assistant", "model": "m", "content": map[string]any{"type": "text", "text": who}}
			continue
		}
		answers[key] = map[string]any{"action": "accept", "content": map[string]any{"who": who}}
	}
	raw, _ := json.Marshal(answers)
	return string(raw)
}

// retry renders the params of a call that comes back with answers.
func (q inputRequired) retry(tool, answers string) string {
	return fmt.Sprintf(`{"name":%q,"arguments":{},"inputResponses":%s,"requestState":%q}`, tool, answers, q.RequestState)
}

func pendingWorld(t *testing.T, head string) (*world, *talkative) {
	s := newTalkative(t, false)
	return open(t, head+servers("t", serveSDK(t, s.Server, false))), s
}

func resultText(t testing.TB, m message) string {
	t.Helper()
	var r struct{ Content []struct{ Text string } }
	if m.Result == nil {
		t.Fatalf("want a result, got %s", m.raw)
	}
	decode(t, m.Result, &r)
	if len(r.Content) != 1 {
		t.Fatalf("want one content item, got %s", m.raw)
	}
	return r.Content[0].Text
}

func TestPendingCallGoesOn(t *testing.T) {
	t.Parallel()
	w, _ := pendingWorld(t, "")
	for _, view := range []struct{ path, tool string }{{"/mcp/t", "elicit"}, {"/mcp", "t__elicit"}} {
		c := w.modern(t, view.path, bothCaps)
		q := question(t, c.ask("tools/call", view.tool, fmt.Sprintf(`{"name":%q,"arguments":{}}`, view.tool)))
		for _, r := range q.InputRequests {
			if r.Method != "elicitation/create" || !strings.Contains(string(r.Params), "who are you?") {
				t.Errorf("asked %s %s", r.Method, r.Params)
			}
		}
		m := c.ask("tools/call", view.tool, q.retry(view.tool, q.accept("ada")))
		if got := resultText(t, m); got != "accept ada" {
			t.Errorf("%s: %q", view.path, got)
		}
		var r struct{ ResultType string }
		decode(t, m.Result, &r)
		if r.ResultType != "complete" {
			t.Errorf("the result's type is %q", r.ResultType)
		}
	}
}

func TestPendingCallAsksTwice(t *testing.T) {
	t.Parallel()
	w, _ := pendingWorld(t, "")
	c := w.modern(t, "/mcp/t", bothCaps)
	q1 := question(t, c.ask("tools/call", "two", `{"name":"two","arguments":{}}`))
	q2 := question(t, c.ask("tools/call", "two", q1.retry("two", q1.accept("a"))))
	if got := resultText(t, c.ask("tools/call", "two", q2.retry("two", q2.accept("b")))); got != "ab" {
		t.Errorf("got %q", got)
	}
}

// TestWrongStateIsRefused tries a state where it does not belong. None of it
// may reach the server, nor spoil the state for its owner.
func TestWrongStateIsRefused(t *testing.T) {
	t.Parallel()
	const tokens = "auth:\n  tokens: [{name: ada, token: ada-ada-ada-ada-ada}, {name: bob, token: bob-bob-bob-bob-bob}]\n"
	w, _ := pendingWorld(t, tokens)
	ada := w.modern(t, "/mcp/t", bothCaps, "Authorization", "Bearer ada-ada-ada-ada-ada")
	bob := w.modern(t, "/mcp/t", bothCaps, "Authorization", "Bearer bob-bob-bob-bob-bob")
	start := func() inputRequired {
		return question(t, ada.ask("tools/call", "elicit", `{"name":"elicit","arguments":{}}`))
	}
	q := start()
	other := start()
	flipped := q
	flipped.RequestState = flip(q.RequestState)
	cut := q
	cut.RequestState = q.RequestState[:len(q.RequestState)/2]
	empty := q
	empty.RequestState = ""
	refused := func(what string, m message) {
		t.Helper()
		if m.Error == nil {
			t.Errorf("%s: got %s, want an error", what, m.raw)
			return
		}
		if e := m.failure(t); strings.Contains(e.Message+string(e.Data), q.RequestState) {
			t.Errorf("%s: the error repeats the state: %s", what, m.raw)
		}
	}
	refused("another principal", bob.ask("tools/call", "elicit", q.retry("elicit", q.accept("bob"))))
	refused("another tool", ada.ask("tools/call", "sample", q.retry("sample", q.accept("ada"))))
	refused("another method", ada.ask("prompts/get", "elicit", q.retry("elicit", q.accept("ada"))))
	refused("a changed state", ada.ask("tools/call", "elicit", flipped.retry("elicit", q.accept("ada"))))
	refused("half a state", ada.ask("tools/call", "elicit", cut.retry("elicit", q.accept("ada"))))
	refused("a state of no call", ada.ask("tools/call", "elicit", `{"name":"elicit","inputResponses":{},"requestState":"state who"}`))

	if got := resultText(t, ada.ask("tools/call", "elicit", q.retry("elicit", q.accept("ada")))); got != "accept ada" {
		t.Errorf("the owner of the state got %q", got)
	}
	refused("used up", ada.ask("tools/call", "elicit", q.retry("elicit", q.accept("eve"))))
	if got := resultText(t, ada.ask("tools/call", "elicit", other.retry("elicit", other.accept("second")))); got != "accept second" {
		t.Errorf("the other call got %q", got)
	}
}

// flip changes one character in the middle of s.
func flip(s string) string {
	b := []byte(s)
	i := len(b) / 2
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

// TestPendingCallIsAskedAgain checks that a retry without the answer gets the
// question again instead of an error.
func TestPendingCallIsAskedAgain(t *testing.T) {
	t.Parallel()
	w, _ := pendingWorld(t, "")
	c := w.modern(t, "/mcp/t", bothCaps)
	q := question(t, c.ask("tools/call", "elicit", `{"name":"elicit","arguments":{}}`))
	again := question(t, c.ask("tools/call", "elicit", q.retry("elicit", `{"stranger":{"action":"accept"}}`)))
	if len(again.InputRequests) != len(q.InputRequests) {
		t.Errorf("asked %v, before it was %v", again.InputRequests, q.InputRequests)
	}
	if got := resultText(t, c.ask("tools/call", "elicit", again.retry("elicit", again.accept("late")))); got != "accept late" {
		t.Errorf("got %q", got)
	}
}

// TestManyPendingCallsStayApart answers many calls in another order than they
// were asked.
func TestManyPendingCallsStayApart(t *testing.T) {
	t.Parallel()
	w, _ := pendingWorld(t, "")
	const n = 24
	var asked [n]inputRequired
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c := w.modern(t, "/mcp/t", bothCaps)
			asked[i] = question(t, c.ask("tools/call", "elicit", fmt.Sprintf(`{"name":"elicit","arguments":{"i":%d}}`, i)))
		})
	}
	wg.Wait()
	for i := n - 1; i >= 0; i-- {
		wg.Go(func() {
			for _, r := range asked[i].InputRequests {
				if want := fmt.Sprintf(`{\"i\":%d}`, i); !strings.Contains(string(r.Params), want) {
					t.Errorf("call %d was asked %s", i, r.Params)
				}
			}
			who := fmt.Sprint("caller ", i)
			c := w.modern(t, "/mcp/t", bothCaps)
			if got := resultText(t, c.ask("tools/call", "elicit", asked[i].retry("elicit", asked[i].accept(who)))); got != "accept "+who {
				t.Errorf("call %d got %q", i, got)
			}
		})
	}
	wg.Wait()
}

// TestOneAnswerTakesTheCallUp brings the same answer twice, the second time
// while the first is being worked on.
func TestOneAnswerTakesTheCallUp(t *testing.T) {
	t.Parallel()
	up := script(t, false, map[string]string{"tools/list": plainTools})
	answered, goOn := make(chan struct{}), make(chan struct{})
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		reply := up.reply(`"q"`)
		send := events(w)
		send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`)
		select {
		case <-reply:
		case <-r.Context().Done():
			return
		}
		close(answered)
		<-goOn
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, done))
	})
	w := open(t, servers("t", up.URL))
	c := w.modern(t, "/mcp/t", bothCaps)
	q := question(t, c.ask("tools/call", "echo", `{"name":"echo"}`))
	retry := q.retry("echo", q.accept("x"))
	var wg sync.WaitGroup
	wg.Go(func() {
		if got := resultText(t, c.ask("tools/call", "echo", retry)); got != "done" {
			t.Errorf("got %q", got)
		}
	})
	take(t, answered)
	if m := c.ask("tools/call", "echo", retry); m.Error == nil {
		t.Errorf("the second time: %s", m.raw)
	}
	close(goOn)
	wg.Wait()
}

// TestUnansweredCallsAreBounded leaves questions unanswered. There is an end to
// it: from some number on the server is told no, and others are still served.
func TestUnansweredCallsAreBounded(t *testing.T) {
	t.Parallel()
	up := script(t, false, map[string]string{"tools/list": plainTools})
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		id := fmt.Sprintf("%q", "q"+strings.Trim(string(in.ID), `"`))
		reply := up.reply(id)
		send := events(w)
		send(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`)
		select {
		case got := <-reply:
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"answer":%s}}`, in.ID, got.Result))
		case <-r.Context().Done():
		}
	})
	w := open(t, servers("t", up.URL))
	c := w.modern(t, "/mcp/t", bothCaps)
	for pending := 0; ; pending++ {
		m := c.ask("tools/call", "echo", `{"name":"echo","arguments":{}}`)
		var r struct {
			ResultType string
			Answer     struct{ Action string }
		}
		decode(t, m.Result, &r)
		if r.ResultType != "input_required" {
			if r.Answer.Action != "decline" {
				t.Errorf("over the bound: %s", m.raw)
			}
			break
		}
		if pending == 2000 {
			t.Fatalf("%d calls wait for input and none was refused", pending)
		}
	}
	if r := c.request("tools/list", "", `{}`); r.status != http.StatusOK {
		t.Errorf("after them a list answers %d: %s", r.status, r.body)
	}
}

// TestPendingCallIsLostWithTheGateway checks what a client is told that comes
// back to another gateway.
func TestPendingCallIsLostWithTheGateway(t *testing.T) {
	t.Parallel()
	w, _ := pendingWorld(t, "")
	c := w.modern(t, "/mcp/t", bothCaps)
	q := question(t, c.ask("tools/call", "elicit", `{"name":"elicit","arguments":{}}`))
	w.restart()
	m := c.ask("tools/call", "elicit", q.retry("elicit", q.accept("ada")))
	e := m.failure(t)
	if !strings.Contains(string(e.Data), `"lost"`) {
		t.Errorf("got %s, want an error of kind lost", m.raw)
	}
}
