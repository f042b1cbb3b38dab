package packages

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
)

// A mend is what an installer says when something is wrong, what that is, and
// what to do. The first that fits is taken.
type mend struct {
	signs []string // in lower case
	kind  error
	do    string
}

var mends = []mend{
	{[]string{"enospc", "no space left"}, ErrLimit, "free some space on the disk of the state folder"},
	{[]string{"e401", "e403", "eneedauth", "401 client error", "403 client error", "401 unauthorized", "403 forbidden", "lack of valid authentication"},
		ErrUnreachable, "the registry wants a login: check ~/.npmrc, pip.conf or the index's URL"},
	{[]string{"self_signed_cert", "unable_to_get_issuer", "unable_to_verify", "certificate_verify_failed", "certificate verify failed", "unknownissuer", "invalid peer certificate"},
		ErrUnreachable, "the registry's certificate is not trusted: set NODE_EXTRA_CA_CERTS (npm) or SSL_CERT_FILE (pip, uv)"},
	{[]string{"enotfound", "eai_again", "econnrefused", "econnreset", "etimedout", "ehostunreach", "enetunreach", "failed to establish a new connection",
		"max retries exceeded", "connecttimeout", "read timed out", "dns error", "error sending request", "could not connect", "proxyerror", "could not resolve host", "tunneling socket"},
		ErrUnreachable, "the registry can't be reached: check the network, HTTPS_PROXY, npm_config_registry or PIP_INDEX_URL"},
	{[]string{"setup.py", "metadata-generation-failed", "failed to build", "building source distributions is disabled", "no usable wheels", "no wheels with a matching"},
		ErrScripts, "it has no wheel for this Python and machine: use another version or Python, or allow install scripts"},
	{[]string{"etarget", "no matching version found"}, ErrNotFound, "there is no such version: check it"},
	{[]string{"e404", "404 not found", "was not found in the package registry", "einvalidpackagename"}, ErrNotFound, "there is no such package: check its name and the registry"},
	{[]string{"requires a different python", "require a different python", "requires-python", "does not satisfy python"}, nil,
		"it wants another Python: name one that is installed with --python in its args, as in uvx --python 3.13 PACKAGE, or use another version of the package"},
	{[]string{"no matching distribution found", "could not find a version", "no versions of", "there is no version of", "no solution found"},
		ErrNotFound, "there is no such package or version with a wheel for this Python: check name, version and Python, or allow install scripts"},
	{[]string{"ebadengine", "unsupported engine"}, nil, "it wants another Node.js: install that, or use another version of the package"},
	{[]string{"no interpreter found", "no virtual environment"}, ErrNoTool, "install that Python, or leave --python out"},
	{[]string{"ensurepip is not", "no module named ensurepip", "no module named venv", "no module named pip"}, ErrNoTool, "this Python can't make environments: install python3-venv, or uv"},
	{[]string{"enoent spawn git", "git: not found", "cannot find command 'git'", "git executable not found", "unknown git error", "spawn git"}, ErrNoTool, "install git: the package comes from a repository"},
}

// explain makes the error of a step that failed from what it printed.
func explain(ctx context.Context, w Wanted, step string, out *output, err error) error {
	name := mask(w.Package)
	if ctx.Err() != nil {
		// Limits are causes; they say what to do.
		return fmt.Errorf("fetch package %q: %w", name, context.Cause(ctx))
	}
	lines := out.tail()
	text := strings.ToLower(strings.Join(lines, "\n"))
	do, kind := "see what it says", error(nil)
	for _, m := range mends {
		if containsAny(text, m.signs) {
			do, kind = m.do, m.kind
			break
		}
	}
	return driver.WithWords(&fetchError{
		text: fmt.Sprintf("fetch package %q: %s failed (%v); %s", name, step, err, do),
		kind: errors.Join(kind, err),
	}, driver.LastWords(strings.Join(lines, "\n")))
}

func containsAny(text string, signs []string) bool {
	for _, sign := range signs {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// fetchError is the error of a fetch in our own words.
type fetchError struct {
	text  string
	again string // whether another try can help
	kind  error
}

func (e *fetchError) Error() string { return e.text + e.again }
func (e *fetchError) Unwrap() error { return e.kind }
