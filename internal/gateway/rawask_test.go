package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What a server asks and a client answers is relayed raw as well, whichever way
// the two eras carry it.

const (
	oddQuestion = `{"message":"\u0041 <b>","requestedSchema":{"type":"object","properties":{"z":{"const":12345678901234567890},"a":{}}},"future":[1.0, {}],"_meta":{"z/z":1,"a/a":{"n":18446744073709551616}}}`
	oddAnswer   = `{"action":"accept","content":{"z":12345678901234567890,"a":1.0, "s":"\u0042 <&>"},"future":{"b":1,"a":2},"_meta":{"k/v":[ ]}}`
	oddState    = `"st\u0061te \/ <&> é"`
	oddResult   = `{"content":[{"type":"text","text":"\u0043"}],"n":12345678901234567890,"resultType":"complete"}`
)

// asking is a scripted server of either era that asks one odd question in the
// middle of a call. It keeps the raw answers it gets.
func asking(t *testing.T, isModern bool) (*scripted, chan string) {
	up := script(t, isModern, map[string]string{"tools/list": plainTools})
	answers := make(chan string, 8)
	if isModern {
		up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
			var p struct {
				InputResponses map[string]rawText
				RequestState   rawText
			}
			decode(t, in.Params, &p)
			if p.InputResponses == nil {
				writeResult(w, in, `{"resultType":"input_required","inputRequests":{"k\u0031":{"method":"elicitation/create","params":`+oddQuestion+`}},"requestState":`+oddState+`}`)
				return
			}
			if p.RequestState != oddState {
				t.Errorf("the state came back as %s, it was %s", p.RequestState, oddState)
			}
			answers <- string(p.InputResponses["k1"])
			writeResult(w, in, oddResult)
		})
		return up, answers
	}
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		reply := up.reply(`"q\u0031"`)
		send := events(w)
		send(`{"jsonrpc":"2.0","id":"q\u0031","method":"elicitation/create","params":` + oddQuestion + `}`)
		select {
		case got := <-reply:
			answers <- string(got.Result)
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, oddResult))
		case <-r.Context().Done():
		}
	})
	return up, answers
}

func TestQuestionsAndAnswersAreRaw(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for path, tool := range map[string]string{"/mcp/a": "echo", "/mcp": "a__echo"} {
			t.Run(era.name+" at "+path, func(t *testing.T) {
				up, answers := asking(t, era.upstream)
				w := open(t, servers("a", up.URL))
				params := fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, strange)
				var result []byte
				if era.client {
					c := w.modern(t, path, bothCaps)
					m := c.ask("tools/call", tool, params)
					q := question(t, m)
					if !bytes.Contains(m.Result, []byte(oddQuestion)) {
						t.Errorf("asked %s, want %s in it", m.Result, oddQuestion)
					}
					key := slices.Collect(maps.Keys(q.InputRequests))[0]
					state := findRaw(t, m.Result)
					retry := strings.TrimSuffix(params, "}") + fmt.Sprintf(`,"inputResponses":{%q:%s},"requestState":%s}`, key, oddAnswer, state)
					result = c.ask("tools/call", tool, retry).Result
				} else {
					c := w.dial(t, path, bothCaps)
					call := c.request("tools/call", params)
					asked := call.stream.until("elicitation/create")
					if string(asked.Params) != oddQuestion {
						t.Errorf("asked\n%s, want\n%s", asked.Params, oddQuestion)
					}
					c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, oddAnswer))
					result = call.answer().Result
				}
				if string(result) != oddResult {
					t.Errorf("answered\n%s, want\n%s", result, oddResult)
				}
				// Between a legacy client and a modern server answers are put
				// together anew; what they say stays.
				bridged := !era.client && era.upstream
				if got := take(t, answers); got != oddAnswer && !(bridged && canonical(t, got) == canonical(t, oddAnswer)) {
					t.Errorf("the server got\n%s, want\n%s", got, oddAnswer)
				}
				last := up.last(t, "tools/call")
				if !bytes.Contains(last.Params, []byte(`"arguments":`+strange)) {
					t.Errorf("the arguments of the last request were %s", last.Params)
				}
			})
		}
	}
}

