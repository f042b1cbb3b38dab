package sandbox

import (
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestSummary(t *testing.T) {
	var (
		binary     = Step{Name: "binary", OK: true, Needed: true, Detail: "static"}
		namespaces = Step{Name: "namespaces", OK: true, Needed: true, Detail: "as root"}
		limits     = Step{Name: "limits", OK: true, Detail: "all"}
		unbounded  = Step{Name: "limits", Detail: "none", Mend: "be root"}
		forks      = Step{Name: "live forks", Detail: "no", Mend: "set fork: files"}
		dynamic    = Step{Name: "binary", Needed: true, Detail: "dynamic", Mend: "build it so"}
		refused    = Step{Name: "namespaces", Needed: true, Detail: "not permitted"}
		off        = Step{Name: "namespaces", Needed: true, Detail: "they are off", Mend: "switch them on"}
	)
	left := []string{"builtin", "url"}
	const end = "until then use docker, or no sandbox for servers that you trust"
	for _, tt := range []struct {
		name    string
		found   []Step
		servers []string
		want    driver.Finding
	}{
		{"all of it", []Step{binary, namespaces, limits}, nil, driver.Found("sandbox", driver.FoundOK, "binary: static\nnamespaces: as root\nlimits: all", "")},
		{"with servers", []Step{binary, namespaces}, []string{"a", "b"}, driver.Found("sandbox", driver.FoundOK, "binary: static\nnamespaces: as root\nservers in sandboxes: a, b", "")},
		{"not all", []Step{binary, namespaces, unbounded, forks}, nil, driver.Found("sandbox", driver.FoundWarn, "binary: static\nnamespaces: as root\nlimits: none\nlive forks: no", "be root; set fork: files")},
		{"another build", []Step{dynamic}, nil, driver.Found("sandbox", driver.FoundMissing, "binary: dynamic\nwhat is left: builtin, url", "build it so; "+end+"; servers with sandbox want it")},
		{"no namespaces", []Step{binary, refused}, []string{"a"}, driver.Found("sandbox", driver.FoundBroken, "binary: static\nnamespaces: not permitted\nthese servers don't start: a\nwhat is left: builtin, url", end)},
		{"no namespaces, and why", []Step{binary, off}, nil, driver.Found("sandbox", driver.FoundMissing, "binary: static\nnamespaces: they are off\nwhat is left: builtin, url", "switch them on; "+end+"; servers with sandbox want it")},
	} {
		if got := Summary(tt.found, tt.servers, left); got != tt.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
		if works := tt.want.Works(); Work(tt.found) != works {
			t.Errorf("%s: works is %v", tt.name, !works)
		}
	}
}
