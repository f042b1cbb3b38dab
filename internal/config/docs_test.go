package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const docsPath = "../../docs/config.md"

// The reference must name every key, and its examples must load.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	keys := append([]string{"tls.cert", "tls.key", "cors.origins", "log.level", "log.format",
		"limits.body", "limits.header", "limits.message", "limits.connections", "limits.calls", "limits.list_wait", "limits.fetch", "limits.idle", "limits.drain",
		"separator", "long_names", "default_view", "errors", "listen", "public_url",
		"tools.allow", "tools.deny", "tools.rename", "tools.describe", DefaultListen}, serverKeys...)
	keys = append(keys, remoteKeys...)
	for _, list := range [][]string{
		protocols, transports, builtins, drivers, scopes, capabilities, tokenKeys, ruleKeys, roles, algorithms,
		authTypes, credentials, journalModes, settable, {otlpEndpointVar, otlpHeadersVar}, forks, {"${workspace}", "${state.NAME}", snapshotPrefix + "NAME", noBound},
		{RootAllow, RootHost, NetworkNone, "notify"}, containerTransports, reaches, pulls, {RemoteHTTP, RemoteMCP}, presetNames(), bindTable.Names(), rewardKitKeys[1:], topKeys,
	} {
		keys = append(keys, list...)
	}
	for path, list := range map[string][]string{
		"auth": append(authKeys, serverAuthKeys...), "auth.oidc": oidcKeys, "journal": journalKeys, "telemetry.otlp": otlpKeys, "policy.retry": retryKeys,
		"policy.breaker": breakerKeys, "policy.rate": rateKeys, "policy.concurrency": concurrencyKeys, "policy.cache": cacheKeys,
		"docker": dockerTable.Names(), "sandbox": sandboxTable.Names(), "on_fork": onForkKeys, "remote": remoteTable.Names(), "startup": startupKeys,
		"sessions": sessionKeys[:len(sessionKeys)-1], "sessions.autosnapshot": autosnapshotKeys, "workspace": workspaceKeys, "budget": budgetKeys,
	} {
		for _, k := range list {
			keys = append(keys, join(path, k))
		}
	}
	keys = append(keys, "policy.max_timeout")
	for _, k := range keys {
		if !strings.Contains(text, "`"+k+"`") {
			t.Errorf("%s does not name %s", docsPath, k)
		}
	}
	if n := loadExamples(t, docsPath, text); n < 5 {
		t.Fatalf("%d examples", n)
	}
	for _, b := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(text, -1) {
		c, err := Load("", env(map[string]string{RemoteServersVar: b[1], "SEARCH_KEY": "k"}))
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%v in\n%s", err, b[1])
		}
	}
}

// The examples on the other pages must load as well.
func TestDocsElsewhere(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/servers/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		loadExamples(t, page, string(data))
	}
}

// loadExamples loads the configs of a page, and returns how many there are.
func loadExamples(t *testing.T, page, text string) int {
	t.Helper()
	opts := noEnv()
	opts.OS = "linux" // where everything works
	opts.Getenv = func(k string) (string, bool) {
		if k == RemoteServersVar || strings.HasPrefix(k, "OTEL_") {
			return "", false
		}
		return "value-of-" + k + "-long-enough", !strings.HasSuffix(k, "_ENABLED")
	}
	opts.ReadFile = func(p string) ([]byte, error) {
		if strings.HasSuffix(p, ".env") {
			return []byte("A=b\n"), nil
		}
		return []byte("content-of-the-secret"), nil
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	for _, b := range blocks {
		c, err := Parse([]byte(b[1]), opts)
		if err != nil {
			t.Errorf("%s: %v in\n%s", page, err, b[1])
		} else if len(c.Warnings) > 0 {
			t.Errorf("%s: %q in\n%s", page, c.Warnings, b[1])
		}
	}
	return len(blocks)
}
