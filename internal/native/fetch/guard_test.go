package fetch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestPrivateAddressesAreRefused(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/x": page("text/plain", "inside")})
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for _, robots := range []bool{true, false} {
		cs := open(t, nativetest.Modern, map[string]any{"allow_private": false, "ignore_robots": !robots})
		for _, host := range []string{"127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "0.0.0.0", "[::]", "169.254.169.254", "10.0.0.1", "100.100.100.200", "[fd00:ec2::254]", "[fe80::1]", "224.0.0.1"} {
			wantError(t, cs, "http://"+host+port+"/x", "is not a public address")
		}
		res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "fetch", Arguments: map[string]string{"url": s.URL + "/x"}})
		if err != nil {
			t.Fatal(err)
		}
		if text := res.Messages[0].Content.(*mcp.TextContent).Text; !strings.Contains(text, "not a public address") {
			t.Errorf("prompt: %q", text)
		}
	}
	if len(s.agents) != 0 {
		t.Errorf("the site was asked for %v", s.agents)
	}
}

// internet plays the public internet: a proxy that answers for every name.
func internet(t *testing.T, answer http.HandlerFunc) string {
	p := httptest.NewServer(answer)
	t.Cleanup(p.Close)
	return p.URL
}

func TestRedirectFromPublicToPrivate(t *testing.T) {
	inside := newSite(t, map[string]http.HandlerFunc{"/x": page("text/plain", "inside")})
	proxy := internet(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/robots.txt" && r.URL.Host == "robots.invalid":
			http.Redirect(w, r, inside.URL+"/x", http.StatusFound)
		case r.URL.Path == "/robots.txt":
			http.NotFound(w, r)
		default:
			http.Redirect(w, r, inside.URL+"/x", http.StatusFound)
		}
	})
	cs := open(t, nativetest.Modern, map[string]any{"allow_private": false, "proxy": proxy})
	wantError(t, cs, "http://page.invalid/", "is not a public address")
	wantError(t, cs, "http://robots.invalid/", "is not a public address")
	if len(inside.agents) != 0 {
		t.Errorf("the site was asked for %v", inside.agents)
	}
}

func TestProxyIsUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	proxy := internet(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		page("text/plain", "by proxy for "+r.URL.String())(w, r)
	})
	cs := open(t, nativetest.Modern, map[string]any{"allow_private": false, "proxy": proxy})
	if text, isError := fetched(t, cs, map[string]any{"url": "http://page.invalid/y?z=1"}); isError || !strings.HasSuffix(text, "by proxy for http://page.invalid/y?z=1") {
		t.Errorf("%v %q", isError, text)
	}
}

func TestSettings(t *testing.T) {
	for want, bad := range map[string]map[string]any{
		"settings.allow_privat is not known":               {"allow_privat": true},
		"settings.allow_private must be true or false":     {"allow_private": "yes"},
		"settings.max_bytes must be at least 1":            {"max_bytes": 0},
		"settings.max_bytes must be a whole number":        {"max_bytes": "5MB"},
		"settings.timeout must be more than zero":          {"timeout": "-1s"},
		"settings.timeout must be a time span":             {"timeout": "soon"},
		"settings.proxy must be a URL such as":             {"proxy": "proxy:3128:9"},
		"settings.proxy must be an http, https or socks5":  {"proxy": "ftp://proxy:21"},
		"settings.user_agent must not contain control":     {"user_agent": "a\r\nX-Evil: 1"},
		"settings.user_agent must be a string":             {"user_agent": 1},
		"settings.ignore_robots has no value; give one or": {"ignore_robots": nil},
	} {
		if _, err := New(bad); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("New(%v): err = %v, want %q", bad, err, want)
		}
	}
	// A password in a URL that can't be read is not repeated.
	if _, err := New(map[string]any{"proxy": "http://user:hunter2@[bad"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("err = %v", err)
	}
	for _, good := range []map[string]any{nil, {}, {"proxy": "socks5://127.0.0.1:1080", "timeout": 2, "max_bytes": uint64(10), "user_agent": "x"}} {
		if _, err := New(good); err != nil {
			t.Errorf("New(%v): %v", good, err)
		}
	}
}
