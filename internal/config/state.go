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

// builtinRollout acts on sessions.
const builtinRollout = "rollout"

// Controls reports whether the server acts on sessions for whoever calls it, and
// so must know who that is.
func (s *Server) Controls() bool { return s.Builtin == builtinRollout }

var (
	forks      = []string{ForkMemory, ForkFiles, ForkFresh, ForkShare, ForkRefuse}
	budgetKeys = []string{"memory"}
	// copiers are the drivers that can copy a running server.
	copiers = []string{"builtin", "sandbox", "remote with remote.fork or remote.snapshot"}
	// templated are the built-in servers that can begin with something.
	templated = []string{builtinFiles, builtinMemory, builtinSQLite}
	// seeing are the built-in servers that do something with a workspace.
	seeing = []string{builtinFiles, builtinSQLite}

	stateName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)
)

// remembering reads what a server keeps, where, and what a fork carries of it.
func (d *decoder) remembering(o object, s *Server) {
	d.state(o, s)
	if n := o.n.get("template"); n != nil {
		if o.n.get("remote") != nil {
			d.details(o, s)
		} else {
			d.template(o, "template", &s.Template, true)
		}
		if s.Builtin != "" && !slices.Contains(templated, s.Builtin) {
			d.fail(o.keyPos("template"), "%s.template: goes with builtin: %s; remove it", o.path, orList(templated))
		}
	}
	d.templatePath(o, s)
	used := ""
	if o.has("docker", "remote") == "" {
		used = d.atStart(o, s)
	}
	d.seesWorkspace(o, s, used)
	if s.Builtin == builtinFiles && s.Template != "" {
		d.filesTemplate(o, s)
	}
	d.fork(o, s)
	if o.n.get("budget") == nil {
		return
	}
	if way := o.has("url", "remote"); way != "" {
		d.fail(o.keyPos("budget"), "%s.budget: goes with command, builtin or docker, but this server has %s", o.path, an(way))
	} else if b, ok := o.child("budget", budgetKeys); ok {
		b.size("memory", &s.Budget.Memory, 1<<10, mostBytes)
	}
}

// filesTemplate notes what files begins with. It serves the workspace and has no
// state beside that, so it is the workspace that begins with it.
func (d *decoder) filesTemplate(o object, s *Server) {
	if !s.Workspace {
		d.fail(o.keyPos("template"), "%s.template: goes with the workspace, but settings.root has the server serve a folder as it is; remove one of them", o.path)
		s.Template = ""
		return
	}
	if d.spaceTemplates == nil {
		d.spaceTemplates = make(map[string]pos)
	}
	d.spaceTemplates[s.ID] = o.keyPos("template")
}

// noState is the state of a server that remembers nothing.
const noState = "none"

// saysNone reports whether a node says so.
func saysNone(n *node) bool { return n.scalar() && n.kind != kindNull && n.text == noState }

// state reads a list of names, a map of names to templates, or none.
func (d *decoder) state(o object, s *Server) {
	n, ok := o.lookup("state")
	if !ok {
		return
	}
	at, seen := join(o.path, "state"), map[string]bool{}
	name := func(name, shown string, at string, p pos) bool {
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
	case (n.kind == kindList || n.kind == kindMap) && len(n.items)+len(n.pairs) == 0 || n.kind == kindNull:
		o.wrong("state", n, "names nothing; write state: [data], or remove it")
	case n.kind == kindList && o.texts("state", &names, "[data]"):
		for _, it := range o.items("state", false) {
			if name(it.text, it.shown, it.path, it.pos) {
				s.State = append(s.State, StateDir{Name: it.text})
			}
		}
	case n.kind == kindMap:
		in := object{d: d, n: n, path: at, rel: join(o.rel, "state"), hidden: o.hidden}
		for _, p := range n.pairs {
			if !name(p.key, fmt.Sprintf("%q", clip(p.key)), at, p.keyPos) {
				continue
			}
			dir := StateDir{Name: p.key}
			if p.value.kind != kindNull {
				d.template(in, p.key, &dir.Template, false)
			}
			s.State = append(s.State, dir)
		}
	case n.kind != kindList:
		o.wrong("state", n, "want a list of names, a map of names to templates, or none, got %s; write state: [data], or state: none for a server that remembers nothing", n.shown())
	}
}

