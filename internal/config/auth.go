package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	authKeys  = []string{"tokens", "oidc", "rules"}
	tokenKeys = []string{"name", "token", "hash", "role"}
	oidcKeys  = []string{"issuer", "audience", "scopes", "principal", "algorithms", "ca_file"}
)

var (
	// A colon would let a token pass for somebody of an issuer, whom Tine calls
	// oidc:NAME.
	tokenNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$`)
	tokenPattern     = regexp.MustCompile(`^[\x21-\x7e]+$`)
	hashPattern      = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

const (
	minToken  = 16
	anyOrigin = "cors.origins[%d]: \"*\" without auth would let every web page that is open in a browser here use every server; name the origins, or add auth.tokens or auth.oidc"
)

func (d *decoder) access(o object, c *Config) {
	if a, ok := o.child("auth", authKeys); ok {
		d.tokens(a, c)
		d.oidc(a, c)
		d.rules(a, c)
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
		case origin == "*" && !c.HasAuth() && !d.opts.OtherAuth:
			d.fail(item.pos, anyOrigin, i)
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
	names, holders := map[string]bool{}, map[string]string{}
	for i, item := range list.items {
		e, ok := d.object(item, fmt.Sprintf("auth.tokens[%d]", i), a.hidden, tokenKeys)
		if !ok {
			continue
		}
		e.rel = fmt.Sprintf("auth.tokens.%d", i)
		t := Token{Role: roles[0]}
		hasName := e.text("name", &t.Name, "laptop")
		switch name := e.n.get("name"); {
		case name == nil:
			d.fail(item.pos, "%s: name is missing; it says who comes with this token", e.path)
		case hasName && !tokenNamePattern.MatchString(t.Name):
			e.wrong("name", name, "%s is not a name; use 1 to 64 letters, digits, dots, dashes, underscores and @", name.shown())
		case names[t.Name]:
			e.wrong("name", name, "%q stands twice; give each token its own name", t.Name)
		}
		names[t.Name] = hasName
		e.oneOf("role", &t.Role, roles...)
		d.tokenValue(e, item.pos, &t, holders)
		c.Auth.Tokens = append(c.Auth.Tokens, t)
	}
}

// tokenValue reads the token or its hash. holders are the names of those before
// by their hash.
func (d *decoder) tokenValue(e object, at pos, t *Token, holders map[string]string) {
	hasToken, hasHash := e.text("token", &t.Token, `"${TINE_TOKEN}"`), e.text("hash", &t.Hash, `"sha256:..."`)
	token, hash := e.n.get("token"), e.n.get("hash")
	key, sum := "token", ""
	switch {
	case token == nil && hash == nil:
		d.fail(at, "%s: token is missing; make one with: tine token new, and give it here or its hash", e.path)
	case token != nil && hash != nil:
		d.fail(e.keyPos("hash"), "%s: token and hash exclude each other; keep hash", e.path)
	case hasHash:
		t.Hash = strings.ToLower(t.Hash)
		if key, sum = "hash", t.Hash; !hashPattern.MatchString(sum) {
			e.wrong("hash", hash, "is not the hash of a token; write sha256: and 64 hexadecimal digits, as tine token new prints it")
			return
		}
	case !hasToken:
	case len(t.Token) < minToken:
		e.wrong("token", token, "a token needs at least %d characters, this has %d; make one with: openssl rand -hex 24", minToken, len(t.Token))
	case !tokenPattern.MatchString(t.Token):
		e.wrong("token", token, "only visible ASCII characters without spaces can be sent as a bearer token")
	default:
		digest := sha256.Sum256([]byte(t.Token))
		sum = "sha256:" + hex.EncodeToString(digest[:])
	}
	if sum == "" {
		return
	}
	if other, ok := holders[sum]; ok {
		e.wrong(key, e.n.get(key), "the same token as %q has; each needs its own", other)
		return
	}
	holders[sum] = t.Name
}

func (d *decoder) oidc(a object, c *Config) {
	o, ok := a.child("oidc", oidcKeys)
	if !ok || a.n.get("oidc").kind == kindNull {
		return
	}
	// Whatever is wrong with it, it is there, and nothing else has to be said
	// about a gateway without auth.
	oidc := &OIDC{Principal: "sub", Algorithms: slices.Clone(algorithms)}
	c.Auth.OIDC = oidc
	if o.n.get("issuer") == nil {
		d.fail(o.n.pos, "%s: issuer is missing; it is the URL that tokens have as iss", o.path)
	} else if o.secretURL("issuer", &oidc.Issuer, "https://login.example.org") {
		if u, err := url.Parse(oidc.Issuer); err != nil || u.RawQuery != "" {
			o.wrong("issuer", o.n.get("issuer"), "must be a URL without a query; write it like https://login.example.org")
		}
	}
	if o.oneOrMore("audience", &oidc.Audience, false, "[https://tine.example.org]") {
		for _, it := range o.items("audience", false) {
			if it.text == "" {
				d.fail(it.pos, "%s: is empty; leave it out to want the URL that is called", it.path)
			}
		}
	}
	o.scopes("scopes", &oidc.Scopes)
	if o.text("principal", &oidc.Principal, "email") && oidc.Principal == "" {
		o.wrong("principal", o.n.get("principal"), "is empty; name the claim that says who it is, such as sub or email")
	}
	d.algorithms(o, oidc)
	if o.text("ca_file", &oidc.CAFile, "ca.pem") {
		oidc.CAFile = d.res.paths.resolve(oidc.CAFile)
	}
}

func (d *decoder) algorithms(o object, oidc *OIDC) {
	if o.emptyList("algorithms", "an empty list would let no token through; leave it out for all that are safe") {
		return
	}
	if !o.texts("algorithms", &oidc.Algorithms, "[RS256, ES256]") {
		return
	}
	before := len(d.problems)
	for _, it := range o.items("algorithms", false) {
		switch {
		case strings.EqualFold(it.text, "none"):
			d.fail(it.pos, "%s: %s would let in tokens that nobody signed; remove it", it.path, it.shown)
		case strings.HasPrefix(strings.ToUpper(it.text), "HS"):
			d.fail(it.pos, "%s: %s is symmetric, so that whoever can check a token could make one; remove it", it.path, it.shown)
		}
	}
	if len(d.problems) == before {
		o.words("algorithms", algorithms)
	}
}
