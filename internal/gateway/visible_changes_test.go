package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
)

const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// A pair is a world with one server that ada may see and one that she may not,
// each of which all sessions share.
func pair(t *testing.T, rules string) (w *world, seen, dark *talkative) {
	seen, dark = newTalkative(t, false), newTalkative(t, false)
	native := map[string]builtin.Kind{"time": builtinOf(seen), "everything": builtinOf(dark)}
	return open(t, rules+pairServers, native), seen, dark
}

const pairServers = "servers:\n  open: {builtin: time, scope: shared}\n  dark: {builtin: everything, scope: shared}\n"

func builtinOf(s *talkative) builtin.Kind {
	return factory(func() *mcp.Server { return s.Server })
}

// listeners opens every kind of stream that a principal can listen on, with
// interest in everything and in the given resources.
func listeners(t *testing.T, w *world, who []string, uris ...string) map[string]<-chan message {
	t.Helper()
	c := w.dial(t, "/mcp", `{}`, who...)
	c.get("tools/list", `{}`)
	all := map[string]<-chan message{"GET": hear(c.listen())}
	s, post := openEvents(t, w, "/sse", who...)
	send := func(body string) {
		w.do(t, "POST", post, body, append([]string{"Content-Type", "application/json"}, who...)...)
	}
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`)
	s.next()
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	quoted := []string{}
	for i, uri := range uris {
		c.get("resources/subscribe", fmt.Sprintf(`{"uri":%q}`, uri))
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, i+1, uri))
		for m := s.next(); m.Method != ""; {
			m = s.next()
		}
		quoted = append(quoted, fmt.Sprintf("%q", uri))
	}
	all["events"] = hear(s)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":[%s]},%s}}`,
		strings.Join(quoted, ","), meta(`{}`))
	young := w.do(t, "POST", "/mcp", body, append(modernHeaders("subscriptions/listen", ""), who...)...).stream
	young.until("notifications/subscriptions/acknowledged")
	all["listen"] = hear(young)
	return all
}

// TestHiddenChanges has a hidden server announce everything it can. Bob hears of
// it, ada of her own server alone.
func TestHiddenChanges(t *testing.T) {
	t.Parallel()
	w, seen, dark := pair(t, limited)
	bobs := listeners(t, w, asBob, "tine://dark/res://1")
	adas := listeners(t, w, asAda, "tine://open/res://1")
	for _, heard := range bobs {
		for _, method := range []string{toolsChanged, promptsChanged, resourceUpdated} {
			prodFor(t, heard, method, changers(t, dark)[method])
		}
	}
	for kind, heard := range adas {
		quietUntil(t, kind, heard, resourcesChanged, changers(t, seen)[resourcesChanged], toolsChanged, promptsChanged, resourceUpdated)
	}
}

// quietUntil prods until a message of one method comes, which is behind all
// that was on its way before, and wants none of the others.
func quietUntil(t *testing.T, kind string, heard <-chan message, fence string, change func(), never ...string) {
	t.Helper()
	for {
		m := prod(t, heard, change)
		for _, n := range never {
			if m.Method == n {
				t.Errorf("%s: told %s", kind, m.raw)
			}
		}
		if m.Method == fence {
			return
		}
	}
}

// fence changes a resource that nothing else changes. A server's messages reach
// all streams in their order, so a client that has heard of it, or knows
// another that has, has heard of what was before.
func fence(t *testing.T, s *talkative) func() {
	return func() {
		if err := s.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "fence://"}); err != nil {
			t.Error(err)
		}
	}
}

// TestRulesTakenAway takes a server from ada while her streams are open and she
// says nothing.
func TestRulesTakenAway(t *testing.T) {
	t.Parallel()
	const both = `auth:
  tokens: [{name: ada, token: ada-ada-ada-ada-ada}, {name: bob, token: bob-bob-bob-bob-bob}]
  rules:
    - {principals: [ada, bob]}
`
	w, seen, dark := pair(t, both)
	adas := listeners(t, w, asAda, "tine://dark/res://1", "tine://open/res://1", "tine://open/fence://")
	bobs := listeners(t, w, asBob, "tine://dark/fence://")
	ofDark, ofOpen := changers(t, dark)[resourceUpdated], changers(t, seen)[resourceUpdated]
	for _, heard := range adas {
		prodFor(t, heard, resourceUpdated, ofDark)
	}
	w.reload(t, limited+pairServers)
	for _, heard := range adas {
		// What was on its way when the rules changed is not meant.
		for !strings.Contains(string(prodFor(t, heard, resourceUpdated, ofOpen).raw), "tine://open/") {
		}
	}
	ofDark()
	for _, heard := range bobs {
		prodFor(t, heard, resourceUpdated, fence(t, dark))
	}
	for kind, heard := range adas {
		for {
			m := prodFor(t, heard, resourceUpdated, fence(t, seen))
			if strings.Contains(string(m.raw), "tine://dark/") {
				t.Errorf("%s: after the server was taken away, ada is told %s", kind, m.raw)
				break
			}
			if strings.Contains(string(m.raw), "fence://") {
				break
			}
		}
	}
}

// TestRevokedTokensHearNothing revokes a token while its streams are open.
func TestRevokedTokensHearNothing(t *testing.T) {
	t.Parallel()
	w, _, dark := pair(t, "auth:\n  tokens: [{name: bob, token: bob-bob-bob-bob-bob}]\n")
	local := []string{"Authorization", "Bearer " + operator, "Content-Type", "application/json"}
	made := w.do(t, "POST", "/v1/tokens", `{"name":"eve"}`, local...)
	var token struct {
		Secret string `json:"token"`
	}
	decode(t, made.body, &token)
	eves := listeners(t, w, []string{"Authorization", "Bearer " + token.Secret}, "tine://dark/res://1")
	bobs := listeners(t, w, asBob, "tine://dark/fence://")
	change := changers(t, dark)[resourceUpdated]
	for _, heard := range eves {
		prodFor(t, heard, resourceUpdated, change)
	}
	if r := w.do(t, "DELETE", "/v1/tokens/eve", "", local...); r.status != http.StatusOK {
		t.Fatalf("revoke: %d %s", r.status, r.body)
	}
	// What was told before is read first.
	for _, heard := range bobs {
		prodFor(t, heard, resourceUpdated, fence(t, dark))
	}
	for _, heard := range eves {
		for drained := false; !drained; {
			select {
			case _, open := <-heard:
				drained = !open
			case <-time.After(100 * time.Millisecond):
				drained = true
			}
		}
	}
	change()
	for _, heard := range bobs {
		prodFor(t, heard, resourceUpdated, fence(t, dark))
	}
	for kind, heard := range eves {
		select {
		case m, open := <-heard:
			if open {
				t.Errorf("%s: whose token was revoked is still told %s", kind, m.raw)
			}
		case <-time.After(100 * time.Millisecond): // a stream that ended, or says nothing
		}
	}
}
