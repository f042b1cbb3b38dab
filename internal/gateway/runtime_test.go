package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// patch changes server a at run time, as the machine's own user.
func (w *world) patch(t *testing.T, body string) api.Server {
	t.Helper()
	r := w.do(t, "PATCH", "/v1/servers/a", body, "Content-Type", "application/json", "Authorization", "Bearer "+operator)
	if r.status != http.StatusOK {
		t.Fatalf("PATCH %s: status %d %s", body, r.status, r.body)
	}
	var s api.Server
	decode(t, r.body, &s)
	return s
}

// TestPolicyChangesKeepTheConnection changes every setting of a server's policy
// under a call, which goes on, over the connection that was there.
func TestPolicyChangesKeepTheConnection(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, false)
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	c.get("tools/list", `{}`)
	session := up.last(t, "tools/list").header.Get("Mcp-Session-Id")
	hellos := len(up.of("initialize"))
	answered := make(chan message, 1)
	go func() { answered <- c.ask("tools/call", `{"name":"hold"}`) }()
	take(t, started)
	s := w.patch(t, `{"set":{"timeout":"7m","connect_timeout":"3s","journal":"meta","tools":{"describe":{"free":"Is free."}},
		"policy":{"max_timeout":"3h","retry":{"attempts":5,"pause":"1ms","max_pause":"2ms"},"breaker":{"failures":7,"open":"1m","probes":2},
		"rate":{"calls":500,"burst":50},"concurrency":{"calls":9,"queue":3,"wait":"2s"},"cache":{"lists":"1m","results":"2m","tools":["free"]}}}}`)
	want := []string{"connect_timeout", "journal", "policy.breaker.failures", "policy.breaker.open", "policy.breaker.probes",
		"policy.cache.lists", "policy.cache.results", "policy.cache.tools", "policy.concurrency.calls", "policy.concurrency.queue", "policy.concurrency.wait",
		"policy.max_timeout", "policy.rate.burst", "policy.rate.calls", "policy.retry.attempts", "policy.retry.max_pause", "policy.retry.pause",
		"timeout", "tools.describe.free"}
	got := slices.Clone(s.Overrides)
	slices.Sort(got)
	if !s.Overridden || !slices.Equal(got, want) {
		t.Errorf("overrides %q, want %q", got, want)
	}
	p := s.Policy
	if p == nil || p.Timeout != "7m0s" || p.ConnectTimeout != "3s" || p.MaxTimeout != "3h0m0s" || p.Retry != 5 || p.Breaker != 7 || p.BreakerOpen != "1m0s" ||
		p.Rate != 500 || p.Burst != 50 || p.Concurrency != 9 || p.Queue != 3 || p.QueueWait != "2s" || p.CacheLists != "1m0s" || p.CacheResults != "2m0s" ||
		!slices.Equal(p.CacheTools, []string{"free"}) || p.Journal != "meta" {
		t.Errorf("the policy is %+v", p)
	}
	close(release)
	if got := resultText(t, take(t, answered)); got != "done" {
		t.Errorf("the running call got %q", got)
	}
	for range 2 {
		if got := resultText(t, c.ask("tools/call", `{"name":"free"}`)); got != "done" {
			t.Errorf("the next call got %q", got)
		}
		if got := up.last(t, "tools/call").header.Get("Mcp-Session-Id"); got != session {
			t.Errorf("it came in session %q, want %q", got, session)
		}
		w.patch(t, `{"reset":true}`)
	}
	if n := len(up.of("initialize")); n != hellos {
		t.Errorf("the server was greeted %d times more", n-hellos)
	}
	if s := w.server(t, "a"); s.Overridden || len(s.Overrides) != 0 || s.Policy.Retry != 3 || s.Restarts != 0 {
		t.Errorf("after the reset: %+v", s)
	}
}

