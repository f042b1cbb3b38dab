package identity

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Codes of RFC 6750, as they stand in Refusal.Code.
const (
	codeInvalidToken = "invalid_token"
	codeScope        = "insufficient_scope"
)

// Reasons of a Refusal: few, and fit for a metric's label.
const (
	ReasonMissing   = "missing"   // no token at all
	ReasonMalformed = "malformed" // nothing that could be a token
	ReasonUnknown   = "unknown"   // neither a static nor a signed token
	ReasonRevoked   = "revoked"   // of a session whose owner is refused
	ReasonExpired   = "expired"   // it has expired
	// ReasonUnconfirmed is for a token that came back with a backup.
	ReasonUnconfirmed = "unconfirmed"
	ReasonEarly       = "early"     // not valid yet
	ReasonSignature   = "signature" // wrong algorithm, key or signature
	ReasonIssuer      = "issuer"    // of another issuer
	ReasonAudience    = "audience"  // meant for another resource
	ReasonPrincipal   = "principal" // does not name a principal
	ReasonScope       = "scope"     // lacks a scope
	ReasonDown        = "down"      // the issuer can't be reached
)

// A Refusal says why a caller is not admitted, in words that may be shown to the
// caller: nothing of the token is in it.
type Refusal struct {
	Status     int    // 401, 403 or 503
	Code       string // of RFC 6750; empty where no token was shown
	Reason     string // one of the reasons above
	Message    string
	Scopes     []string      // that a token needs
	RetryAfter time.Duration // with 503
}

func invalid(reason, message string) *Refusal {
	return &Refusal{Status: http.StatusUnauthorized, Code: codeInvalidToken, Reason: reason, Message: message}
}

// Challenge is the value of WWW-Authenticate that goes with the refusal; empty
// with a status that wants none. metadataURL is where the protected resource
// metadata is; empty where there is none.
func (r *Refusal) Challenge(metadataURL string) string {
	if r.Status != http.StatusUnauthorized && r.Status != http.StatusForbidden {
		return ""
	}
	var params []string
	add := func(key, value string) {
		if value != "" {
			params = append(params, key+`="`+value+`"`)
		}
	}
	add("resource_metadata", quotable(metadataURL, `\"`, `\\`))
	if r.Code != "" {
		add("error", r.Code)
		// RFC 6750 allows no quotes or backslashes here, escaped or not.
		add("error_description", quotable(r.Message, "'", "/"))
	}
	var scopes []string
	for _, s := range r.Scopes {
		if s != "" && quotable(s, "", "") == s && !strings.Contains(s, " ") {
			scopes = append(scopes, s)
		}
	}
	add("scope", strings.Join(scopes, " "))
	if len(params) == 0 {
		return "Bearer"
	}
	return "Bearer " + strings.Join(params, ", ")
}

// quotable makes a text fit to stand between quotes in a header.
func quotable(s, quote, backslash string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '"':
			b.WriteString(quote)
		case c == '\\':
			b.WriteString(backslash)
		case c < ' ' || c > '~':
			b.WriteByte('?')
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// Metadata is the protected resource metadata (RFC 9728) of a URL of this
// gateway, which stands in it exactly as given; nil without an issuer.
func (g *Guard) Metadata(resource string) []byte {
	if g.issuer == nil {
		return nil
	}
	doc, err := json.Marshal(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name"`
	}{resource, []string{g.issuer.url}, g.scopes, []string{"header"}, "Tine"})
	if err != nil {
		panic(err) // strings can always be marshalled
	}
	return doc
}
