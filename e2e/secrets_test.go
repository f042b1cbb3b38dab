//go:build unix

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// A secret is a text that must not be found, known by a part of it that is
// nothing but chance. Any eight characters of that part give it away: a secret
// that was cut before it was masked is still half told.
type secret struct {
	text, core string
}

const tell = 8

// plant makes secrets and remembers where each was put.
type plant struct {
	all map[string]secret
}

// hide makes a secret that looks as the format says, with %s for its core.
func (p *plant) hide(where, format string) string {
	core := strings.ToLower(rand.Text())[:20]
	s := secret{fmt.Sprintf(format, core), core}
	if p.all == nil {
		p.all = map[string]secret{}
	}
	p.all[where] = s
	return s.text
}

// found names the secrets that a text holds, with what stands around them.
func (p *plant) found(text string) []string {
	var names []string
	for where, s := range p.all {
		if at := p.place(text, s); at >= 0 {
			names = append(names, fmt.Sprintf("%s (%s): ...%q...", where, s.text, text[max(0, at-120):min(len(text), at+60)]))
		}
	}
	return names
}

func (p *plant) place(text string, s secret) int {
	for i := 0; i+tell <= len(s.core); i++ {
		if at := strings.Index(text, s.core[i:i+tell]); at >= 0 {
			return at
		}
	}
	for _, code := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		if at := strings.Index(text, strings.TrimRight(code.EncodeToString([]byte(s.text)), "=")); at >= 0 {
			return at
		}
	}
	return -1
}

// sights is what was seen of a gateway, by where.
type sights struct {
	mu  sync.Mutex
	all map[string]string
}

func (s *sights) add(where, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]string{}
	}
	s.all[where] += text + "\n"
}

// check reports every secret that was seen.
func (s *sights) check(t *testing.T, p *plant) {
	t.Helper()
	for where, text := range s.all {
		for _, name := range p.found(text) {
			t.Errorf("%s shows %s", where, name)
		}
	}
}

// secretWorld is a gateway whose config, servers and callers are full of
// secrets.
type secretWorld struct {
	*gateway
	ours     plant // secrets of the gateway: never shown to any caller
	theirs   plant // what callers and tools say: it goes between them and is shown to no other
	seen     sights
	traces   *collector
	token    string // of a user
	jwt      string // of a user of the issuer
	operator string
}