// TestCredentialChangesTakeEffect changes headers under a call: it ends with the
// ones it began with, and the next has the new ones.
func TestCredentialChangesTakeEffect(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up, started, release := blocking(t, isModern)
		entry := servers("a", `{url: "`+up.URL+`", headers: {X-Key: of-the-config, X-Other: stays}}`)
		w := open(t, entry)
		old, young := w.dial(t, "/mcp/a", `{}`), w.modern(t, "/mcp", `{}`)
		answered := make(chan message, 1)
		go func() { answered <- old.ask("tools/call", `{"name":"hold"}`) }()
		take(t, started)
		keys := func() (got []string) {
			t.Helper()
			old.get("tools/list", `{}`)
			young.get("tools/list", "", `{}`)
			for _, in := range up.of("tools/list")[len(up.of("tools/list"))-2:] {
				got = append(got, in.header.Get("X-Key"))
				if in.header.Get("X-Other") != "stays" {
					t.Errorf("X-Other is %q", in.header.Get("X-Other"))
				}
			}
			return got
		}
		check := func(when, want string, s api.Server, overrides ...string) {
			t.Helper()
			if got := keys(); got[0] != want || got[1] != want {
				t.Errorf("modern=%v, %s: came with %q, want %q", isModern, when, got, want)
			}
			if !slices.Equal(s.Overrides, overrides) && len(s.Overrides)+len(overrides) > 0 {
				t.Errorf("modern=%v, %s: overrides %q, want %q", isModern, when, s.Overrides, overrides)
			}
		}
		check("set", "renewed", w.patch(t, `{"set":{"headers":{"X-Key":"renewed"}}}`), "headers.X-Key")
		check("set again, in other letters", "renewed2", w.patch(t, `{"set":{"headers":{"x-key":"renewed2"}}}`), "headers.x-key")
		close(release)
		if got := resultText(t, take(t, answered)); got != "done" {
			t.Errorf("modern=%v: the running call got %q", isModern, got)
		}
		if got := up.of("tools/call")[0].header.Get("X-Key"); got != "of-the-config" {
			t.Errorf("modern=%v: it came with %q", isModern, got)
		}
		w.restart()
		old = w.dial(t, "/mcp/a", `{}`)
		check("after a restart", "renewed2", w.server(t, "a"), "headers.x-key")
		w.reload(t, strings.Replace(entry, "of-the-config", "of-the-next-config", 1))
		check("after a reload", "renewed2", w.server(t, "a"), "headers.x-key")
		check("unset", "of-the-next-config", w.patch(t, `{"unset":["headers.X-Key"]}`))
		w.restart()
		old = w.dial(t, "/mcp/a", `{}`)
		w.reload(t, entry)
		check("unset and restarted", "of-the-config", w.server(t, "a"))
	}
}

// TestRunTimeChangesAreKept sets, restarts and looks.
func TestRunTimeChangesAreKept(t *testing.T) {
	t.Parallel()
	up := newFailing(t, false)
	w := open(t, servers("a", `{url: "`+up.URL+`", timeout: 30s, policy: {retry: {attempts: 2}, breaker: off}}`, "b", up.URL))
	w.patch(t, `{"set":{"policy":{"retry":{"attempts":4,"pause":"1ms"}}}}`)
	w.patch(t, `{"set":{"timeout":"9s","policy":{"cache":"off"}}}`)
	check := func(when string) {
		t.Helper()
		s := w.server(t, "a")
		if !s.Overridden || !slices.Equal(s.Overrides, []string{"policy.cache", "policy.retry.attempts", "policy.retry.pause", "timeout"}) {
			t.Errorf("%s: overrides %q", when, s.Overrides)
		}
		if s.Policy.Timeout != "9s" || s.Policy.Retry != 4 || s.Policy.CacheLists != "" || s.Policy.Breaker != 0 {
			t.Errorf("%s: %+v", when, s.Policy)
		}
		before := up.callsOf("reads")
		up.next(-1, failures[0].fail)
		w.modern(t, "/mcp/a", `{}`).ask("tools/call", "reads", `{"name":"reads"}`)
		if n := up.callsOf("reads") - before; n != 4 {
			t.Errorf("%s: %d attempts, want 4", when, n)
		}
		if s := w.server(t, "b"); s.Overridden || s.Policy.Retry != 3 {
			t.Errorf("%s: the other server: %+v", when, s)
		}
	}
	check("set")
	w.restart()
	check("restarted")
	// The config goes on being what is below.
	w.reload(t, strings.Replace(w.yaml, "timeout: 30s", "timeout: 40s", 1))
	check("reloaded")
	if s := w.patch(t, `{"unset":["timeout","policy.retry"]}`); s.Policy.Timeout != "40s" || s.Policy.Retry != 2 || !slices.Equal(s.Overrides, []string{"policy.cache"}) {
		t.Errorf("unset: %+v, %q", s.Policy, s.Overrides)
	}
	if s := w.patch(t, `{"set":{"timeout":"40s"}}`); !slices.Contains(s.Overrides, "timeout") {
		t.Logf("what the config says too is no override: %q", s.Overrides)
	}
	w.patch(t, `{"reset":true}`)
	w.restart()
	if s := w.server(t, "a"); s.Overridden || s.Policy.Timeout != "40s" || s.Policy.Retry != 2 || s.Policy.CacheLists == "" {
		t.Errorf("reset and restarted: %+v, %+v", s, s.Policy)
	}
}

