package process

import (
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/family"
)

func TestChildSeesItsEnvironment(t *testing.T) {
	spec := suite.Spec(t, suite.Program(t), "one", "two words")
	spec.Cwd = family.RealPath(t.TempDir())
	spec.Env = map[string]string{"GIVEN": "yes"}
	d := New(Options{Environ: []string{"PATH=/bin", "GATEWAY_SECRET=hidden"}})
	p := drivertest.Dial(t, suite.StartSpec(t, d, spec))
	env := strings.Split(p.Call(t, "env", nil), "\n")
	if !slices.Contains(env, "GIVEN=yes") || !slices.Contains(env, "PATH=/bin") || strings.Contains(strings.Join(env, " "), "hidden") {
		t.Errorf("environment %q", env)
	}
	if got := p.Call(t, "cwd", nil); got != spec.Cwd {
		t.Errorf("it runs in %q, want %q", got, spec.Cwd)
	}
	if got := p.Call(t, "args", nil); got != "one\ntwo words" {
		t.Errorf("arguments %q", got)
	}
}
