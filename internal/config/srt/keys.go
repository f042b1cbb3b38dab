package srt

import (
	"slices"

	"github.com/tine-mcp/tine/internal/config"
)

// unheld says of a key that srt has and nothing here holds, that it is one.
func unheld(path, key string) string {
	if !slices.Contains(more[path], key) {
		return ""
	}
	return "srt has it and Tine does not, so that it would not hold; remove it"
}

// The keys that are read, and by the path of their map those that srt has besides.
var (
	topKeys        = []string{"network", "filesystem"}
	networkKeys    = []string{"allowedDomains", "deniedDomains", "allowLocalBinding", "allowUnixSockets"}
	filesystemKeys = []string{"denyRead", "allowRead", "allowWrite", "denyWrite"}
	entryKeys      = []string{"path", "literal"}

	more = map[string][]string{
		"": {
			"credentials", "ignoreViolations", "enableWeakerNestedSandbox", "allowNestedUserNamespaces", "enableWeakerNetworkIsolation",
			"allowAppleEvents", "ripgrep", "mandatoryDenySearchDepth", "allowPty", "seccomp", "bwrapPath", "socatPath", "javaAgentJarPath",
			"windows", "git",
		},
		"network": {
			"deniedDomainReasons", "strictAllowlist", "deniedResolvedAddresses", "allowAllUnixSockets", "allowMachLookup", "httpProxyPort",
			"socksProxyPort", "mitmProxy", "parentProxy", "tlsTerminate", "filterRequest", "allowPlaintextHeaderSet", "stripResponseHeaders",
			"refuseOpaqueTunnels", "requireHostMatch", "ambiguousRequestTarget",
		},
		"filesystem": {"disabled", "allowGitConfig"},
	}
)

func (s *Settings) top(o config.Object) {
	if net, ok := o.Child("network", networkKeys); ok {
		s.network(net)
	}
	if files, ok := o.Child("filesystem", filesystemKeys); ok {
		s.filesystem(files)
	}
}

func (s *Settings) network(o config.Object) {
	s.allowed, s.AllowedDomains = domains(o, "allowedDomains", false)
	s.denied, s.DeniedDomains = domains(o, "deniedDomains", true)
	if o.Boolean("allowLocalBinding", &s.AllowLocalBinding); s.AllowLocalBinding {
		o.Warn(o.KeyPos("allowLocalBinding"), "network.allowLocalBinding: has no effect; a kernel has a loopback of its own, and no port of this machine")
	}
	if n := o.Get("allowUnixSockets"); n != nil && n.Shape == config.ShapeBool {
		o.Wrong("allowUnixSockets", n, "want a list of paths, got %s; srt's key for all sockets is allowAllUnixSockets, which Tine does not know", n.Shown())
		return
	}
	for _, e := range s.entries(o, "allowUnixSockets") {
		s.AllowUnixSockets = append(s.AllowUnixSockets, e.shown())
	}
	if len(s.AllowUnixSockets) > 0 {
		o.Warn(o.KeyPos("allowUnixSockets"), "network.allowUnixSockets: has no effect; a kernel reaches no socket of this machine")
	}
}

func (s *Settings) filesystem(o config.Object) {
	for _, list := range []struct {
		key   string
		rules *[]rule
		paths *[]string
	}{
		{"denyRead", &s.denyRead, &s.DenyRead},
		{"allowRead", &s.allowRead, &s.AllowRead},
		{"allowWrite", &s.allowWrite, &s.AllowWrite},
		{"denyWrite", &s.denyWrite, &s.DenyWrite},
	} {
		for _, r := range s.entries(o, list.key) {
			if list.key == "allowWrite" && r.rest != nil {
				o.Fail(r.at, "%s: a pattern can't be written to, since folders are what the kernel allows; name the folder, or write {\"path\": ..., \"literal\": true} if this is its name", r.where)
				continue
			}
			*list.rules = append(*list.rules, r)
			*list.paths = append(*list.paths, r.shown())
		}
	}
}

// items are the entries of a list, with their names for messages.
func items(o config.Object, key string) []*config.Node {
	n := o.Get(key)
	switch {
	case n == nil || n.Shape == config.ShapeNull:
		return nil
	case n.Shape != config.ShapeList:
		o.Wrong(key, n, "want a list of strings, got %s", n.Shown())
		return nil
	}
	return n.Items
}

// entries reads a list of paths.
func (s *Settings) entries(o config.Object, key string) []rule {
	var list []rule
	for i, n := range items(o, key) {
		r := rule{where: where(o, key, i), at: n.Pos}
		text, literal := n.Text, false
		if n.Shape == config.ShapeMap {
			e, _ := o.Item(key, i, n, entryKeys)
			if !e.Text("path", &text, `"/data/[x]"`) || !e.Boolean("literal", &literal) || !literal {
				o.Fail(n.Pos, `%s: want a path, or {"path": "/data/[x]", "literal": true}`, r.where)
				continue
			}
		} else if n.Shape != config.ShapeString {
			o.Fail(n.Pos, "%s: want a path, got %s", r.where, n.Shown())
			continue
		}
		if err := s.fill(&r, text, literal); err != nil {
			o.Fail(n.Pos, "%s: %v", r.where, err)
			continue
		}
		list = append(list, r)
	}
	return list
}
