package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The built-in servers that remember something.
const (
	builtinFiles  = "files"
	builtinMemory = "memory"
	builtinSQLite = "sqlite"
)

// The built-in servers that act for their caller, rollout on sessions and orchestrator on
// agents.
const (
	builtinRollout      = "rollout"
	builtinOrchestrator = "orchestrator"
)

var controls = []string{builtinRollout, builtinOrchestrator}

// Controls reports whether the server acts on sessions or agents for its caller, and so
// must know who that is.
func (s *Server) Controls() bool { return slices.Contains(controls, s.Builtin) }

var (
	forks = []string{ForkMemory, ForkFiles, ForkFresh, ForkShare, ForkRefuse}
	// templated are the built-in servers that can begin with something.
	templated = []string{builtinFiles, builtinMemory, builtinSQLite}
	// seeing are the built-in servers that do something with a workspace.
	seeing = []string{builtinFiles, builtinSQLite}

	stateName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)
)

// remembering reads what a server keeps, where, and what a fork carries of it.
func (d *decoder) remembering(o Object, s *Server) {
	d.state(o, s)
	if n := o.n.Get("template"); n != nil {
		if s.kind != nil && s.kind.Remote {
			d.details(o, s)
		} else {
			d.template(o, "template", &s.Template, true)
		}
		if s.Builtin != "" && !slices.Contains(templated, s.Builtin) {
			d.fail(o.KeyPos("template"), "%s.template: goes with builtin: %s; remove it", o.Path, OrList(templated))
		}
	}
	if s.kind != nil {
		s.kind.check(o, s)
	}
	used := ""
	if o.alone() == "" {
		var at Pos
		if used, at = d.atStart(o, s); used != "" && s.kind != nil && s.kind.NoWorkspace != "" {
			d.fail(at, "%s: %s", used, s.kind.NoWorkspace)
		}
	}
	d.seesWorkspace(o, s, used)
	if s.Builtin == builtinFiles && s.Template != "" {
		d.filesTemplate(o, s)
	}
	d.fork(o, s)
	if o.n.Get("budget") == nil {
		return
	}
	if way := o.Has(wayKeys...); way == "url" || s.kind != nil && s.kind.Remote {
		d.fail(o.KeyPos("budget"), "%s.budget: goes with command, builtin or docker, but this server has %s", o.Path, an(way))
	}
}

// filesTemplate notes what files begins with. It serves the workspace and has no
// state beside that, so it is the workspace that begins with it.
func (d *decoder) filesTemplate(o Object, s *Server) {
	if !s.Workspace {
		d.fail(o.KeyPos("template"), "%s.template: goes with the workspace, but settings.root has the server serve a folder as it is; remove one of them", o.Path)
		s.Template = ""
		return
	}
	if d.spaceTemplates == nil {
		d.spaceTemplates = make(map[string]Pos)
	}
	d.spaceTemplates[s.ID] = o.KeyPos("template")
}

// noState is the state of a server that remembers nothing.
const noState = "none"

// saysNone reports whether a node says so.
func saysNone(n *Node) bool { return n.Scalar() && n.Shape != ShapeNull && n.Text == noState }

// state reads a list of names, a map of names to templates, or none.
func (d *decoder) state(o Object, s *Server) {
	n, ok := o.Lookup("state")
	if !ok {
		return
	}
	at, seen := join(o.Path, "state"), map[string]bool{}
	name := func(name, shown string, at string, p Pos) bool {
		switch {
		case !stateName.MatchString(name):
			d.fail(p, "%s: %s can't name a directory of state; use 1 to 32 of the characters a-z, 0-9, _ and -", at, shown)
			return false
		case seen[name]:
			d.fail(p, "%s: %s stands twice; keep one", at, shown)
			return false
		}
		seen[name] = true
		return true
	}
	var names []string
	switch {
	case saysNone(n):
		s.Stateless = true
	case (n.Shape == ShapeList || n.Shape == ShapeMap) && len(n.Items)+len(n.Pairs) == 0 || n.Shape == ShapeNull:
		o.Wrong("state", n, "names nothing; write state: [data], or remove it")
	case n.Shape == ShapeList && o.Texts("state", &names, "[data]"):
		for _, it := range o.Items("state", false) {
			if name(it.Text, it.Shown, it.Path, it.Pos) {
				s.State = append(s.State, StateDir{Name: it.Text})
			}
		}
	case n.Shape == ShapeMap:
		in := Object{d: d, n: n, Path: at, rel: join(o.rel, "state"), hidden: o.hidden}
		for _, p := range n.Pairs {
			if !name(p.Key, fmt.Sprintf("%q", Clip(p.Key)), at, p.KeyPos) {
				continue
			}
			dir := StateDir{Name: p.Key}
			if p.Value.Shape != ShapeNull {
				d.template(in, p.Key, &dir.Template, false)
			}
			s.State = append(s.State, dir)
		}
	case n.Shape != ShapeList:
		o.Wrong("state", n, "want a list of names, a map of names to templates, or none, got %s; write state: [data], or state: none for a server that remembers nothing", n.Shown())
	}
}