func newSecretWorld(t *testing.T, format string) *secretWorld {
	t.Helper()
	w := &secretWorld{}
	hide := w.ours.hide
	issuer := issuertest.New(t, issuertest.Options{})
	w.jwt = issuer.Token(map[string]any{"sub": "ada", "aud": "somewhere"})
	w.ours.all = map[string]secret{"the JWT of a caller": {w.jwt, w.jwt[len(w.jwt)-30:]}}
	var endpoint string
	w.traces, endpoint = collectAt(t, "")
	access := hide("the access token of client credentials", "at-%s")
	tokens := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, access)
	}))
	t.Cleanup(tokens.Close)
	host := strings.TrimPrefix(tellHTTP(t, &teller.Server{}), "http://")
	w.token, w.operator = hide("the token of a user", "tok-%s"), hide("the token of an operator", "tok-%s")
	program := mustTellServer(t)
	config := `
log: {level: debug, format: ` + format + `}
telemetry: {otlp: {endpoint: ` + endpoint + `, headers: {X-Collector-Key: ` + hide("a header of the collector", "%s") + `}}}
auth:
  tokens:
    - {name: ada, token: ` + w.token + `}
    - {name: otto, role: operator, token: ` + w.operator + `}
    - {name: kim, token: "${TOKEN_OF_KIM}"}
  oidc: {issuer: ` + issuer.URL() + `, audience: somewhere}
servers:
  web:
    url: "http://me:` + hide("the password of a URL", "%s") + `@` + host + `?lang=en&api_key=` + hide("the query of a URL", "%s") + `"
    headers:
      X-Api-Key: ` + hide("a header as it stands", "%s") + `
      X-Tenant: ` + hide("a header whose name says nothing", "%s") + `
      X-Env: "${WEB_SECRET}"
      X-Mixed: "Bearer ${MIXED_SECRET}"
    policy: {retry: off, breaker: off}
  grant:
    url: "http://` + host + `"
    auth: {type: client_credentials, token_url: "` + tokens.URL + `", client_id: tine, client_secret: ` + hide("a client secret", "%s") + `}
    policy: {retry: off, breaker: off}
  closed:
    url: "http://me:` + hide("the password of a URL nobody answers at", "%s") + `@127.0.0.1:1/mcp?token=` + hide("the query of a URL nobody answers at", "%s") + `"
    policy: {retry: off, breaker: off}
` + yamlServer("prog", program, []string{"--token", hide("an argument of a program", "%s")},
		"scope: shared", "env: {API_TOKEN: "+hide("a variable as it stands", "%s")+", PLAIN: \"${PROG_SECRET}\"}", "env_file: prog.env") +
		yamlServer("dies", program, []string{"--die=LAST_WORD", "--token=" + hide("an argument of a program that ends", "%s")},
			"scope: shared", "env: {LAST_WORD: \"${DIES_SECRET}\"}", "policy: {retry: off}")
	w.gateway = newGateway(t, config,
		"WEB_SECRET="+hide("a header from the environment", "%s"),
		"MIXED_SECRET="+hide("a part of a header from the environment", "%s"),
		"PROG_SECRET="+hide("a variable from the environment", "%s"),
		"DIES_SECRET="+hide("a variable of a program that ends", "%s"),
		"TOKEN_OF_KIM="+hide("a token from the environment", "tok-%s"))
	env := "DATABASE_PASSWORD=" + hide("a variable of a file", "%s") + "\n"
	if err := os.WriteFile(filepath.Join(w.dir, "prog.env"), []byte(env), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// say calls a tool and keeps what the caller is told where keep says so.
func (w *secretWorld) say(t *testing.T, s *session, server, tool string, args any, keep string) {
	t.Helper()
	raw, err := s.request(t.Context(), "tools/call", map[string]any{"name": server + "__" + tool, "arguments": args})
	text := string(raw)
	if err != nil {
		text += err.Error()
	}
	if keep != "" {
		w.seen.add(keep, text)
	}
}

// TestSecrets plants secrets wherever a gateway meets them and looks for them
// wherever it can be looked at.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			w := newSecretWorld(t, format)
			follow := w.follow(t)
			w.talk(t)
			w.look(t)
			for where, out := range follow() {
				w.seen.add(where, out)
			}
			w.seen.check(t, &w.ours)
			// What callers say may be in what callers are told, and nowhere else.
			for where := range w.seen.all {
				if strings.HasPrefix(where, "a caller") {
					delete(w.seen.all, where)
				}
			}
			w.seen.check(t, &w.theirs)
			w.files(t)
		})
	}
}

