package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestNotesOfParkedCalls has a legacy server say something at the first moment
// of a call and right after its question is answered. Each must reach the
// request that waits then.
func TestNotesOfParkedCalls(t *testing.T) {
	up := script(t, false, map[string]string{"tools/list": plainTools})
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		var p struct {
			Meta struct{ ProgressToken rawText } `json:"_meta"`
		}
		decode(t, in.Params, &p)
		id := fmt.Sprintf("%q", "q"+strings.Trim(string(in.ID), `"`))
		reply := up.reply(id)
		send := events(w)
		progress := func(n int, message string) {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, p.Meta.ProgressToken, n, message))
		}
		progress(1, "before")
		send(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`)
		select {
		case <-reply:
		case <-r.Context().Done():
			return
		}
		progress(2, "after")
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"over"}]}}`, in.ID))
	})
	w := open(t, servers("t", up.URL))
	withToken := strings.Replace(meta(bothCaps), `"_meta":{`, `"_meta":{"progressToken":"mine",`, 1)
	post := func(members string) (message, []message) {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",%s%s}}`, members, withToken)
		return w.do(t, "POST", "/mcp/t", body, modernHeaders("tools/call", "echo")...).all()
	}
	for range 60 {
		m, notes := post("")
		q := question(t, m)
		if len(notes) != 1 || progressOf(t, notes[0]) != "before" {
			t.Fatalf("before the question came %d notes: %v", len(notes), notes)
		}
		m, notes = post(fmt.Sprintf(`"inputResponses":%s,"requestState":%q,`, q.accept("x"), q.RequestState))
		if got := resultText(t, m); got != "over" {
			t.Fatalf("got %q", got)
		}
		if len(notes) != 1 || progressOf(t, notes[0]) != "after" {
			t.Fatalf("after the answer came %d notes: %v", len(notes), notes)
		}
	}
}