// canonical writes JSON without space and with escapes, every number as it is.
func canonical(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(json.RawMessage(s))
	if err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return string(b)
}

// findRaw returns the requestState of a result as it is written.
func findRaw(t *testing.T, result []byte) rawText {
	t.Helper()
	var r struct{ RequestState rawText }
	decode(t, result, &r)
	return r.RequestState
}

// TestAnErrorForAnAnswer checks that a client's error in place of an answer
// reaches a legacy server raw.
func TestAnErrorForAnAnswer(t *testing.T) {
	t.Parallel()
	const failure = `{"code":-1,"message":"no \u0041","data":{"n":12345678901234567890}}`
	up := script(t, false, map[string]string{"tools/list": plainTools})
	got := make(chan string, 1)
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		reply := up.reply(`77`)
		send := events(w)
		send(`{"jsonrpc":"2.0","id":77,"method":"sampling/createMessage","params":` + oddQuestion + `}`)
		select {
		case a := <-reply:
			got <- string(a.Error)
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, done))
		case <-r.Context().Done():
		}
	})
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", bothCaps)
	call := c.request("tools/call", `{"name":"echo"}`)
	asked := call.stream.until("sampling/createMessage")
	c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, asked.ID, failure))
	if text := resultText(t, call.answer()); text != "done" {
		t.Errorf("got %q", text)
	}
	if e := take(t, got); e != failure {
		t.Errorf("the server got %s, want %s", e, failure)
	}
}

// TestNotificationsAreRaw checks progress and log messages with more in them
// than anyone knows.
func TestNotificationsAreRaw(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			up := script(t, era.upstream, map[string]string{"tools/list": plainTools})
			const logged = `{"level":"error","logger":"l","data":{"n":12345678901234567890,"b":1,"a":"\u0041"},"future":1.0}`
			const custom = `{"z":12345678901234567890, "a":[ ]}`
			up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
				var p struct {
					Meta struct{ ProgressToken rawText } `json:"_meta"`
				}
				decode(t, in.Params, &p)
				send := events(w)
				send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"z":12345678901234567890,"progressToken":` + string(p.Meta.ProgressToken) + `,"progress":0.10, "future":{}}}`)
				send(`{"jsonrpc":"2.0","method":"notifications/message","params":` + logged + `}`)
				send(`{"jsonrpc":"2.0","method":"notifications/x/custom","params":` + custom + `}`)
				send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, done))
			})
			w := open(t, servers("a", up.URL))
			const token = `"t\u006fken \/ é"`
			var notes []message
			if era.client {
				m := strings.Replace(meta(`{}`), `"_meta":{`, `"_meta":{"progressToken":`+token+`,"io.modelcontextprotocol/logLevel":"debug",`, 1)
				_, notes = w.do(t, "POST", "/mcp/a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",`+m+`}}`, modernHeaders("tools/call", "echo")...).all()
			} else {
				c := w.dial(t, "/mcp/a", `{}`)
				c.get("logging/setLevel", `{"level":"debug"}`)
				_, notes = c.request("tools/call", `{"name":"echo","_meta":{"progressToken":`+token+`}}`).all()
			}
			want := []string{
				`{"z":12345678901234567890,"progressToken":` + token + `,"progress":0.10, "future":{}}`, logged, custom,
			}
			if len(notes) != len(want) {
				t.Fatalf("%d notes, want %d: %v", len(notes), len(want), notes)
			}
			for i, n := range notes {
				if string(n.Params) != want[i] {
					t.Errorf("got\n%s, want\n%s", n.Params, want[i])
				}
			}
		})
	}
}
