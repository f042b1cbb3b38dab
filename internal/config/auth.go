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
	// A colon would let a token pass for a principal of an issuer, which Tine calls oidc:NAME.
	tokenNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$`)
	tokenPattern     = regexp.MustCompile(`^[\x21-\x7e]+$`)
	hashPattern      = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

const (
	minToken  = 16
	anyOrigin = "cors.origins[%d]: \"*\" without auth would let every web page that is open in a browser here use every server; name the origins, or add auth.tokens or auth.oidc"
)

// origins checks which web pages may call Tine.
func (d *decoder) origins(o Object, c *Config) {
	cors := o.Get("cors")
	if cors == nil || cors.Get("origins") == nil {
		return
	}
	for i, item := range cors.Get("origins").Items {
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

func readTokens(a Object, key string, to *[]Token) bool {
	list, ok := a.Lookup(key)
	if !ok {
		return false
	}
	if list.Shape != ShapeList && list.Shape != ShapeNull {
		a.Wrong(key, list, "want a list, got %s; write tokens: [{name: laptop, token: \"${TINE_TOKEN}\"}]", list.Shape)
		return false
	}
	d := a.d
	names, holders := map[string]bool{}, map[string]string{}
	for i, item := range list.Items {
		e, ok := d.object(item, fmt.Sprintf("auth.tokens[%d]", i), a.hidden, tokenTable.Names())
		if !ok {
			continue
		}
		e.rel = fmt.Sprintf("auth.tokens.%d", i)
		t := Token{}
		tokenTable.Begin(&t)
		tokenTable.Read(e, &t)
		hasName := t.Name != "" || e.n.Get("name") != nil && e.n.Get("name").Shape == ShapeString
		switch name := e.n.Get("name"); {
		case name == nil:
			d.fail(item.Pos, "%s: name is missing; it says who comes with this token", e.Path)
		case hasName && !tokenNamePattern.MatchString(t.Name):
			e.Wrong("name", name, "%s is not a name; use 1 to 64 letters, digits, dots, dashes, underscores and @", name.Shown())
		case names[t.Name]:
			e.Wrong("name", name, "%q stands twice; give each token its own name", t.Name)
		}
		names[t.Name] = hasName
		d.tokenValue(e, item.Pos, &t, holders)
		*to = append(*to, t)
	}
	return true
}

// tokenValue checks the token or its hash. holders are the names of those before
// by their hash.
func (d *decoder) tokenValue(e Object, at Pos, t *Token, holders map[string]string) {
	token, hash := e.n.Get("token"), e.n.Get("hash")
	hasToken, hasHash := token != nil && !e.Lacks("token"), hash != nil && !e.Lacks("hash")
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

func readOIDC(a Object, key string, to **OIDC) bool {
	o, ok := a.Child(key, oidcTable.Names())
	if !ok || a.n.Get(key).Shape == ShapeNull {
		return false
	}
	// Whatever is wrong with it, it is there, and nothing else has to be said
	// about a gateway without auth.
	oidc := &OIDC{Algorithms: slices.Clone(algorithms)}
	oidcTable.Begin(oidc)
	*to = oidc
	if o.n.Get("issuer") == nil {
		o.Fail(o.n.Pos, "%s: issuer is missing; it is the URL that tokens have as iss", o.Path)
	}
	oidcTable.Read(o, oidc)
	return true
}

func noQuery(o Object, key string, dst *string) {
	if u, err := url.Parse(*dst); err != nil || u.RawQuery != "" {
		o.Wrong(key, o.Get(key), "must be a URL without a query; write it like https://login.example.org")
	}
}

func noEmptyAudience(o Object, key string, _ *[]string) {
	for _, it := range o.Items(key, false) {
		if it.Text == "" {
			o.Fail(it.Pos, "%s: is empty; leave it out to want the URL that is called", it.Path)
		}
	}
}

func noEmptyClaim(o Object, key string, dst *string) {
	if *dst == "" {
		o.Wrong(key, o.Get(key), "is empty; name the claim that says who it is, such as sub or email")
	}
}

func readAlgorithms(o Object, key string, dst *[]string) bool {
	if o.EmptyList(key, "an empty list would let no token through; leave it out for all that are safe") || !o.Texts(key, dst, "[RS256, ES256]") {
		return false
	}
	d := o.d
	before := len(d.problems)
	for _, it := range o.Items(key, false) {
		switch {
		case strings.EqualFold(it.Text, "none"):
			d.fail(it.Pos, "%s: %s would let in unsigned tokens; remove it", it.Path, it.Shown)
		case strings.HasPrefix(strings.ToUpper(it.Text), "HS"):
			d.fail(it.Pos, "%s: %s is symmetric, so a server that can check a token could make one; remove it", it.Path, it.Shown)
		}
	}
	if len(d.problems) == before {
		o.words(key, algorithms)
	}
	return true
}
