package catalog

import (
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// carrier is a driver of which only what a fork carries is asked.
type carrier struct {
	driver.Driver
	driver.Keeper
	carries, why string
}

func (c carrier) Carries(driver.Spec) (carries, why string) { return c.carries, c.why }

func TestForkMode(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fork   string
		runner driver.Driver
		mode   string
		why    string
	}{
		{"memory by default", "", carrier{carries: driver.CarryMemory}, config.ForkMemory, ""},
		{"memory as told", config.ForkMemory, carrier{carries: driver.CarryMemory}, config.ForkMemory, "servers.s.fork says so"},
		{"files, and why not more", "", carrier{carries: driver.CarryFiles, why: "it is busy; let it be"}, config.ForkFiles, ""},
		{"nothing", "", carrier{why: "it is busy; let it be"}, config.ForkRefuse,
			"it is busy; let it be, or set servers.s.fork to fresh or share"},
		{"memory where files are had", config.ForkMemory, carrier{carries: driver.CarryFiles, why: "it is busy; let it be"}, config.ForkRefuse,
			"it is busy; let it be; or set servers.s.fork to files, fresh, share or refuse"},
		{"memory where the driver can't carry it", config.ForkMemory, carrier{carries: driver.CarryFiles}, config.ForkRefuse,
			`driver "d" can't carry the memory of server "s"; set servers.s.fork to files, fresh, share or refuse`},
		{"files where there are none", config.ForkFiles, carrier{why: "it is busy; let it be"}, config.ForkRefuse,
			`server "s" has no files to carry; name its directories in servers.s.state`},
		{"of a driver that keeps nothing", "", struct{ driver.Driver }{}, config.ForkRefuse,
			`driver "d" can't fork; set servers.s.fork to fresh or share, or servers.s.scope to shared`},
	} {
		e := &Entry{Server: config.Server{ID: "s", Driver: "d", Command: "x", Scope: config.ScopeSession, Fork: tt.fork}, Runner: tt.runner}
		if mode, why := e.ForkMode(); mode != tt.mode || why != tt.why {
			t.Errorf("%s: %s, %s", tt.name, mode, why)
		}
	}
}

// said is a driver of which only what it says of itself is asked.
type said struct {
	driver.Driver
	info driver.Info
}

func (s said) Info() driver.Info { return s.info }

func TestWhatTheDriverSays(t *testing.T) {
	server := config.Server{ID: "s", Enabled: true, URL: "http://a"}
	away := &Entry{Server: server, Hash: "x", Runner: said{info: driver.Info{
		Transport: func(spec driver.Spec) string { return "http to " + spec.Server },
		Address:   func(spec driver.Spec) string { return spec.URL + "/b" },
	}}}
	if got := away.Speaks() + ", " + away.Credentials().URL; got != "http to s, http://a/b" || away.Learns() {
		t.Errorf("away from here it is %s, and learns is %v", got, away.Learns())
	}
	here := &Entry{Server: server, Hash: "x", Runner: said{}}
	if got := here.Speaks() + here.Credentials().URL; got != "" || !here.Learns() {
		t.Errorf("here it is %q, and learns is %v", got, here.Learns())
	}
	if gone := (&Entry{Server: server}); gone.Speaks() != "" || gone.Info().Details {
		t.Error("a driver that is not here says something")
	}
}
