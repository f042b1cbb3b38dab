//go:build linux || darwin

package process

import (
	"strings"
	"testing"
)

func TestMarkerIn(t *testing.T) {
	for env, want := range map[string]string{
		"":                                      "",
		"A=1\x00B=2\x00":                        "",
		"A=1\x00TINE_INSTANCE=x\x00":            "x",
		"TINE_INSTANCE=x:y\x00B=2":              "x y",
		"XTINE_INSTANCE=x\x00A=TINE_INSTANCE=y": "",
	} {
		if got := strings.Join(markerIn([]byte(env)), " "); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}
