package driver_test

import (
	"regexp"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestMends(t *testing.T) {
	got := driver.Mends{Gone: "check servers.ID.url", Locked: "servers.ID.headers or servers.ID.auth must hold it", Moved: "wait"}.Of("a-1")
	want := driver.Mends{Gone: "check servers.a-1.url", Locked: "servers.a-1.headers or servers.a-1.auth must hold it", Moved: "wait"}
	if got != want {
		t.Errorf("got %+v", got)
	}
}

// The first hint that knows what to do is given, of the last that the log has of it.
func TestHints(t *testing.T) {
	hints := driver.Hints{
		{Says: regexp.MustCompile(`a(\d)`), Mend: func(_ driver.Spec, found []string) string {
			if found[1] == "0" {
				return ""
			}
			return "a" + found[1]
		}},
		{Says: regexp.MustCompile(`b`), Mend: func(spec driver.Spec, _ []string) string { return spec.Server }},
	}
	for log, want := range map[string]string{"": "", "c": "", "b a1 a2 a0": "a2", "a0 b": "srv", "a0": ""} {
		if got := hints.For(driver.Spec{Server: "srv"}, log); got != want {
			t.Errorf("%q has the hint %q, want %q", log, got, want)
		}
	}
}
