package catalog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/upstream"
)

// An Entry is one server with what was changed about it at run time.
type Entry struct {
	config.Server
	// Override is the run-time switch; nil when the config decides.
	Override *bool
	// Ordinal tells the instances of one server in a session apart. Those after
	// the first have an ID of their own; Base is the server's.
	Ordinal int
	// Set names what else was set at run time, such as policy.retry.attempts.
	Set           []string
	Runner        driver.Driver  // starts its instances; nil where the driver is not here
	Fronter       driver.Fronter // has its front; nil for a server without one
	Problem       string         // why it can't run at all
	SpaceTemplate string         // the template of its workspace, where its session has one
	Hash          string         // of what an instance is started with
	Governor      *Governor
	taken         taken
	home          *Home // of a server that stands in no config; nil for others
}

// taken is what the config of today takes away of a server that a session was
// made with. Whatever else the config says of it is for new sessions.
type taken struct {
	off   string        // why there is nothing left of it; empty where there is
	tools *config.Tools // only what these show too; nil for no difference
}

// takenBy is what a server's entry of today takes away; nil for one that was
// removed.
func takenBy(now *Entry) taken {
	switch {
	case now == nil:
		return taken{off: "it was removed from the config"}
	case now.Override == nil && !now.Enabled:
		return taken{off: "disabled in the config"}
	}
	return taken{tools: &now.Tools}
}

// Shows reports whether a tool, by the server's own name for it, is one that may
// be seen and called.
func (e *Entry) Shows(tool string) bool {
	name := func(s string) string { return s }
	if e.Front != "" {
		// Its tools have two names, with dots and with underscores.
		name = func(s string) string { return strings.ReplaceAll(s, ".", "_") }
	}
	return shows(&e.Tools, tool, name) && (e.taken.tools == nil || shows(e.taken.tools, tool, name))
}

// ShowsAll reports whether no tool of the server is left out.
func (e *Entry) ShowsAll() bool {
	all := func(t *config.Tools) bool { return t == nil || len(t.Allow) == 0 && len(t.Deny) == 0 }
	return all(&e.Tools) && all(e.taken.tools)
}

func shows(t *config.Tools, tool string, name func(string) string) bool {
	matches := func(pattern string) bool { return identity.Match(name(pattern), name(tool)) }
	return !slices.ContainsFunc(t.Deny, matches) && (len(t.Allow) == 0 || slices.ContainsFunc(t.Allow, matches))
}

// Base is the id of the server in the config.
func (e *Entry) Base() string {
	server, _ := SplitMember(e.ID)
	return server
}

// Session is the one that an inline server is of; empty for a server of the config.
func (e *Entry) Session() string {
	if e.home == nil {
		return ""
	}
	return e.home.session
}

// At is where the server's entry stands, for messages that say what to change.
func (e *Entry) At() string {
	if e.Inline {
		return config.InlineKey + "." + e.Base()
	}
	return "servers." + e.Base()
}

// On reports whether the server is to be used, and why not.
func (e *Entry) On() (bool, string) {
	switch {
	case e.taken.off != "":
		return false, e.taken.off
	case e.Problem != "":
		return false, e.Problem
	case e.Disabled != "":
		return false, e.OffReason()
	case e.Override != nil && !*e.Override:
		return false, "disabled at run time"
	case e.Override == nil && !e.Enabled:
		return false, "disabled in the config"
	}
	return true, ""
}

// Overrides names what was changed at run time and differs from the config.
func (e *Entry) Overrides() []string {
	if e.Override != nil && *e.Override != e.Enabled {
		return append([]string{"enabled"}, e.Set...)
	}
	return e.Set
}

// Shares reports whether all sessions use one connection: a server that is
// reached over HTTP can tell its clients apart, one on a stream can't.
func (e *Entry) Shares() bool { return e.Scope == config.ScopeShared && e.URL == "" }

// Spec is what an instance of the server is started with.
func (e *Entry) Spec() driver.Spec {
	header := make(http.Header, len(e.Headers))
	for k, v := range e.Headers {
		header.Set(k, v)
	}
	spec := driver.Spec{
		Server: e.Base(), Ordinal: e.Ordinal, Command: e.Command, Args: e.Args, Env: e.Env, Cwd: e.Cwd,
		URL: e.URL, Header: header, Transport: e.Transport, CAFile: e.CAFile, Public: e.Public,
		Builtin: e.Builtin, Front: e.Front, Settings: e.Settings, Template: e.Template, Details: e.Details,
		Options: e.Options,
	}
	spec.WorkspacePath = e.SeenWorkspace()
	for _, d := range e.State {
		spec.Dirs = append(spec.Dirs, driver.StateDir{Name: d.Name, Template: d.Template})
	}
	return spec
}

// Info is what the server's driver says of itself; nothing where it is not here.
func (e *Entry) Info() driver.Info {
	if e.Runner == nil {
		return driver.Info{}
	}
	return e.Runner.Info()
}

// Speaks is how the instances of the server speak: stdio or http; empty where they
// are inside of this process.
func (e *Entry) Speaks() string {
	if transport := e.Info().Transport; transport != nil {
		return transport(e.Spec())
	}
	return ""
}

// StartupCall is what every new instance of the server is asked.
func (e *Entry) StartupCall() *upstream.Startup {
	if e.Startup == nil {
		return nil
	}
	arguments, err := json.Marshal(e.Startup.Arguments)
	if err != nil || e.Startup.Arguments == nil {
		arguments = nil
	}
	return &upstream.Startup{Tool: e.Startup.Tool, Arguments: arguments}
}

// Keeper returns who looks after what the server remembers; nil when it
// remembers nothing that Tine knows of.
func (e *Entry) Keeper() driver.Keeper {
	k, _ := e.Runner.(driver.Keeper)
	return k
}

