//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/e2e/teller"
)

// TestChildEnvironment looks from inside a server for what the gateway has: its
// variables, those of other servers, its open files.
func TestChildEnvironment(t *testing.T) {
	t.Parallel()
	var p plant
	var env []string
	for _, name := range []string{
		"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "DATABASE_URL", "HTTPS_PROXY", "SSH_AUTH_SOCK", "TINE_TOKEN", "TINE_URL",
		"MCP_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS", "INNOCENT", "PATH_OF_SOMETHING", "HOME_KEY", "LD_PRELOAD_KEY", "lc_secret", "OF_OTHER",
	} {
		env = append(env, name+"="+p.hide("the gateway's "+name, "%s"))
	}
	other := p.hide("a variable of another server", "%s")
	program := mustTellServer(t)
	g := startGateway(t, "auth: {tokens: [{name: ada, token: "+p.hide("a token", "tok-%s")+"}]}\n"+
		"servers:\n"+
		"  web: {url: "+tellHTTP(t, &teller.Server{})+", headers: {X-Api-Key: "+p.hide("a header", "%s")+", X-Of: \"${OF_OTHER}\"}}\n"+
		yamlServer("other", program, nil, "env: {MINE: "+other+"}")+
		yamlServer("prog", program, nil, "env: {GIVEN: given-to-it, TAKEN: \"${GITHUB_TOKEN}\"}")+
		yamlServer("shared", program, nil, "scope: shared"), env...)
	// TINE_TOKEN in the gateway's environment is for clients, so the token of its
	// state folder is used here.
	r, err := g.record()
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context(), g.url+"/mcp", bearer(r.Token))
	if err != nil {
		t.Fatal(err)
	}
	s.mustCall(t, "other__tell", map[string]any{})
	s.mustCall(t, "web__tell", map[string]any{})
	p.all["the operator's token"] = secret{r.Token, r.Token}
	given := p.all["the gateway's GITHUB_TOKEN"]
	for _, server := range []string{"prog", "shared"} {
		v := told(t, s.mustCall(t, server+"__tell", map[string]any{}))
		if server == "prog" {
			if !slices.Contains(v.Env, "GIVEN=given-to-it") || !slices.Contains(v.Env, "TAKEN="+given.text) {
				t.Errorf("the server has not what it was given: %q", v.Env)
			}
			v.Env = slices.DeleteFunc(v.Env, func(kv string) bool { return strings.HasPrefix(kv, "TAKEN=") })
		}
		for _, name := range p.found(strings.Join(v.Env, "\n")) {
			t.Errorf("%s has in its environment %s", server, name)
		}
		for _, f := range v.Files {
			number, target, _ := strings.Cut(f, " ")
			inherited := strings.Contains(target, "/state/") && !strings.Contains(target, "/state/instances/")
			if inherited || strings.HasPrefix(target, "socket:") {
				t.Errorf("%s has the gateway's file %s open as %s", server, target, number)
			}
		}
	}
}
