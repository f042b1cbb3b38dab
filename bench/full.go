package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// allOff is a server entry with every policy and the journal switched off.
func allOff(url string) serverEntry {
	return serverEntry{
		URL: url, Journal: "off",
		Policy: map[string]any{"retry": "off", "breaker": "off", "cache": "off"},
	}
}

// audience is what the tokens of the benchmark are for.
const audience = "tine-bench"

// serveFull starts a gateway with everything on that teams switch on: every
// policy, with limits that are never reached, callers with tokens of an issuer,
// rules on their groups, the whole journal, and every call traced.
func (g *rig) serveFull(ctx context.Context, name, url string) (*gatewayProcess, string, error) {
	if g.issuer == nil {
		iss, err := issuertest.Start(issuertest.Options{Algorithm: "RS256"})
		if err != nil {
			return nil, "", fmt.Errorf("start an issuer: %w", err)
		}
		g.issuer = iss
	}
	_, collector, err := g.role(ctx, "collector", "collector-"+name, false)
	if err != nil {
		return nil, "", err
	}
	entry := serverEntry{
		URL: url, Journal: "full", State: "none",
		Policy: map[string]any{
			"retry":       map[string]any{"attempts": 3},
			"breaker":     map[string]any{"failures": 5},
			"rate":        map[string]any{"calls": 1e6, "burst": 100_000},
			"concurrency": map[string]any{"calls": 1000, "queue": 1000},
			"cache":       map[string]any{"lists": "5m", "results": "1m"},
		},
	}
	keys := oneServer(entry)
	keys["auth"] = map[string]any{
		"oidc": map[string]any{"issuer": g.issuer.URL(), "audience": audience, "scopes": []string{"mcp"}},
		"rules": []map[string]any{
			{"claims": map[string]any{"groups": []string{"bench"}}, "servers": []string{serverName}, "tools": []string{serverName + "__*"}},
		},
	}
	keys["telemetry"] = map[string]any{"otlp": map[string]any{"endpoint": "http://" + collector.Addr, "sample": 1}}
	p, err := g.serveTine(ctx, name, keys)
	if err != nil {
		return nil, "", err
	}
	token := g.issuer.Token(map[string]any{"aud": audience, "scope": "mcp openid", "groups": []string{"staff", "bench"}})
	return p, token, nil
}

// swallow is a collector of traces that keeps none.
func swallow() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
}
