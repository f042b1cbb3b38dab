package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var topKeys = []string{
	"listen", "public_url", "tls", "cors", "auth", "limits", "log",
	"separator", "long_names", "default_view", "servers",
}

var (
	separatorPattern = regexp.MustCompile(`^[_.-]{1,4}$`)
	tokenNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$`)
	tokenPattern     = regexp.MustCompile(`^[\x21-\x7e]+$`)
	originPattern    = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#@\s\\]+$`)
)

const minToken = 16

// config reads a tine.yaml.
func (d *decoder) config(root *node, c *Config) {
	if root.kind != kindMap && root.kind != kindNull {
		d.fail(root.pos, "want a map of keys such as servers and listen, got %s", root.shown())
		return
	}
	// Keys that start with x- are a place for anchors and other notes.
	keys := mapNode()
	keys.pos = root.pos
	for _, p := range root.pairs {
		if !strings.HasPrefix(p.key, "x-") {
			keys.pairs = append(keys.pairs, p)
		}
	}
	for _, p := range keys.pairs {
		if p.key == "servers" {
			continue
		}
		for _, m := range d.resolve(p.value, p.key) {
			d.fail(m.pos, "%s: %s; %s", m.path, m.what, m.mend)
		}
	}
	o, ok := d.object(keys, "", c.hidden, topKeys)
	if !ok {
		return
	}
	d.address(o, c)
	d.access(o, c)
	d.limits(o, c)
	d.naming(o, c)
	if l, ok := o.child("log", []string{"level", "format"}); ok {
		l.oneOf("level", &c.Log.Level, "debug", "info", "warn", "error")
		l.oneOf("format", &c.Log.Format, "text", "json")
	}
	if n := o.n.get("servers"); n != nil {
		d.servers(n, c)
	}
}

func (d *decoder) address(o object, c *Config) {
	if n, ok := o.lookup("listen"); ok {
		d.listenPos = n.pos
		if n.kind == kindInt {
			o.wrong("listen", n, "%s is only a port; write 127.0.0.1:%s", n.text, n.text)
		} else if o.text("listen", &c.Listen, DefaultListen) {
			if err := checkListen(c.Listen); err != nil {
				o.wrong("listen", n, "%s %v", n.shown(), err)
				c.Listen = DefaultListen
			}
		}
	}
	if n, ok := o.lookup("public_url"); ok && o.text("public_url", &c.PublicURL, "https://tine.example.org") {
		u, err := url.Parse(c.PublicURL)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			o.wrong("public_url", n, "%s is not an absolute http or https URL; write it like https://tine.example.org", n.quoted())
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			o.wrong("public_url", n, "must be a plain URL without user, query and fragment; write it like https://tine.example.org")
		}
		c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	}
	if t, ok := o.child("tls", []string{"cert", "key"}); ok {
		cert := t.text("cert", &c.TLS.Cert, "cert.pem")
		key := t.text("key", &c.TLS.Key, "key.pem")
		c.TLS.Cert, c.TLS.Key = d.res.paths.resolve(c.TLS.Cert), d.res.paths.resolve(c.TLS.Key)
		if cert != key && !anyMissing(t.n) {
			d.fail(o.n.get("tls").pos, "tls: cert and key belong together; give both or none")
		}
	}
}