// Remembers reports whether instances of the server work on something that
// outlives them, so that there must not be two at once.
func (e *Entry) Remembers() bool {
	carries, _ := e.Carries()
	return e.Keeper() != nil && (e.Workspace || carries != driver.CarryNone)
}

// Own reports whether each session has a part of its own of the server.
func (e *Entry) Own() bool { return e.Scope == config.ScopeSession }

// Carries is what the driver can carry of the server in a fork, and why not more.
func (e *Entry) Carries() (carries, why string) {
	k := e.Keeper()
	if k == nil {
		return driver.CarryNone, ""
	}
	return k.Carries(e.Spec())
}

// ForkMode is what a fork carries of the server, and why where it refuses.
func (e *Entry) ForkMode() (mode, why string) {
	if !e.Own() {
		return config.ForkShare, ""
	}
	carries, unable := e.Carries()
	if carries == driver.CarryNone && e.Workspace && e.Keeper() != nil {
		carries = driver.CarryFiles // it works on nothing else
	}
	at := e.At()
	switch {
	case e.Fork == config.ForkMemory && carries != driver.CarryMemory && unable != "":
		return config.ForkRefuse, fmt.Sprintf("%s; or set %s.fork to files, fresh, share or refuse", unable, at)
	case e.Fork == config.ForkMemory && carries != driver.CarryMemory:
		return config.ForkRefuse, fmt.Sprintf("driver %q can't carry the memory of server %q; set %s.fork to files, fresh, share or refuse", e.Driver, e.Base(), at)
	case e.Fork == config.ForkFiles && carries == driver.CarryNone:
		return config.ForkRefuse, fmt.Sprintf("server %q has no files to carry; name its directories in %s.state", e.Base(), at)
	case e.Fork != "":
		return e.Fork, at + ".fork says so"
	case carries == driver.CarryMemory:
		return config.ForkMemory, ""
	case carries == driver.CarryFiles:
		return config.ForkFiles, ""
	case e.Stateless:
		return config.ForkFresh, fmt.Sprintf("%s.state says that it remembers nothing", at)
	case unable != "":
		return config.ForkRefuse, fmt.Sprintf("%s, or set %s.fork to fresh or share", unable, at)
	}
	return config.ForkRefuse, fmt.Sprintf("driver %q can't fork; set %s.fork to fresh or share, or %s.scope to shared", e.Driver, at, at)
}

// HasState reports whether the server remembers something of its own, beside the
// workspace.
func (e *Entry) HasState() bool {
	if carries, _ := e.Carries(); carries == driver.CarryNone {
		return false
	}
	r, ok := e.Runner.(driver.Rememberer)
	return !ok || r.Remembers(e.Spec())
}

// WorksOnSpace reports whether the workspace is all that the server remembers.
func (e *Entry) WorksOnSpace() bool { return e.Workspace && !e.HasState() }

// begin gives an entry the template that its session has for it.
func (e *Entry) begin(template json.RawMessage) {
	var text string
	switch err := json.Unmarshal(template, &text); {
	case e.Info().Details:
		e.Details = template
	case err != nil: // checked before it was taken
	case e.WorksOnSpace():
		e.SpaceTemplate = text
	case len(e.State) == 1 && !strings.HasPrefix(text, FromSnapshot):
		e.State = []config.StateDir{{Name: e.State[0].Name, Template: text}}
	default:
		e.Template = text
	}
}

// Preparer returns what makes instances of the server ahead of time; nil for none.
func (e *Entry) Preparer() driver.Preparer {
	p, _ := e.Runner.(driver.Preparer)
	return p
}

// Carry is what a freeze of the server is to carry; empty for the most there is.
func (e *Entry) Carry() string {
	switch mode, _ := e.ForkMode(); mode {
	case config.ForkMemory:
		return driver.CarryMemory
	case config.ForkFiles:
		return driver.CarryFiles
	}
	return ""
}

// Kept is what a server begins with when its instance has ended: what a fork that
// can't carry its memory has of it. Empty for a server that has nothing to lose:
// it remembers nothing, or is built in and keeps everything as it changes.
func (e *Entry) Kept() string {
	switch {
	case e.Stateless || e.Builtin != "":
		return ""
	case len(e.State) > 0 || e.Workspace:
		return api.KeptFiles
	}
	if carries, _ := e.Carries(); carries == driver.CarryFiles {
		return api.KeptFiles
	}
	return api.KeptNothing
}

// Recalls reports whether what a server remembers is its memory, which forks carry
// and an end loses, though it may start anew on the files of the workspace. Where
// directories are declared, those are what counts.
func (e *Entry) Recalls() bool {
	if len(e.State) > 0 || e.Kept() == "" {
		return false
	}
	mode, _ := e.ForkMode()
	return mode == config.ForkMemory
}

// KeepsLists reports whether what the server lists is kept. That of an inline one would
// outlast its session, and be found by another that is defined alike.
func (e *Entry) KeepsLists() bool { return e.Builtin == "" && !e.Inline && e.WarmKey() != "" }

// Learns reports whether what a server lists can be had without a session.
func (e *Entry) Learns() bool {
	on, _ := e.On()
	return on && e.KeepsLists() && e.Info().Address == nil && (!e.Workspace || e.Fronter != nil) && e.Ordinal == 0
}

// WarmKey is the same for entries whose new instances know the same.
func (e *Entry) WarmKey() string {
	if e.Hash == "" {
		return ""
	}
	key := []string{e.Hash, e.Driver, e.Template, string(e.Details)}
	if e.Fronter != nil {
		key = append(key, e.Fronter.Edition(e.Front))
	}
	return strings.Join(key, "|")
}
