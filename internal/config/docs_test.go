package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const docsPath = "../../docs/config.md"

// The reference must name what stands in no table of it, and its examples must load.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	keys := slices.Concat([]string{DefaultListen, "${workspace}", "${state.NAME}", SnapshotPrefix + "NAME", noBound, otlpEndpointVar, otlpHeadersVar},
		remoteKeys, settable, rewardKitKeys[1:], []string{"workspace.template", "workspace.path"})
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
		if strings.HasSuffix(p, "key.pem") {
			return []byte(oneKey), nil
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
		} else if shown := string(Marshal(c)); !strings.Contains(shown, mask) {
			again(t, b[1], opts)
		}
	}
	return len(blocks)
}