// TestWrongChangesChangeNothing has patches that are refused, each with the key
// and without the secrets that came with it.
func TestWrongChangesChangeNothing(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-a-wrong-patch"
	up := newFailing(t, false)
	w := open(t, servers("a", `{url: "`+up.URL+`", headers: {X-Key: right}}`))
	w.patch(t, `{"set":{"timeout":"50s"}}`)
	c := w.dial(t, "/mcp/a", `{}`)
	c.get("tools/call", `{"name":"plain"}`)
	hellos := len(up.of("initialize"))
	look := func() string {
		r := w.do(t, "GET", "/v1/servers/a", "", "Authorization", "Bearer "+operator)
		var s api.Server
		decode(t, r.body, &s)
		raw, err := json.Marshal([]any{s.Policy, s.Overrides, s.Enabled, s.State, s.Instances})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	before := look()
	for body, key := range map[string]string{
		`{"set":{"timeout":"quick"}}`:                                                                         "servers.a.timeout",
		`{"set":{"timeout":-1}}`:                                                                              "servers.a.timeout",
		`{"set":{"timout":"10s"}}`:                                                                            "timout",
		`{"set":{"policy":{"retry":{"attempts":0}}}}`:                                                         "servers.a.policy.retry.attempts",
		`{"set":{"policy":{"retry":{"attempts":99}}}}`:                                                        "servers.a.policy.retry.attempts",
		`{"set":{"policy":{"retry":{"attempts":"three"}}}}`:                                                   "servers.a.policy.retry.attempts",
		`{"set":{"policy":{"retries":3}}}`:                                                                    "retries",
		`{"set":{"policy":{"breaker":"on"}}}`:                                                                 "servers.a.policy.breaker",
		`{"set":{"policy":{"rate":{"calls":-1}}}}`:                                                            "servers.a.policy.rate.calls",
		`{"set":{"policy":{"concurrency":{"queue":1.5}}}}`:                                                    "servers.a.policy.concurrency.queue",
		`{"set":{"policy":{"max_timeout":"1s"}}}`:                                                             "servers.a.policy.max_timeout",
		`{"set":{"policy":{"cache":{"tools":"["}}}}`:                                                          "servers.a.policy.cache.tools",
		`{"set":{"policy":null}}`:                                                                             "policy",
		`{"set":{"journal":"some"}}`:                                                                          "servers.a.journal",
		`{"set":{"url":"http://elsewhere.example.org"}}`:                                                      "servers.a.url",
		`{"set":{"command":"rm"}}`:                                                                            "servers.a.command",
		`{"set":{"enabled":false}}`:                                                                           "servers.a.enabled",
		`{"set":{"env":{"A":"b"}}}`:                                                                           "servers.a.env",
		`{"set":{"headers":{"X-Key":"${HOME}"}}}`:                                                             "servers.a.headers.X-Key",
		`{"set":{"headers":{"X-Key":"${file:/etc/passwd}"}}}`:                                                 "servers.a.headers.X-Key",
		`{"set":{"headers":{"X Key":"` + secret + `"}}}`:                                                      "headers",
		`{"set":{"headers":{"X-Key":"` + secret + `\nX-Evil: 1"}}}`:                                           "servers.a.headers.X-Key",
		`{"set":{"headers":{"X-Key":["` + secret + `"]}}}`:                                                    "servers.a.headers.X-Key",
		`{"set":{"headers":{"X-Key":{"a":"` + secret + `"}}}}`:                                                "servers.a.headers.X-Key",
		`{"set":{"headers":"` + secret + `"}}`:                                                                "servers.a.headers",
		`{"set":{"headers":{"Host":"` + secret + `"}}}`:                                                       "servers.a.headers",
		`{"set":{"headers":{"Authorization":"Bearer ` + secret + `"},"auth":{"type":"login"}}}`:               "servers.a",
		`{"set":{"auth":{"type":"client_credentials","client_secret":"` + secret + `"}}}`:                     "servers.a.auth",
		`{"set":{"auth":{"type":"client_credentials","client_secret":["` + secret + `"]}}}`:                   "servers.a.auth",
		`{"set":{"auth":{"type":"oauth"}}}`:                                                                   "servers.a.auth.type",
		`{"set":{"timeout":"51s","policy":{"breaker":{"failures":-1}},"headers":{"X-Key":"` + secret + `"}}}`: "servers.a.policy.breaker.failures",
		`{"set":[1]}`:                                    "settings",
		`{"set":"` + secret + `"}`:                       "settings",
		`{"set":{"timeout":"1s","timeout":"2s"}}`:        "timeout",
		`{"unset":["policy.retry"]}`:                     "policy.retry",
		`{"unset":["timeout","nosuch"]}`:                 "nosuch",
		`{"unset":[""]}`:                                 "",
		`{"reset":true,"unset":["timeout"]}`:             "reset",
		`{"reset":true,"set":{"timeout":"3s"}}`:          "reset",
		`{"enabled":false,"set":{"timeout":"nonsense"}}`: "servers.a.timeout",
	} {
		r := w.do(t, "PATCH", "/v1/servers/a", body, "Content-Type", "application/json", "Authorization", "Bearer "+operator)
		var e api.Error
		decode(t, r.body, &e)
		if r.status != http.StatusBadRequest || e.Kind != api.KindInvalid || !strings.Contains(e.Message, key) {
			t.Errorf("%s: status %d %s; want 400 that names %q", body, r.status, r.body, key)
		}
		if strings.Contains(string(r.body), secret) {
			t.Errorf("%s: the refusal repeats a secret: %s", body, r.body)
		}
		if after := look(); after != before {
			t.Errorf("%s: was refused and changed the server:\n%s\n%s", body, before, after)
		}
	}
	if strings.Contains(w.log.String(), secret) {
		t.Error("a secret of a refused patch is in the log")
	}
	c.get("tools/call", `{"name":"plain"}`)
	if in := up.last(t, "tools/call"); in.header.Get("X-Key") != "right" || len(up.of("initialize")) != hellos {
		t.Errorf("the server is sent %q after %d greetings", in.header.Get("X-Key"), len(up.of("initialize"))-hellos)
	}
	w.restart()
	if s := w.server(t, "a"); !slices.Equal(s.Overrides, []string{"timeout"}) || s.Policy.Timeout != "50s" {
		t.Errorf("after a restart: %q, %+v", s.Overrides, s.Policy)
	}
}

// TestOnlyOperatorsChangeServers tries it as other principals.
func TestOnlyOperatorsChangeServers(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	w := open(t, twoPeople+servers("a", up.URL))
	for _, body := range []string{`{"set":{"timeout":"1s"}}`, `{"enabled":false}`, `{"reset":true}`, `{"unset":["timeout"]}`, `nonsense`} {
		r := w.do(t, "PATCH", "/v1/servers/a", body, append([]string{"Content-Type", "application/json"}, asAda...)...)
		if r.status != http.StatusForbidden {
			t.Errorf("%s: status %d %s, want 403", body, r.status, r.body)
		}
	}
	if s := w.server(t, "a"); s.Overridden || !s.Enabled {
		t.Errorf("changed: %+v", s)
	}
}

// TestSecretsSetAtRunTimeAreShownNowhere sets credentials over the API, has the
// server repeat them wherever it can, and looks for them.
func TestSecretsSetAtRunTimeAreShownNowhere(t *testing.T) {
	t.Parallel()
	const (
		old    = "old-secret-of-the-config-1"
		secret = "new-secret-set-at-run-time-2"
		client = "client-secret-set-at-run-time-3"
	)
	up := newFailing(t, false)
	echo := func(w http.ResponseWriter, r *http.Request, in received) {
		key := in.header.Get("X-Key")
		switch argument(in) {
		case "500":
			http.Error(w, "the key "+key+" is wrong", http.StatusInternalServerError)
		case "401":
			http.Error(w, "no entry with "+key, http.StatusUnauthorized)
		case "error":
			writeFailure(w, http.StatusOK, in, -32000, "the key "+key+" is wrong")
		default:
			writeResult(w, in, done)
		}
	}
	up.on("tools/call", echo)
	w := open(t, servers("a", `{url: "`+up.URL+`", headers: {X-Key: `+old+`}, policy: {retry: off, breaker: off}}`, "m", up.URL))
	var seen strings.Builder
	look := func() {
		c := w.dial(t, "/mcp", `{}`)
		for _, n := range []string{"500", "401", "fine"} {
			seen.Write(c.ask("tools/call", `{"name":"a__plain","arguments":{"n":"`+n+`"}}`).raw)
		}
		// What the server itself says to its client passes as it is; in listings it
		// does not.
		c.ask("tools/call", `{"name":"a__plain","arguments":{"n":"error"}}`)
		for _, path := range []string{"/v1/servers", "/v1/servers/a", "/v1/servers/m", "/v1/calls", "/v1/calls?failed=true", "/v1/tools", "/v1/servers/a/logs", "/metrics", "/v1/status"} {
			seen.Write(w.do(t, "GET", path, "").body)
		}
	}
	seen.Write(w.do(t, "PATCH", "/v1/servers/a", `{"set":{"headers":{"X-Key":"`+secret+`"}}}`, "Content-Type", "application/json").body)
	look()
	if got := up.last(t, "tools/call").header.Get("X-Key"); got != secret {
		t.Fatalf("the server was sent %q", got)
	}
	seen.Write(w.do(t, "PATCH", "/v1/servers/m", fmt.Sprintf(`{"set":{"auth":{"type":"client_credentials","token_url":"http://127.0.0.1:1/token","client_id":"tine","client_secret":%q}}}`, client), "Content-Type", "application/json").body)
	seen.Write(w.dial(t, "/mcp", `{}`).ask("tools/call", `{"name":"m__plain"}`).raw)
	w.restart()
	look()
	seen.WriteString(w.log.String())
	for _, s := range []string{old, secret, client} {
		if i := strings.Index(seen.String(), s); i >= 0 {
			t.Errorf("%s is shown: ...%s...", s, seen.String()[max(0, i-300):min(seen.Len(), i+100)])
		}
	}
	if !strings.Contains(seen.String(), "headers.X-Key") || !strings.Contains(seen.String(), "auth.client_secret") {
		t.Error("the keys that were set are not named")
	}
}

// TestReplacedSecretsStaySecret takes a credential back that errors of earlier
// calls repeat: the server may still accept it.
func TestReplacedSecretsStaySecret(t *testing.T) {
	t.Parallel()
	const first, second = "secret-before-it-was-renewed", "secret-after-it-was-renewed"
	up := newFailing(t, false)
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		http.Error(w, "the key "+in.header.Get("X-Key")+" is wrong", http.StatusInternalServerError)
	})
	w := open(t, servers("a", up.URL))
	for _, change := range []string{`{"set":{"headers":{"X-Key":"` + first + `"}}}`, `{"set":{"headers":{"X-Key":"` + second + `"}}}`, `{"unset":["headers.X-Key"]}`} {
		w.patch(t, change)
		for _, path := range []string{"/v1/servers", "/v1/servers/a", "/v1/calls", "/v1/calls?failed=true"} {
			body := string(w.do(t, "GET", path, "").body)
			for _, secret := range []string{first, second} {
				if i := strings.Index(body, secret); i >= 0 {
					t.Errorf("after %s, %s shows %s: ...%s", change, path, secret, body[max(0, i-100):i+len(secret)])
				}
			}
		}
		w.modern(t, "/mcp/a", `{}`).ask("tools/call", "plain", `{"name":"plain"}`)
	}
}

