package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// InlineKey is the key under which the servers of a blueprint stand, for messages.
const InlineKey = "mcp_servers"

// maxInline bounds the text of one inline server.
const maxInline = 256 << 10

// Inline reads a server of a session's own, which is written like an entry of servers
// and stands in no config. The config says what holds for all servers, and its folder is
// where relative paths start.
//
// Its text has been filled in before, perhaps with what a caller sent: it is taken as it
// is, and no placeholder in it is resolved but ${workspace} and ${state.NAME}, which are
// the session's own. All of env and headers is hidden, since it can't be told any more
// what came from where.
func (c *Config) Inline(id string, entry []byte, opts Options) (s Server, warnings []string, err error) {
	at := join(InlineKey, id)
	opts.Path = c.Path
	opts.Getenv = onlyEngine(opts.filled().Getenv)
	d := newDecoder(opts)
	d.file, d.separator, d.roots = "", c.Separator, len(c.TemplateRoots) > 0
	if len(entry) > maxInline {
		return s, nil, fmt.Errorf("%s is larger than %d KiB", Clip(at), maxInline>>10)
	}
	if err := checkID(id, c.Separator); err != nil {
		return s, nil, fmt.Errorf("%s: %w", Clip(at), err)
	}
	t, err := readTree(entry, "")
	if err != nil {
		return s, nil, fmt.Errorf("%s can't be read: %w", at, err)
	}
	for _, dup := range t.dups {
		d.fail(dup.pos, "%s has the key %q twice; keep one", at, Clip(dup.key))
	}
	t.root.eachText(at, func(n *Node, _ string) {
		for _, kept := range atStartPattern.FindAllStringSubmatch(n.Text, -1) {
			n.Kept = append(n.Kept, kept[1])
		}
	})
	for _, key := range []string{"env", "headers"} {
		if n := t.root.Get(key); n != nil {
			n.eachText("", func(n *Node, _ string) { n.From = n.Text })
		}
	}
	d.notInline(t.root, at)
	if scope := t.root.Get("scope"); t.root.Shape == ShapeMap && (scope == nil || scope.Shape == ShapeNull) {
		t.root.Set("scope", StringNode(ScopeSession))
	}
	s = d.server(id, t.root, Pos{}, at)
	d.disable(&s, nil, at)
	if s.Controls() {
		d.fail(Pos{}, "%s.builtin: %s acts on all sessions; put it into the config, and reference it", at, s.Builtin)
	}
	SetDefault(&s.Journal, c.Journal.Mode)
	d.wholeInline(c, &s, at)
	if err := d.err(); err != nil {
		return Server{}, nil, err
	}
	s.Inline = true
	return s, d.boundedWarnings(), nil
}

// onlyEngine looks up no variable that an entry names, as -e NAME among the flags of a
// container does, but where the engine of this machine is.
func onlyEngine(getenv func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name != "DOCKER_HOST" {
			return "", false
		}
		return getenv(name)
	}
}

// notInline complains about keys that have a meaning only for servers which sessions
// share, or which are there before a session.
func (d *decoder) notInline(n *Node, at string) {
	why := map[string]string{
		"warm":       "copies are kept ready for servers of the config alone; remove it",
		"fork_ahead": "copies are made ahead for servers of the config alone; remove it",
		"auth":       "a login belongs to a server of the config; put the server there and reference it, or give it headers",
		"credential": "a login belongs to a server of the config; put the server there and reference it, or give it headers",
		"merged":     "it is for builtin: rollout, which acts on all sessions; remove it",
	}
	for _, key := range slices.Sorted(maps.Keys(why)) {
		if p := slices.IndexFunc(n.Pairs, func(p Pair) bool { return p.Key == key }); p >= 0 {
			d.fail(n.Pairs[p].KeyPos, "%s.%s: does not go with a server of a session's own: %s", at, key, why[key])
		}
	}
	if fork := n.Get("fork"); fork != nil && fork.Shape == ShapeString && fork.Text == ForkShare {
		d.fail(fork.Pos, "%s.fork: is share, but a server of a session's own is for that session alone; set it to fresh, or put the server into the config and reference it", at)
	}
	if scope := n.Get("scope"); scope != nil && scope.Shape == ShapeString && scope.Text == ScopeShared {
		d.fail(scope.Pos, "%s.scope: is shared, but a server of a session's own is for that session alone; remove it, or put the server into the config and reference it", at)
	}
}

// wholeInline looks at what checkWhole looks at for the servers of a config.
func (d *decoder) wholeInline(c *Config, s *Server, at string) {
	if s.Workspace {
		if c.noWorkspace {
			d.fail(Pos{}, "%s sees the workspace, and the config has workspace: false; remove that there, or set %s.workspace: false", at, at)
		}
		s.WorkspacePath = c.Workspace.Path
	}
	if pos, ok := d.spaceTemplates[s.ID]; ok {
		d.fail(pos, "%s.template: the workspace begins with what workspace.template of the config says; remove it", at)
	}
	whole := *c
	whole.Servers = []Server{*s}
	d.files = append(slices.Clone(c.files), d.files...)
	d.ownFiles(&whole)
	d.ownFilesAside(whole.files)
	d.ownFilesNotCopied(&whole)
	d.ownFilesNotOpened(&whole)
	d.stateAside()
	d.keysNotCopied()
	d.keysSeen(whole.files)
	for i := range d.problems {
		// Its line says nothing: the text was put together by a program.
		d.problems[i].Line, d.problems[i].Column = 0, 0
		if m := d.problems[i].Message; !strings.HasPrefix(m, at) {
			d.problems[i].Message = at + ": " + m
		}
	}
}