func anyMissing(n *node) bool {
	for _, p := range n.pairs {
		if p.value.missing {
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

func (d *decoder) access(o object, c *Config) {
	if a, ok := o.child("auth", []string{"tokens"}); ok {
		d.tokens(a, c)
	}
	cors, ok := o.child("cors", []string{"origins"})
	if !ok || !cors.texts("origins", &c.CORS.Origins, `["https://app.example.org"]`) {
		return
	}
	for i, item := range cors.n.get("origins").items {
		if i >= len(c.CORS.Origins) || item.missing {
			continue
		}
		origin := strings.ToLower(c.CORS.Origins[i])
		switch {
		case origin == "*" && len(c.Auth.Tokens) == 0:
			d.fail(item.pos, "cors.origins[%d]: \"*\" without auth.tokens would let every web page that is open in a browser here use every server; name the origins, or add auth.tokens", i)
		case origin != "*" && !originPattern.MatchString(origin):
			d.fail(item.pos, "cors.origins[%d]: %s is not an origin; write scheme://host or scheme://host:port without a path, like https://app.example.org, or \"*\"", i, item.shown())
		}
		c.CORS.Origins[i] = origin
	}
}

func (d *decoder) tokens(a object, c *Config) {
	list, ok := a.lookup("tokens")
	if !ok {
		return
	}
	if list.kind != kindList && list.kind != kindNull {
		a.wrong("tokens", list, "want a list, got %s; write tokens: [{name: laptop, token: \"${TINE_TOKEN}\"}]", list.kind)
		return
	}
	names, values := map[string]bool{}, map[string]string{}
	for i, item := range list.items {
		path := fmt.Sprintf("auth.tokens[%d]", i)
		e, ok := d.object(item, path, a.hidden, []string{"name", "token"})
		if !ok {
			continue
		}
		e.rel = fmt.Sprintf("auth.tokens.%d", i)
		var t Token
		hasName, hasToken := e.text("name", &t.Name, "laptop"), e.text("token", &t.Token, `"${TINE_TOKEN}"`)
		at := func(key string) pos { return e.n.get(key).pos }
		switch {
		case !hasName && e.n.get("name") == nil:
			d.fail(item.pos, "%s: name is missing; it says who comes with this token", path)
		case hasName && !tokenNamePattern.MatchString(t.Name):
			d.fail(at("name"), "%s.name: %s is not a name; use 1 to 64 letters, digits, dots, dashes, underscores and @", path, e.n.get("name").shown())
		case names[t.Name]:
			d.fail(at("name"), "%s.name: %q stands twice; give each token its own name", path, t.Name)
		}
		switch {
		case !hasToken && e.n.get("token") == nil:
			d.fail(item.pos, "%s: token is missing; make one with: openssl rand -hex 24", path)
		case !hasToken:
		case len(t.Token) < minToken:
			d.fail(at("token"), "%s.token: a token needs at least %d characters, this has %d; make one with: openssl rand -hex 24", path, minToken, len(t.Token))
		case !tokenPattern.MatchString(t.Token):
			d.fail(at("token"), "%s.token: only visible ASCII characters without spaces can be sent as a bearer token", path)
		case values[t.Token] != "":
			d.fail(at("token"), "%s.token: the same token as %q has; each needs its own", path, values[t.Token])
		default:
			values[t.Token] = t.Name
		}
		names[t.Name] = hasName
		c.Auth.Tokens = append(c.Auth.Tokens, t)
	}
}

func (d *decoder) limits(o object, c *Config) {
	l, ok := o.child("limits", []string{"body", "header", "message", "connections", "calls", "list_wait", "idle", "drain"})
	if !ok {
		return
	}
	l.size("body", &c.Limits.Body, 1<<10, 1<<30)
	header := int64(c.Limits.Header)
	l.size("header", &header, 4<<10, 16<<20)
	c.Limits.Header = int(header)
	l.size("message", &c.Limits.Message, 1<<10, 1<<30)
	l.integer("connections", &c.Limits.Connections, 1, 1_000_000)
	l.integer("calls", &c.Limits.Calls, 1, 1_000_000)
	l.duration("list_wait", &c.Limits.ListWait, 10*time.Millisecond, 10*time.Minute)
	l.duration("idle", &c.Limits.Idle, time.Second, 30*24*time.Hour)
	l.duration("drain", &c.Limits.Drain, 0, time.Hour)
}

func (d *decoder) naming(o object, c *Config) {
	if n, ok := o.lookup("separator"); ok && o.text("separator", &c.Separator, `"__"`) {
		if !separatorPattern.MatchString(c.Separator) {
			o.wrong("separator", n, "%s can't separate; use 1 to 4 of the characters _ - . such as \"__\"", n.shown())
			c.Separator = DefaultSeparator
		}
	}
	d.separator = c.Separator
	o.oneOf("long_names", &c.LongNames, "keep", "shorten")
	if n, ok := o.lookup("default_view"); ok && o.text("default_view", &c.DefaultView, "fs") {
		d.defaultView = n
	}
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
		msg := "default_view: there is no server " + n.shown()
		if g := nearest(c.DefaultView, ids); g != "" {
			msg += fmt.Sprintf("; did you mean %q?", g)
		} else {
			msg += "; name one of servers"
		}
		d.fail(n.pos, "%s", msg)
	}
	if err := c.CheckExposure(); err != nil {
		d.fail(d.listenPos, "%v", err)
	} else if !c.loopback() && c.TLS.Cert == "" && c.PublicURL == "" {
		d.warn(d.listenPos, "listen: tokens cross the network unencrypted at %s; set tls, or public_url when a proxy in front speaks TLS", c.Listen)
	}
}

// CheckExposure refuses an address that others can reach when there is no auth.
// Load has called it; whoever changes Listen afterwards calls it again.
func (c *Config) CheckExposure() error {
	if err := checkListen(c.Listen); err != nil {
		return fmt.Errorf("listen: %q %w", c.Listen, err)
	}
	if c.loopback() || len(c.Auth.Tokens) > 0 {
		return nil
	}
	return fmt.Errorf("listen: %s is not a loopback address, so anyone who reaches it could use every server; add auth.tokens, or listen on %s", c.Listen, DefaultListen)
}

func (c *Config) loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
