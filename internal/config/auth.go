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

func (d *decoder) access(o Object, c *Config) {
	if a, ok := o.Child("auth", authKeys); ok {
		d.tokens(a, c)
		d.oidc(a, c)
		d.rules(a, c)
	}
	cors, ok := o.Child("cors", []string{"origins"})
	if !ok || !cors.Texts("origins", &c.CORS.Origins, `["https://app.example.org"]`) {
		return
	}
	for i, item := range cors.n.Get("origins").Items {
		if i >= len(c.CORS.Origins) || item.Missing {
			continue
		}
		origin := strings.ToLower(c.CORS.Origins[i])
		switch {
		case origin == "*" && !c.HasAuth() && !d.opts.OtherAuth:
			d.fail(item.Pos, anyOrigin, i)
		case origin != "*" && !originPattern.MatchString(origin):
			d.fail(item.Pos, "cors.origins[%d]: %s is not an origin; write scheme://host or scheme://host:port without a path, like https://app.example.org, or \"*\"", i, item.Shown())
		}
		c.CORS.Origins[i] = origin
	}
}

func (d *decoder) tokens(a Object, c *Config) {
	list, ok := a.Lookup("tokens")
	if !ok {
		return
	}
	if list.Shape != ShapeList && list.Shape != ShapeNull {
		a.Wrong("tokens", list, "want a list, got %s; write tokens: [{name: laptop, token: \"${TINE_TOKEN}\"}]", list.Shape)
		return
	}
	names, holders := map[string]bool{}, map[string]string{}
	for i, item := range list.Items {
		e, ok := d.object(item, fmt.Sprintf("auth.tokens[%d]", i), a.hidden, tokenKeys)
		if !ok {
			continue
		}
		e.rel = fmt.Sprintf("auth.tokens.%d", i)
		t := Token{Role: roles[0]}
		hasName := e.Text("name", &t.Name, "laptop")
		switch name := e.n.Get("name"); {
		case name == nil:
			d.fail(item.Pos, "%s: name is missing; it says who comes with this token", e.Path)
		case hasName && !tokenNamePattern.MatchString(t.Name):
			e.Wrong("name", name, "%s is not a name; use 1 to 64 letters, digits, dots, dashes, underscores and @", name.Shown())
		case names[t.Name]:
			e.Wrong("name", name, "%q stands twice; give each token its own name", t.Name)
		}
		names[t.Name] = hasName
		e.OneOf("role", &t.Role, roles...)
		d.tokenValue(e, item.Pos, &t, holders)
		c.Auth.Tokens = append(c.Auth.Tokens, t)
	}
}

// tokenValue reads the token or its hash. holders are the names of those before
// by their hash.
func (d *decoder) tokenValue(e Object, at Pos, t *Token, holders map[string]string) {
	hasToken, hasHash := e.Text("token", &t.Token, `"${TINE_TOKEN}"`), e.Text("hash", &t.Hash, `"sha256:..."`)
	token, hash := e.n.Get("token"), e.n.Get("hash")
	key, sum := "token", ""
	switch {
	case token == nil && hash == nil:
		d.fail(at, "%s: token is missing; make one with: tine token new, and give it here or its hash", e.Path)
	case token != nil && hash != nil:
		d.fail(e.KeyPos("hash"), "%s: token and hash exclude each other; keep hash", e.Path)
	case hasHash:
		t.Hash = strings.ToLower(t.Hash)
		if key, sum = "hash", t.Hash; !hashPattern.MatchString(sum) {
			e.Wrong("hash", hash, "is not the hash of a token; write sha256: and 64 hexadecimal digits, as tine token new prints it")
			return
		}
	case !hasToken:
	case len(t.Token) < minToken:
		e.Wrong("token", token, "a token needs at least %d characters, this has %d; make one with: openssl rand -hex 24", minToken, len(t.Token))
	case !tokenPattern.MatchString(t.Token):
		e.Wrong("token", token, "only visible ASCII characters without spaces can be sent as a bearer token")
	default:
		digest := sha256.Sum256([]byte(t.Token))
		sum = "sha256:" + hex.EncodeToString(digest[:])
	}
	if sum == "" {
		return
	}
	if other, ok := holders[sum]; ok {
		e.Wrong(key, e.n.Get(key), "the same token as %q has; each needs its own", other)
		return
	}
	holders[sum] = t.Name
}

func (d *decoder) oidc(a Object, c *Config) {
	o, ok := a.Child("oidc", oidcKeys)
	if !ok || a.n.Get("oidc").Shape == ShapeNull {
		return
	}
	// Whatever is wrong with it, it is there, and nothing else has to be said
	// about a gateway without auth.
	oidc := &OIDC{Principal: "sub", Algorithms: slices.Clone(algorithms)}
	c.Auth.OIDC = oidc
	if o.n.Get("issuer") == nil {
		d.fail(o.n.Pos, "%s: issuer is missing; it is the URL that tokens have as iss", o.Path)
	} else if o.secretURL("issuer", &oidc.Issuer, "https://login.example.org") {
		if u, err := url.Parse(oidc.Issuer); err != nil || u.RawQuery != "" {
			o.Wrong("issuer", o.n.Get("issuer"), "must be a URL without a query; write it like https://login.example.org")
		}
	}
	if o.oneOrMore("audience", &oidc.Audience, false, "[https://tine.example.org]") {
		for _, it := range o.Items("audience", false) {
			if it.Text == "" {
				d.fail(it.Pos, "%s: is empty; leave it out to want the URL that is called", it.Path)
			}
		}
	}
	o.scopes("scopes", &oidc.Scopes)
	if o.Text("principal", &oidc.Principal, "email") && oidc.Principal == "" {
		o.Wrong("principal", o.n.Get("principal"), "is empty; name the claim that says who it is, such as sub or email")
	}
	d.algorithms(o, oidc)
	if o.Text("ca_file", &oidc.CAFile, "ca.pem") {
		oidc.CAFile = d.res.paths.resolve(oidc.CAFile)
	}
}

func (d *decoder) algorithms(o Object, oidc *OIDC) {
	if o.EmptyList("algorithms", "an empty list would let no token through; leave it out for all that are safe") {
		return
	}
	if !o.Texts("algorithms", &oidc.Algorithms, "[RS256, ES256]") {
		return
	}
	before := len(d.problems)
	for _, it := range o.Items("algorithms", false) {
		switch {
		case strings.EqualFold(it.Text, "none"):
			d.fail(it.Pos, "%s: %s would let in tokens that nobody signed; remove it", it.Path, it.Shown)
		case strings.HasPrefix(strings.ToUpper(it.Text), "HS"):
			d.fail(it.Pos, "%s: %s is symmetric, so that whoever can check a token could make one; remove it", it.Path, it.Shown)
		}
	}
	if len(d.problems) == before {
		o.words("algorithms", algorithms)
	}
}