// atStart checks the placeholders that are filled in when the server starts,
// and reports where ${workspace} is the first time.
func (d *decoder) atStart(o Object, s *Server) (workspace string, at Pos) {
	used := map[string]bool{}
	for _, key := range []string{"args", "env", "cwd"} {
		n := o.n.Get(key)
		if n == nil {
			continue
		}
		n.eachText(join(o.Path, key), func(n *Node, path string) {
			if n.Missing {
				return
			}
			if !n.onlyKept() {
				d.fail(n.Pos, "%s: holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way", path)
				return
			}
			for _, name := range n.Kept {
				if name == keptWorkspace {
					if workspace == "" {
						workspace, at = path, n.Pos
					}
					continue
				}
				used[name] = true
				d.declared(n, path, s, name)
			}
			if key == "cwd" && len(n.Kept) > 0 && !strings.HasPrefix(n.Text, "${"+n.Kept[0]+"}") {
				d.fail(n.Pos, "%s: ${%s} is a whole path, so nothing can stand before it", path, n.Kept[0])
			}
		})
	}
	if n := o.n.Get("state"); n != nil {
		for _, dir := range s.State {
			if !used[keptState+dir.Name] {
				d.warn(n.Pos, "%s.state: nothing says where %q is; put ${state.%s} into args, env or cwd, or it stays empty", o.Path, dir.Name, dir.Name)
			}
		}
	}
	return workspace, at
}

// declared complains about a directory that is used and not declared.
func (d *decoder) declared(n *Node, path string, s *Server, name string) {
	name = strings.TrimPrefix(name, keptState)
	names := make([]string, len(s.State))
	for i, dir := range s.State {
		names[i] = dir.Name
	}
	if slices.Contains(names, name) {
		return
	}
	mend := fmt.Sprintf("add state: [%s]", strings.Join(append(names, name), ", "))
	if g := Nearest(name, names); g != "" {
		mend = fmt.Sprintf("did you mean ${state.%s}?", g)
	}
	d.fail(n.Pos, "%s: ${state.%s} is not declared; %s", path, name, mend)
}

// seesWorkspace settles whether the server sees the session's directory. used is
// where it does so by a placeholder.
func (d *decoder) seesWorkspace(o Object, s *Server, used string) {
	root := o.n.Get("settings") != nil && o.n.Get("settings").Get("root") != nil
	serves := s.Builtin == builtinFiles && !root
	n := o.n.Get("workspace")
	switch given := o.Boolean("workspace", &s.Workspace); {
	case !given:
		s.Workspace = used != "" || serves
	case !s.Workspace && used != "":
		o.Wrong("workspace", n, "is false, but %s has ${workspace}; remove one of them", used)
	case !s.Workspace && serves:
		o.Wrong("workspace", n, "is false, but that is what files serves; give it another folder with settings.root, or remove this")
	case s.Workspace && o.n.Get("url") != nil:
		o.Wrong("workspace", n, "a server behind a url can't see a directory of this machine; remove it")
	case s.Workspace && s.kind != nil && s.kind.NoWorkspace != "":
		o.Wrong("workspace", n, "%s", s.kind.NoWorkspace)
	case s.Workspace && s.Builtin == builtinFiles && root:
		o.Wrong("workspace", n, "is true, but files has settings.root; keep one of them")
	case s.Workspace && s.Builtin != "" && !slices.Contains(seeing, s.Builtin):
		o.Wrong("workspace", n, "builtin: %s works on no files, as %s do; remove it", s.Builtin, strings.Join(seeing, " and "))
	}
	if s.Workspace && s.Scope == ScopeShared {
		mend := ""
		if s.Builtin == builtinFiles {
			mend = ", or give it a folder with settings.root"
		}
		o.Wrong("scope", o.n.Get("scope"), "is shared, but each session has a workspace of its own; write scope: session%s", mend)
	}
}

func (d *decoder) fork(o Object, s *Server) {
	if !o.OneOf("fork", &s.Fork, forks...) {
		return
	}
	n := o.n.Get("fork")
	scope := s.Scope
	SetDefault(&scope, s.DefaultScope())
	others := "use fresh, share or refuse"
	switch program := o.n.Get("command") != nil; {
	case scope == ScopeShared && s.Fork != ForkShare:
		o.Wrong("fork", n, "%s goes with scope: session; one that is shared is there for every fork as it is, so leave fork out", n.Shown())
	case s.kind != nil && s.kind.fork(o, s):
	case s.Fork == ForkMemory && s.Builtin == "":
		driver := "url"
		if program {
			driver, others = "process", "add sandbox: true, or use files with state, fresh, share or refuse"
		}
		o.Wrong("fork", n, "%s copies a running server, which driver %s can't; %s can; %s", n.Shown(), driver, OrList(Copiers()), others)
	case s.Fork == ForkFiles && len(s.State) == 0 && !s.Workspace && (o.n.Get("state") == nil || s.Stateless):
		switch {
		case program:
			others = "name them with state: [NAME], and put ${state.NAME} into args, env or cwd"
		case s.Builtin != "":
			others = "leave fork out, and all it remembers is carried"
		}
		o.Wrong("fork", n, "%s carries the files of a server, and this one has none that Tine knows of; %s", n.Shown(), others)
	}
}
