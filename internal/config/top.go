package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	separatorPattern = regexp.MustCompile(`^[_.-]{1,4}$`)
	originPattern    = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#@\s\\]+$`)
)

// config reads a tine.yaml.
func (d *decoder) config(root *Node, c *Config) {
	if root.Shape != ShapeMap && root.Shape != ShapeNull {
		d.fail(root.Pos, "want a map of keys such as servers and listen, got %s", root.Shown())
		return
	}
	// Keys that start with x- are a place for anchors and other notes.
	keys := MapNode()
	keys.Pos = root.Pos
	for _, p := range root.Pairs {
		if !strings.HasPrefix(p.Key, "x-") {
			keys.Pairs = append(keys.Pairs, p)
		}
	}
	for _, p := range keys.Pairs {
		if p.Key == "servers" {
			continue
		}
		for _, m := range d.resolve(p.Value, p.Key) {
			d.fail(m.pos, "%s: %s; %s", m.path, m.what, m.mend)
		}
		d.notAtStart(p.Value, p.Key)
	}
	o, ok := d.object(keys, "", c.hidden, topTable.Names())
	if !ok {
		return
	}
	// What stands between server and name is in patterns of both.
	topTable.Read(o, c, "separator")
	d.separator = c.Separator
	topTable.Read(o, c, slices.DeleteFunc(topTable.Names(), func(key string) bool { return key == "separator" })...)
	d.together(o, c)
	if n := o.n.Get("servers"); n != nil {
		d.servers(n, c)
	}
}

// together checks what the keys of the top say of each other.
func (d *decoder) together(o Object, c *Config) {
	if tls := o.Get("tls"); tls != nil && (c.TLS.Cert == "") != (c.TLS.Key == "") && !anyMissing(tls) {
		d.fail(tls.Pos, "tls: cert and key belong together; give both or none")
	}
	d.origins(o, c)
	otlp := o.Below("telemetry").Below("otlp")
	d.otlpEndpoint, d.otlpHeaders = otlp.Get("endpoint") != nil, otlp.Get("headers") != nil
}

func readListen(o Object, key string, dst *string) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	o.d.listenPos = n.Pos
	if n.Shape == ShapeInt {
		o.Wrong(key, n, "%s is only a port; write 127.0.0.1:%s", n.Text, n.Text)
		return false
	}
	if !o.Text(key, dst, DefaultListen) {
		return false
	}
	if err := checkListen(*dst); err != nil {
		o.Wrong(key, n, "%s %v", n.Shown(), err)
		*dst = DefaultListen
	}
	return true
}

// plainURL checks how clients reach Tine.
func plainURL(o Object, key string, dst *string) {
	n := o.Get(key)
	u, err := url.Parse(*dst)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		o.Wrong(key, n, "%s is not an absolute http or https URL; write it like https://tine.example.org", n.Shown())
		*dst = ""
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		o.Wrong(key, n, "must be a plain URL without user, query and fragment; write it like https://tine.example.org")
		*dst = ""
	}
	*dst = strings.TrimRight(*dst, "/")
}

func checkSeparator(o Object, key string, dst *string) {
	if n := o.Get(key); !separatorPattern.MatchString(*dst) {
		o.Wrong(key, n, "%s can't separate; use 1 to 4 of the characters _ - . such as \"__\"", n.Shown())
		*dst = DefaultSeparator
	}
}

func anyMissing(n *Node) bool {
	for _, p := range n.Pairs {
		if p.Value.Missing {
			return true
		}
	}
	return false
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("is not host:port; write it like %s or [::1]:8463", DefaultListen)
	}
	if p, err := strconv.Atoi(port); err != nil || p < 0 || p > 65535 {
		return fmt.Errorf("has no port from 0 to 65535; write it like %s", DefaultListen)
	}
	if strings.ContainsAny(host, "/ \t@") {
		return fmt.Errorf("has no valid host; write it like %s", DefaultListen)
	}
	return nil
}

