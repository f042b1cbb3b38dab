package dirs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/workspace"
)

func TestFillIn(t *testing.T) {
	ws := drivertest.Workspace(t)
	places := Places{State: "/seen", Workspace: "/work"}
	at := func(name string) string { return filepath.Join("/seen", name) }
	spec := driver.Spec{
		Server: "db", State: t.TempDir(), Dirs: []driver.StateDir{{Name: "data"}, {Name: "log"}}, Workspace: ws,
		Args: []string{"--db=${state.data}/x.db", "${state.log}:${state.data}", "${workspace}/a", "$HOME ${HOME} ${} ${state} ${states.x} $${x}", "plain"},
		Env:  map[string]string{"A": "${state.log}", "${state.data}": "${workspace}", "B": "b"},
		Cwd:  "${state.data}",
	}
	args, env := spec.Args, spec.Env
	got, err := FillIn(spec, places)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--db=" + at("data") + "/x.db", at("log") + ":" + at("data"), "/work" + "/a", "$HOME ${HOME} ${} ${state} ${states.x} $${x}", "plain"}
	for n := range want {
		if got.Args[n] != want[n] {
			t.Errorf("argument %q, want %q", got.Args[n], want[n])
		}
	}
	if got.Env["A"] != at("log") || got.Env["${state.data}"] != "/work" || got.Env["B"] != "b" || got.Cwd != at("data") {
		t.Errorf("env %q, cwd %q", got.Env, got.Cwd)
	}
	if args[0] != "--db=${state.data}/x.db" || env["A"] != "${state.log}" {
		t.Error("the caller's spec was changed")
	}
	if got, err := FillIn(driver.Spec{Workspace: ws}, places); err != nil || got.Cwd != "/work" {
		t.Errorf("cwd %q, %v", got.Cwd, err)
	}
	if got, err := FillIn(driver.Spec{Workspace: ws, Cwd: "/tmp"}, places); err != nil || got.Cwd != "/tmp" {
		t.Errorf("cwd %q, %v", got.Cwd, err)
	}
}

func TestFillInErrors(t *testing.T) {
	for name, test := range map[string]struct {
		spec driver.Spec
		want string
	}{
		"undeclared":    {driver.Spec{State: "/x", Args: []string{"${state.cache}"}}, "servers.db.args has ${state.cache}, and no such directory is declared; add servers.db.state: [cache]"},
		"another one":   {driver.Spec{State: "/x", Dirs: []driver.StateDir{{Name: "data"}}, Env: map[string]string{"A": "${state.}"}}, "servers.db.env has ${state.}"},
		"an escape":     {driver.Spec{State: "/x", Dirs: []driver.StateDir{{Name: "data"}}, Cwd: "${state.../..}"}, "no such directory is declared"},
		"no state":      {driver.Spec{Dirs: []driver.StateDir{{Name: "data"}}, Cwd: "${state.data}"}, "no folder for the state"},
		"no workspace":  {driver.Spec{Args: []string{"${workspace}"}}, "servers.db.args has ${workspace}, and the server does not see the session's; add servers.db.workspace: true"},
		"in the layers": {driver.Spec{Workspace: &workspace.Workspace{}}, "not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			test.spec.Server = "db"
			_, err := FillIn(test.spec, Places{State: "/seen", Workspace: "/work"})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
