package packages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode"
)

// Bounds of what a wish may ask for.
const (
	maxSpec  = 1024
	maxExtra = 64
)

var (
	npmName   = regexp.MustCompile(`^(@[A-Za-z0-9-~][A-Za-z0-9-._~]*/)?[A-Za-z0-9-~_][A-Za-z0-9-._~]*$`)
	pyName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?`)
	pyRest    = regexp.MustCompile(`^\s*(\[[A-Za-z0-9 ,._-]*\])?\s*(?:([=<>!~].*)|(@\s*\S.*))?$`)
	pyDashes  = regexp.MustCompile(`[-_.]+`)
	version   = regexp.MustCompile(`^v?[0-9][0-9A-Za-z.!+_-]*$`)
	windowsAt = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
)

// check refuses wishes that can't be pinned or that an installer would take for
// something else than a package.
func (w *Wanted) check() error {
	if w.Kind != NPM && w.Kind != Python {
		return fmt.Errorf("packages of kind %q are not known; use %s or %s", w.Kind, NPM, Python)
	}
	if len(w.Extra) > maxExtra {
		return fmt.Errorf("package %q: %d more packages are wanted, more than %d", mask(w.Package), len(w.Extra), maxExtra)
	}
	for _, spec := range w.specs() {
		if err := w.checkSpec(spec); err != nil {
			return err
		}
	}
	if w.Bin != "" && (strings.ContainsAny(w.Bin, `/\`) || w.Bin[0] == '-' || w.Bin == "." || w.Bin == ".." || !printable(w.Bin)) {
		return fmt.Errorf("program %q of package %q is not a name; give the name of one of its programs", w.Bin, mask(w.Package))
	}
	if w.Python != "" && (w.Python[0] == '-' || !printable(w.Python)) {
		return fmt.Errorf("python %q is neither a version nor a path; give one such as 3.12", w.Python)
	}
	return nil
}

func (w *Wanted) checkSpec(spec string) error {
	name := mask(spec)
	switch {
	case spec == "":
		return fmt.Errorf("a package has no name; name it after %s", w.tool())
	case len(spec) > maxSpec:
		return fmt.Errorf("package %.40q... is longer than %d bytes", name, maxSpec)
	case !printable(spec) || strings.TrimSpace(spec) != spec || spec[0] == '-':
		return fmt.Errorf("package %q is not a package's name; mend it after %s", name, w.tool())
	case local(spec):
		return fmt.Errorf("package %q is a local file or folder, which can't be pinned; set the command to the program itself", name)
	}
	if remote(spec) {
		if w.Kind == Python && !w.AllowScripts && !strings.HasSuffix(strings.SplitN(spec, "#", 2)[0], ".whl") {
			return fmt.Errorf("package %q is source code that is built on this machine, outside of the sandbox; name a released version, or allow install scripts: %w", name, ErrScripts)
		}
		return nil
	}
	if w.Kind == NPM {
		n, _ := splitNPM(spec)
		if npmName.MatchString(n) || strings.Count(spec, "/") == 1 && spec[0] != '@' { // user/repo
			return nil
		}
	} else if n := pyName.FindString(spec); n != "" && pyRest.MatchString(spec[len(n):]) {
		return nil
	}
	return fmt.Errorf("package %q is not a package's name; mend it after %s", name, w.tool())
}

func (w *Wanted) tool() string {
	if w.Tool != "" {
		return w.Tool
	}
	return string(w.Kind)
}

func (w *Wanted) specs() []string { return append([]string{w.Package}, w.Extra...) }

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func local(spec string) bool {
	return strings.HasPrefix(spec, ".") || strings.HasPrefix(spec, "/") || strings.HasPrefix(spec, "~") ||
		strings.HasPrefix(spec, `\`) || windowsAt.MatchString(spec) || strings.Contains(spec, "file:")
}

func remote(spec string) bool {
	return strings.Contains(spec, "://") || strings.HasPrefix(spec, "git@") ||
		slices.ContainsFunc([]string{"github:", "gitlab:", "bitbucket:", "gist:"}, func(p string) bool { return strings.HasPrefix(spec, p) })
}

// splitNPM splits name@version; the first @ of a scope is part of the name.
func splitNPM(spec string) (name, version string) {
	at := strings.LastIndex(spec, "@")
	if i := strings.Index(spec[1:], "@"); i >= 0 {
		at = i + 1 // an alias has an @ in its version
	}
	if at <= 0 {
		return spec, ""
	}
	return spec[:at], spec[at+1:]
}

// atToEquals turns uvx's own name@version into a requirement.
func atToEquals(spec string) string {
	if remote(spec) {
		return spec
	}
	name, v, ok := strings.Cut(spec, "@")
	switch {
	case !ok:
		return spec
	case v == "latest":
		return name
	case version.MatchString(v):
		return name + "==" + v
	}
	return spec
}

// requirementName is the project that a requirement names, as indexes spell it.
func requirementName(spec string) string {
	if remote(spec) && !strings.Contains(spec, " @ ") {
		return ""
	}
	return strings.ToLower(pyDashes.ReplaceAllString(pyName.FindString(spec), "-"))
}

// splitRequirements splits at commas that are not part of a requirement, as in
// a[x,y]>=1,<2,b.
func splitRequirements(list string) []string {
	var all []string
	depth, from := 0, 0
	for i, r := range list {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			if next := strings.TrimSpace(list[i+1:]); next != "" && strings.ContainsRune("=<>!~", rune(next[0])) {
				continue
			}
			all = append(all, strings.TrimSpace(list[from:i]))
			from = i + 1
		}
	}
	return append(all, strings.TrimSpace(list[from:]))
}

// key names what a wish fetches: the same packages from the same place for the
// same interpreter, whatever program of them is run then.
func (w *Wanted) key() string {
	settings := map[string]string{}
	for _, from := range []map[string]string{w.Env, w.Settings} {
		for name, value := range from {
			if place(name) {
				settings[strings.ToLower(name)] = mask(value) // a new password is not a new place
			}
		}
	}
	toolDir := ""
	if strings.ContainsRune(w.Tool, filepath.Separator) {
		toolDir = filepath.Dir(w.Tool)
	}
	b, err := json.Marshal([]any{
		1, w.Kind, w.specs(), w.Python, w.AllowScripts, toolDir, w.Env["PATH"], runtime.GOOS, runtime.GOARCH,
		slices.Sorted(maps.Keys(settings)), settings,
	})
	if err != nil {
		panic(err) // strings and maps of them
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:10])
}
