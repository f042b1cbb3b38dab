package process

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/family"
)

func TestFillIn(t *testing.T) {
	ws := drivertest.Workspace(t)
	t.Chdir(t.TempDir())
	spec := driver.Spec{
		Server: "db", State: "state", Dirs: []driver.StateDir{{Name: "data"}}, Workspace: ws,
		Args: []string{"--db=${state.data}/x.db", "${workspace}/a"},
	}
	got, err := fillIn(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs("state/data")
	if err != nil {
		t.Fatal(err)
	}
	if got.Args[0] != "--db="+abs+"/x.db" || got.Args[1] != ws.Dir()+"/a" || got.Cwd != ws.Dir() {
		t.Errorf("args %q, cwd %q", got.Args, got.Cwd)
	}
	_, err = New(Options{}).Start(t.Context(), driver.Spec{Server: "db", Command: "x", Dir: filepath.Join(t.TempDir(), "i"), Args: []string{"${state.cache}"}})
	if err == nil || !strings.Contains(err.Error(), "servers.db.args has ${state.cache}, and no such directory is declared") {
		t.Errorf("got %v", err)
	}
}

func TestRunsInTheWorkspace(t *testing.T) {
	ws := drivertest.Workspace(t)
	spec := suite.Spec(t, suite.Program(t), "${workspace}")
	spec.Workspace = ws
	d := New(Options{})
	if got, _ := d.Carries(spec); got != driver.CarryFiles {
		t.Errorf("carries %q", got)
	}
	p := drivertest.Dial(t, suite.StartSpec(t, d, spec))
	if got := p.Call(t, "cwd", nil); got != family.RealPath(ws.Dir()) && runtime.GOOS != "windows" {
		t.Errorf("it runs in %q, want %q", got, ws.Dir())
	}
	if got := p.Call(t, "args", nil); got != ws.Dir() {
		t.Errorf("its argument is %q", got)
	}
}