// TestSecretsAreNotCutInHalf has a server repeat its key at every place of a long
// text, so that wherever the text is shortened a part of the key might be left.
func TestSecretsAreNotCutInHalf(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdefghijklmnopqrstuvwxyz"
	up := newFailing(t, false)
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		long := strings.Repeat("x ", len(argument(in))) + in.header.Get("X-Key") + strings.Repeat(" y", 300)
		if nameOf(in) == "reads" {
			writeResult(w, in, fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"isError":true}`, long))
			return
		}
		http.Error(w, long, http.StatusInternalServerError)
	})
	w := open(t, servers("a", `{url: "`+up.URL+`", headers: {X-Key: `+secret+`}, policy: {retry: off, breaker: off}}`))
	c := w.modern(t, "/mcp/a", `{}`)
	shown := func(what, text string) {
		t.Helper()
		for i := 0; i+8 <= len(secret); i++ {
			if strings.Contains(text, secret[i:i+8]) {
				t.Fatalf("%s shows a part of the key: %s", what, text)
			}
		}
	}
	for n := 40; n < 160; n += 5 {
		args := fmt.Sprintf(`"arguments":{"n":%q}`, strings.Repeat("n", n))
		m := c.ask("tools/call", "plain", `{"name":"plain",`+args+`}`)
		shown("the client's error", string(m.raw))
		shown("/v1/servers/a", string(w.do(t, "GET", "/v1/servers/a", "").body))
		c.ask("tools/call", "reads", `{"name":"reads",`+args+`}`)
		shown("/v1/servers/a", string(w.do(t, "GET", "/v1/servers/a", "").body))
		shown("/v1/calls", string(w.do(t, "GET", "/v1/calls?limit=2", "").body))
	}
}

// TestChangesAtOnce has many changes of different keys made at the same time: all
// of them are there afterwards.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	w := open(t, servers("a", up.URL))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() { w.patch(t, fmt.Sprintf(`{"set":{"headers":{"X-%d":"value-%d"}}}`, i, i)) })
		wg.Go(func() {
			// A call beside it is never lost for that.
			m := w.modern(t, "/mcp/a", `{}`).ask("tools/call", "plain", `{"name":"plain"}`)
			if e := tineError(t, m); e != nil {
				t.Errorf("a call during a change: %+v", e)
			}
		})
	}
	wg.Wait()
	if s := w.server(t, "a"); len(s.Overrides) != 16 {
		t.Errorf("%d of 16 are there: %q", len(s.Overrides), s.Overrides)
	}
	if n := up.callsOf("plain"); n != 16 {
		t.Errorf("%d calls came, want 16", n)
	}
	w.restart()
	w.modern(t, "/mcp/a", `{}`).ask("tools/call", "plain", `{"name":"plain"}`)
	for i := range 16 {
		if got := up.last(t, "tools/call").header.Get(fmt.Sprintf("X-%d", i)); got != fmt.Sprintf("value-%d", i) {
			t.Errorf("header X-%d is %q", i, got)
		}
	}
}

// TestToolsChangedAtRunTime hides and renames tools of a server that clients
// are connected to: they are told, and see it.
func TestToolsChangedAtRunTime(t *testing.T) {
	t.Parallel()
	up := echoServer(t, false, "one", "two")
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp", `{}`)
	c.get("tools/list", `{}`)
	heard := c.listen()
	w.patch(t, `{"set":{"tools":{"deny":["one"],"rename":{"two":"zwei"}}}}`)
	heard.until("notifications/tools/list_changed")
	if got := names(tools(t, w, "/mcp")); !slices.Equal(got, []string{"a__zwei"}) {
		t.Errorf("listed %q", got)
	}
	if e := c.ask("tools/call", `{"name":"a__one"}`).failure(t); e.Code != -32602 {
		t.Errorf("a hidden tool: %+v", e)
	}
	if got := resultText(t, c.ask("tools/call", `{"name":"a__zwei"}`)); got != "done" {
		t.Errorf("got %q", got)
	}
	w.patch(t, `{"unset":["tools"]}`)
	heard.until("notifications/tools/list_changed")
	if got := names(tools(t, w, "/mcp")); !slices.Equal(got, []string{"a__one", "a__two"}) {
		t.Errorf("listed %q", got)
	}
	if n := up.callsOf("one"); n != 0 {
		t.Errorf("the hidden tool was called %d times", n)
	}
}
