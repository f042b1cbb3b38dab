package config

import (
	"fmt"
	"slices"
	"strings"
)

var onForkKeys = []string{"tool"}

// OnFork is how a server hears that it is a copy of another.
type OnFork struct {
	Notify bool   `yaml:"-" json:",omitzero"` // by notifications/tine/forked
	Tool   string `yaml:"-" json:",omitzero"` // by a call of this tool
}

const mostWarm = 1000

// copied reads what is for servers that are copied while they run.
func (d *decoder) copied(o Object, s *Server) {
	d.onFork(o, s)
	scope := s.Scope
	SetDefault(&scope, s.DefaultScope())
	for _, on := range []struct {
		key string
		yes bool
	}{{"warm", s.Warm > 0}, {"fork_ahead", s.ForkAhead}, {"on_fork", s.OnFork != nil}} {
		way := o.Has(wayKeys...)
		if !on.yes || way == "" || way == "preset" {
			continue // what it is was wrong already
		}
		wrong, copies := "", s.kind != nil && s.kind.copies != nil
		switch {
		case !copies && way == "command":
			wrong = "goes with sandbox, which carries the memory of a program that runs, and driver process can't; add sandbox: true, or remove it"
		case !copies:
			wrong = "goes with sandbox, which carries the memory of a program that runs, but this server has " + an(way) + "; remove it"
		case s.kind.copies(s) != "":
			wrong = "copies a running server, and " + s.kind.copies(s) + ", or remove it"
		case scope == ScopeShared:
			wrong = "goes with scope: session; one that is shared is there for every session as it is, so remove it"
		case on.key != "warm" && s.Fork != "" && s.Fork != ForkMemory:
			wrong = "goes with fork: memory, but fork is " + s.Fork + "; remove one of them"
		case on.key == "warm" && s.Workspace:
			wrong = "begins new sessions with a server that was started before them, in a workspace that is not theirs; remove it, or have the server do without the workspace"
		case on.key == "fork_ahead" && (len(s.State) > 0 || s.Workspace):
			files := "state"
			if s.Workspace {
				files = "the workspace"
			}
			wrong = "copies a server before the fork, so that the files in " + files + " would be of another moment than its memory; remove it, or have the server use neither state nor workspace"
		}
		if wrong != "" {
			d.fail(o.KeyPos(on.key), "%s.%s: %s", o.Path, on.key, wrong)
		}
	}
}

// onFork reads how a server hears that it is a copy: a word, or a tool.
func (d *decoder) onFork(o Object, s *Server) {
	n, ok := o.Lookup("on_fork")
	if !ok {
		return
	}
	tool, in, key := "", o, "on_fork"
	switch words := strings.Fields(n.Text); {
	case n.Shape == ShapeMap:
		c, _ := o.Child("on_fork", onForkKeys)
		if in, key = c, "tool"; c.n.Get("tool") == nil {
			d.fail(o.KeyPos("on_fork"), "%s: tool is missing; write on_fork: {tool: NAME}, or on_fork: notify", c.Path)
			return
		}
		if !c.Text("tool", &tool, "reseed") {
			return
		}
	case n.Shape == ShapeString && slices.Equal(words, []string{"notify"}):
		s.OnFork = &OnFork{Notify: true}
		return
	case n.Shape == ShapeString && len(words) == 2 && words[0] == "tool":
		tool = words[1]
		o.note("on_fork", n)
	default:
		o.Wrong("on_fork", n, "got %s, want notify, tool NAME, or {tool: NAME}", n.Shown())
		return
	}
	s.OnFork = &OnFork{Tool: tool}
	if at := in.n.Get(key); !ToolPattern.MatchString(tool) {
		in.Wrong(key, at, "%s does not name a tool; use 1 to 128 letters, digits, dots, dashes and underscores", at.Shown())
	}
}

// onThisSystem switches a server off where its driver can't run. It is no error: the
// same file may be used elsewhere.
func (d *decoder) onThisSystem(o Object, s *Server) {
	if s.kind == nil || s.kind.Unfit == nil || s.Disabled != "" || d.opts.OS == "" {
		return
	}
	why := s.kind.Unfit(d.opts.OS)
	if why == "" {
		return
	}
	s.Disabled = fmt.Sprintf("server %q is off: %s", s.ID, why)
	at := o.KeyPos(s.kind.Name)
	if o.n.Get(s.kind.Name) == nil {
		at = o.KeyPos("driver")
	}
	if s.Enabled {
		d.warn(at, "%s", s.Disabled)
	}
}