// checkWhole looks at what can only be seen when everything is read.
func (d *decoder) checkWhole(c *Config) {
	ids := make([]string, 0, len(c.Servers))
	found := false
	for i := range c.Servers {
		ids = append(ids, c.Servers[i].ID)
		found = found || c.Servers[i].ID == c.DefaultView
	}
	if n := d.defaultView; n != nil && !found && c.DefaultView != "" {
		msg := "default_view: there is no server " + n.Shown()
		if g := Nearest(c.DefaultView, ids); g != "" {
			msg += fmt.Sprintf("; did you mean %q?", g)
		} else {
			msg += "; name one of servers"
		}
		d.fail(n.Pos, "%s", msg)
	}
	d.checkNamed(c)
	d.checkMembers(c)
	d.checkWorkspace(c)
	d.ownFiles(c)
	d.ownFilesAside(c.files)
	d.ownFilesNotCopied(c)
	d.ownFilesNotOpened(c)
	d.stateAside()
	d.keysNotCopied()
	d.keysSeen(c.files)
	err := c.checkListen(d.opts.OtherAuth)
	if err == nil && !d.opts.OtherAuth { // else Listen may be another one by then
		err = c.checkCleartext()
	}
	if err != nil {
		d.fail(d.listenPos, "%v", err)
	}
}

// CheckExposure refuses an address that others can reach, and pages of any origin,
// when there is no auth, and such an address when tokens would be sent to it in the
// clear. otherAuth says that there are tokens elsewhere than in the config. Load has
// called it unless there is Options.OtherAuth; a caller that changes Listen
// afterwards, or learns of other auth then, calls it again.
func (c *Config) CheckExposure(otherAuth bool) error {
	if err := c.checkListen(otherAuth); err != nil {
		return err
	}
	if err := c.checkCleartext(); err != nil {
		return err
	}
	for i, origin := range c.CORS.Origins {
		if origin == "*" && !otherAuth && !c.HasAuth() {
			return fmt.Errorf(anyOrigin, i)
		}
	}
	return nil
}

// HasAuth reports whether the config itself says who may come in.
func (c *Config) HasAuth() bool { return len(c.Auth.Tokens) > 0 || c.Auth.OIDC != nil }

func (c *Config) checkListen(otherAuth bool) error {
	if err := checkListen(c.Listen); err != nil {
		return fmt.Errorf("listen: %q %w", c.Listen, err)
	}
	if o := c.Auth.OIDC; o != nil && len(o.Audience) == 0 && c.PublicURL == "" && !c.loopback() {
		return errors.New("auth.oidc: nothing says what a token must be for; set audience, or public_url, which is then it")
	}
	if otherAuth || c.HasAuth() {
		return nil
	}
	if !c.loopback() {
		return &ExposedError{why: fmt.Sprintf("listen: %s is not a loopback address, so anyone who reaches it could use every server", c.Listen), or: "listen on " + c.onLoopback()}
	}
	if u, err := url.Parse(c.PublicURL); err == nil && c.PublicURL != "" && !LoopbackHost(u.Hostname()) {
		return &ExposedError{why: fmt.Sprintf("public_url: anyone who reaches %s could use every server", c.PublicURL), or: "remove public_url"}
	}
	return nil
}

// checkCleartext refuses to take tokens off loopback without TLS, unless something
// in front of the gateway speaks it.
func (c *Config) checkCleartext() error {
	if c.loopback() || c.TLS.Cert != "" || c.PublicURL != "" {
		return nil
	}
	return fmt.Errorf("listen: %s is not a loopback address, and tokens would cross the network in the clear; set tls, set public_url where a proxy in front speaks TLS, or listen on %s", c.Listen, c.onLoopback())
}

// An ExposedError is of a gateway that others could reach without a token.
type ExposedError struct {
	why, or string
	// StateFlag is what a command needs to mean the gateway's state folder; empty for
	// nothing.
	StateFlag string
}

func (e *ExposedError) Error() string {
	command := "tine token new NAME"
	if e.StateFlag != "" {
		command += " " + e.StateFlag
	}
	return e.why + "; add auth.tokens or auth.oidc, make a token with: " + command + ", or " + e.or
}

// onLoopback is the address on loopback with the same port.
func (c *Config) onLoopback() string {
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return DefaultListen
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func (c *Config) loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	return LoopbackHost(host)
}
