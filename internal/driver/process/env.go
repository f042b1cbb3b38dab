package process

import (
	"maps"
	"runtime"
	"slices"
	"strings"
)

// markerVar carries the tokens of the instances that a process belongs to, from
// the outermost to its own: a gateway that runs in an instance of another one
// adds to it, so that ending the outer instance ends everything inside.
const (
	markerVar       = "TINE_INSTANCE"
	markerSeparator = ":"
)

// What a child gets of the gateway's environment. The rest may hold secrets of
// the gateway or of other servers, such as tokens, or proxies with passwords in
// their URLs: a server that needs one names it in its env.
var (
	passed = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ",
		"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
	}
	passedPrefixes = []string{"LC_", "XDG_"}
	passedWindows  = []string{
		"ALLUSERSPROFILE", "APPDATA", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMSPEC", "COMPUTERNAME",
		"HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PSMODULEPATH", "PUBLIC",
		"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR",
	}
)

// environment is a set of variables. On Windows names differ in more than case.
type environment struct {
	fold   bool
	names  map[string]string // folded name to name
	values map[string]string // folded name to value
}

func (e *environment) key(name string) string {
	if e.fold {
		return strings.ToUpper(name)
	}
	return name
}

func (e *environment) set(name, value string) {
	e.names[e.key(name)] = name
	e.values[e.key(name)] = value
}

func (e *environment) get(name string) string { return e.values[e.key(name)] }

func (e *environment) list() []string {
	out := make([]string, 0, len(e.names))
	for _, k := range slices.Sorted(maps.Keys(e.names)) {
		out = append(out, e.names[k]+"="+e.values[k])
	}
	return out
}

// childEnv makes the environment of a child from the gateway's, the server's
// own, its folder and its token.
func childEnv(gateway []string, own map[string]string, cwd, token string) *environment {
	return makeEnv(runtime.GOOS == "windows", gateway, own, cwd, token)
}

func makeEnv(windows bool, gateway []string, own map[string]string, cwd, token string) *environment {
	e := &environment{fold: windows, names: make(map[string]string), values: make(map[string]string)}
	marker := token
	for _, kv := range gateway {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if e.key(name) == markerVar && value != "" {
			marker = value + markerSeparator + token
		}
		if passes(e.key(name), windows) {
			e.set(name, value)
		}
	}
	if cwd != "" && !windows {
		e.set("PWD", cwd)
	}
	for name, value := range own {
		e.set(name, value)
	}
	e.set(markerVar, marker)
	return e
}

func passes(name string, windows bool) bool {
	if slices.Contains(passed, name) || windows && slices.Contains(passedWindows, name) {
		return true
	}
	return slices.ContainsFunc(passedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