// talk makes calls with secrets in them, of every kind and outcome.
func (w *secretWorld) talk(t *testing.T) {
	t.Helper()
	var sessions []*session
	for _, token := range []string{w.token, w.jwt} {
		s, err := open(t.Context(), w.url+"/mcp", http.Header{"Authorization": {"Bearer " + token}})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	s, jwt := sessions[0], sessions[1]
	hide := w.theirs.hide
	pem := "-----BEGIN PRIVATE KEY-----\n" + hide("a PEM key", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n%s") + "\n-----END PRIVATE KEY-----\n"
	args := map[string]any{
		"password": hide("an argument called password", "%s"),
		"api_key":  hide("an argument called api_key", "%s"),
		"nested":   map[string]any{"list": []any{map[string]any{"clientSecret": hide("an argument deep inside", "%s")}}},
		"headers":  map[string]any{"Authorization": hide("a header as an argument", "Basic %s")},
		"a":        "use " + hide("a key that looks like one", "sk-proj-7%s") + " for it",
		"b":        hide("a token of GitHub", "ghp_1%s"),
		"c":        hide("a JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.%s") + ".",
		"d":        "the key is\n" + pem + "and more",
		"e":        "curl -H 'Authorization: Bearer " + hide("a bearer token in a text", "Zz9%s") + "' https://example.org",
		"f":        `{"body":"{\"password\":\"` + hide("JSON in JSON", "%s") + `\"}"}`,
		"g":        "postgres://root:" + hide("the password of a URL in an argument", "%s") + "@db/x",
		"h":        "https://example.org/x?access_token=" + hide("the query of a URL in an argument", "%s"),
		"plain":    "hello",
	}
	for _, server := range []string{"prog", "web"} {
		for _, caller := range []*session{s, jwt} {
			w.say(t, caller, server, "arguments", args, "")
		}
		for _, tool := range []string{"echo", "fail", "refuse"} {
			w.say(t, s, server, tool, map[string]any{"text": "log in with password=" + hide("what "+tool+" of "+server+" says", "%s") + ", token " + hide("a key that "+tool+" of "+server+" says", "ghp_1%s")}, "")
		}
		w.say(t, s, server, "complain", map[string]any{"text": "password=" + hide("what "+server+" is told to write to standard error", "%s")}, "")
	}
	// The servers say what they were given. Pads move it over the places where
	// texts are cut.
	own := map[string]string{
		"web":   "X-Api-Key is {header:X-Api-Key}, {header:X-Env}, {header:X-Mixed}, {header:X-Tenant}, {header:Authorization}, {header:Query}",
		"grant": "I was given {header:Authorization} which is {bearer:Authorization}", "prog": "I have {env:API_TOKEN} {env:PLAIN} {env:DATABASE_PASSWORD}",
	}
	for server, text := range own {
		for pad := 0; pad < 420; pad += 7 {
			if pad > 14 && pad < 120 {
				continue
			}
			padded := strings.Repeat("x", pad) + " " + text
			w.say(t, s, server, "fail", map[string]any{"text": padded}, "a caller of a tool that fails")
			if pad > 200 && pad < 260 {
				continue
			}
			w.say(t, s, server, "refuse", map[string]any{"text": padded}, "a caller of a server that answers with a JSON-RPC error")
			if server != "prog" {
				w.say(t, s, server, "status", map[string]any{"text": padded, "status": 500}, "a caller of a server that answers 500")
				w.say(t, s, server, "status", map[string]any{"text": padded, "status": 403}, "a caller of a server that answers 403")
				w.say(t, s, server, "status", map[string]any{"text": padded, "status": 200}, "a caller of a server that answers nonsense")
			}
		}
	}
	for _, server := range []string{"web", "grant"} { // nothing is sent to them for a while after that
		w.say(t, s, server, "status", map[string]any{"text": own[server], "status": 429}, "a caller of a server that answers 429")
	}
	w.say(t, s, "prog", "complain", map[string]any{"text": "I have {env:API_TOKEN} {env:PLAIN} {env:DATABASE_PASSWORD} x"}, "")
	w.say(t, s, "closed", "x", map[string]any{}, "a caller of a server that is not there")
	w.say(t, s, "dies", "x", map[string]any{}, "a caller of a server that ends")
	alone, err := open(t.Context(), w.url+"/mcp/prog", http.Header{"Authorization": {"Bearer " + w.token}})
	if err != nil {
		t.Fatal(err)
	}
	for method, params := range map[string]any{
		"resources/read": map[string]any{"uri": "https://example.org/x?access_token=" + hide("the query of a resource", "%s")},
		"prompts/get":    map[string]any{"name": "p", "arguments": map[string]any{"password": hide("an argument of a prompt", "%s")}},
	} {
		if _, err := alone.request(t.Context(), method, params); err != nil {
			t.Error(err)
		}
	}
	raw, err := s.request(t.Context(), "tools/list", struct{}{})
	w.seen.add("a caller who lists tools", fmt.Sprint(string(raw), err))
	for _, token := range []string{"", w.token + "x", "Bearer", w.jwt[:len(w.jwt)-2] + "xx"} {
		_, body, err := w.get(t.Context(), "/v1/servers", token)
		w.seen.add("a caller who is not let in", fmt.Sprint(body, err))
	}
}

// follow starts what follows the journal; the returned function ends it and
// returns what it printed.
func (w *secretWorld) follow(t *testing.T) func() map[string]string {
	t.Helper()
	outs := map[string]*bytes.Buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	var cmds []*exec.Cmd
	for name, args := range map[string][]string{"tine calls --follow": nil, "tine calls --follow --json": {"--json"}} {
		out := &bytes.Buffer{}
		cmd := exec.CommandContext(ctx, tineBinary, append([]string{"calls", "--follow", "--state", w.state()}, args...)...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		outs[name] = out
		cmds = append(cmds, cmd)
	}
	return func() map[string]string {
		cancel()
		all := map[string]string{}
		for _, cmd := range cmds {
			cmd.Wait()
		}
		for name, out := range outs {
			if all[name] = out.String(); !strings.Contains(all[name], "prog") {
				t.Errorf("%s printed %q", name, all[name])
			}
		}
		return all
	}
}

// look looks at everything that can be looked at.
func (w *secretWorld) look(t *testing.T) {
	t.Helper()
	calls := w.journal(t, client.CallQuery{})
	if len(calls) < 100 {
		t.Errorf("%d calls in the journal", len(calls))
	}
	commands := [][]string{
		{"calls", "--limit", "1000"}, {"calls", "--json", "--limit", "1000"}, {"calls", "--failed"},
		{"servers"}, {"servers", "--json"}, {"logs", "prog"}, {"logs", "prog", "--json"}, {"logs", "dies"},
		{"config", "show", "--config", w.configPath()}, {"config", "show", "--json", "--config", w.configPath()},
		{"config", "check", "--config", w.configPath()}, {"doctor", "--json", "--config", w.configPath()}, {"doctor", "--config", w.configPath()},
		{"token", "list"}, {"tools"}, {"call", "closed__x"}, {"call", "dies__x"},
		{"servers", "set", "web", "headers.X-Later=" + w.ours.hide("a header set at run time", "%s")},
		{"call", "web__status", "status=500", "text={header:X-Later} {header:X-Api-Key}"},
		{"calls", "--json", "--limit", "5"},
	}
	for _, id := range []string{"web", "grant", "closed", "prog", "dies"} {
		commands = append(commands, []string{"servers", "show", id}, []string{"servers", "show", id, "--json"})
	}
	kinds := map[string]bool{}
	for _, c := range calls {
		if kind := c.Server + c.Name + c.Outcome; !kinds[kind] {
			kinds[kind] = true
			commands = append(commands, []string{"calls", c.ID})
		}
	}
	for _, args := range commands {
		cmd := exec.CommandContext(t.Context(), tineBinary, append(args, "--state", w.state())...)
		cmd.Dir, cmd.Env = w.dir, append(os.Environ(), w.env...)
		out, _ := cmd.CombinedOutput() // a call that fails is part of it
		if len(out) == 0 {
			t.Errorf("tine %s printed nothing", strings.Join(args, " "))
		}
		if args[0] == "call" || len(args) > 1 && args[1] == "set" {
			w.seen.add("a caller: tine "+args[0], string(out))
			continue
		}
		w.seen.add("tine "+strings.Join(args[:min(2, len(args))], " "), string(out))
	}
	paths := []string{"/v1/calls?limit=1000", "/v1/servers", "/v1/status", "/v1/tools", "/metrics", "/v1/tokens"}
	for _, id := range []string{"web", "grant", "closed", "prog", "dies"} {
		paths = append(paths, "/v1/servers/"+id, "/v1/servers/"+id+"/logs")
	}
	for _, c := range calls {
		paths = append(paths, "/v1/calls/"+c.ID)
	}
	// However much of a log is asked for, none begins within a secret.
	for n := 1; n < 200; n++ {
		paths = append(paths, fmt.Sprintf("/v1/servers/prog/logs?bytes=%d", n), fmt.Sprintf("/v1/servers/dies/logs?bytes=%d", n))
	}
	for _, path := range paths {
		status, body, err := w.get(t.Context(), path, w.operator)
		if err != nil || status != http.StatusOK {
			t.Errorf("GET %s: %d %s %v", path, status, body, err)
		}
		w.seen.add("GET "+strings.SplitN(strings.SplitN(path, "/call_", 2)[0], "?", 2)[0], body)
	}
	if code, err := w.stop(); err != nil || code != 0 {
		t.Errorf("the gateway ended with %d, %v", code, err)
	}
	log, err := os.ReadFile(w.logPath())
	if err != nil {
		t.Fatal(err)
	}
	w.seen.add("the log", string(log))
	// Everything was sent when the gateway ended.
	if !strings.Contains(w.traces.all(), "tools/call") {
		t.Error("no trace arrived")
	}
	w.seen.add("the traces", w.traces.all())
}

// files checks that the state folder is its user's alone, and that the journal
// holds calls whole.
func (w *secretWorld) files(t *testing.T) {
	t.Helper()
	var journal strings.Builder
	err := filepath.WalkDir(w.state(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s is %v, want %v", path, info.Mode().Perm(), want)
		}
		if strings.HasSuffix(path, ".jsonl") {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			journal.Write(data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, s := range w.theirs.all {
		text, err := json.Marshal(s.core)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(journal.String(), strings.Trim(string(text), `"`)) {
			t.Errorf("the files of the journal don't hold %s", where)
		}
	}
}