// atStart checks the placeholders that are filled in when the server starts,
// and reports where ${workspace} is the first time.
func (d *decoder) atStart(o object, s *Server) (workspace string) {
	used := map[string]bool{}
	for _, key := range []string{"args", "env", "cwd"} {
		n := o.n.get(key)
		if n == nil {
			continue
		}
		n.eachText(join(o.path, key), func(n *node, path string) {
			if n.missing {
				return
			}
			if !n.onlyKept() {
				d.fail(n.pos, "%s: holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way", path)
				return
			}
			for _, name := range n.kept {
				if name == keptWorkspace {
					if workspace == "" {
						workspace = path
					}
					continue
				}
				used[name] = true
				d.declared(n, path, s, name)
			}
			if key == "cwd" && len(n.kept) > 0 && !strings.HasPrefix(n.text, "${"+n.kept[0]+"}") {
				d.fail(n.pos, "%s: ${%s} is a whole path, so nothing can stand before it", path, n.kept[0])
			}
		})
	}
	if n := o.n.get("state"); n != nil {
		for _, dir := range s.State {
			if !used[keptState+dir.Name] {
				d.warn(n.pos, "%s.state: nothing says where %q is; put ${state.%s} into args, env or cwd, or it stays empty", o.path, dir.Name, dir.Name)
			}
		}
	}
	return workspace
}

// declared complains about a directory that is used and not declared.
func (d *decoder) declared(n *node, path string, s *Server, name string) {
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
	d.fail(n.pos, "%s: ${state.%s} is not declared; %s", path, name, mend)
}

// seesWorkspace settles whether the server sees the session's directory. used is
// where it does so by a placeholder.
func (d *decoder) seesWorkspace(o object, s *Server, used string) {
	root := o.n.get("settings") != nil && o.n.get("settings").get("root") != nil
	serves := s.Builtin == builtinFiles && !root
	n := o.n.get("workspace")
	switch given := o.boolean("workspace", &s.Workspace); {
	case !given:
		s.Workspace = used != "" || serves
	case !s.Workspace && used != "":
		o.wrong("workspace", n, "is false, but %s has ${workspace}; remove one of them", used)
	case !s.Workspace && serves:
		o.wrong("workspace", n, "is false, but that is what files serves; give it another folder with settings.root, or remove this")
	case s.Workspace && o.n.get("url") != nil:
		o.wrong("workspace", n, "a server behind a url can't see a directory of this machine; remove it")
	case s.Workspace && o.n.get("remote") != nil:
		o.wrong("workspace", n, "a server that somebody else runs can't see a directory of this machine; remove it")
	case s.Workspace && o.n.get("docker") != nil:
		o.wrong("workspace", n, "a container has no workspace; name what it remembers with docker.state, and remove this")
	case s.Workspace && s.Builtin == builtinFiles && root:
		o.wrong("workspace", n, "is true, but files has settings.root; keep one of them")
	case s.Workspace && s.Builtin != "" && !slices.Contains(seeing, s.Builtin):
		o.wrong("workspace", n, "builtin: %s works on no files, as %s do; remove it", s.Builtin, strings.Join(seeing, " and "))
	}
	if s.Workspace && s.Scope == ScopeShared {
		mend := ""
		if s.Builtin == builtinFiles {
			mend = ", or give it a folder with settings.root"
		}
		o.wrong("scope", o.n.get("scope"), "is shared, but each session has a workspace of its own; write scope: session%s", mend)
	}
}

func (d *decoder) fork(o object, s *Server) {
	if !o.oneOf("fork", &s.Fork, forks...) {
		return
	}
	n := o.n.get("fork")
	scope := s.Scope
	setDefault(&scope, s.defaultScope())
	others := "use fresh, share or refuse"
	switch program := o.n.get("command") != nil; {
	case scope == ScopeShared && s.Fork != ForkShare:
		o.wrong("fork", n, "%s goes with scope: session; one that is shared is there for every fork as it is, so leave fork out", n.shown())
	case s.Remote != nil:
		d.remoteFork(o, s)
	case s.Fork == ForkMemory && s.Sandbox != nil:
		if !s.Sandbox.Forks() {
			o.wrong("fork", n, "%s copies a running server, and one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org], or use files with state, fresh, share or refuse", n.shown())
		}
	case s.Fork == ForkMemory && s.Builtin == "":
		driver := "url"
		switch {
		case program:
			driver, others = "process", "add sandbox: true, or use files with state, fresh, share or refuse"
		case s.Docker != nil:
			driver, others = "docker", "use files with docker.state, fresh, share or refuse"
		}
		o.wrong("fork", n, "%s copies a running server, which driver %s can't; %s can; %s", n.shown(), driver, orList(copiers), others)
	case s.Fork == ForkFiles && len(s.State) == 0 && !s.Workspace && (o.n.get("state") == nil || s.Stateless) && (s.Docker == nil || len(s.Docker.State) == 0):
		switch {
		case s.Docker != nil:
			others = "name them with docker.state: [PATH], or [root] for the container itself"
		case program:
			others = "name them with state: [NAME], and put ${state.NAME} into args, env or cwd"
		case s.Builtin != "":
			others = "leave fork out, and all it remembers is carried"
		}
		o.wrong("fork", n, "%s carries the files of a server, and this one has none that Tine knows of; %s", n.shown(), others)
	}
}
