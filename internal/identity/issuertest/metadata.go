package issuertest

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that left needs no answer
}

// refuse answers as RFC 6749 and RFC 7591 want errors.
func refuse(w http.ResponseWriter, status int, code, description string) {
	writeJSON(w, status, map[string]string{"error": code, "error_description": description})
}

// serveMetadata answers both well-known documents: additional members do no harm.
func (i *Issuer) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{
		"issuer":                                         i.URL(),
		"authorization_endpoint":                         i.AuthorizeURL(),
		"token_endpoint":                                 i.TokenURL(),
		"jwks_uri":                                       i.URL() + "/jwks",
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token", "client_credentials"},
		"subject_types_supported":                        []string{"public"},
		"id_token_signing_alg_values_supported":          []string{i.opts.Algorithm},
		"token_endpoint_auth_methods_supported":          []string{"client_secret_basic", "client_secret_post", "none"},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
	}
	if len(i.opts.Scopes) > 0 {
		doc["scopes_supported"] = i.opts.Scopes
	}
	if i.opts.Registration {
		doc["registration_endpoint"] = i.URL() + "/register"
	}
	writeJSON(w, http.StatusOK, doc)
}

// serveRegister makes a client known by RFC 7591.
func (i *Issuer) serveRegister(w http.ResponseWriter, r *http.Request) {
	if !i.opts.Registration {
		refuse(w, http.StatusForbidden, "access_denied", "this issuer registers no clients")
		return
	}
	var doc map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&doc); err != nil || doc == nil {
		refuse(w, http.StatusBadRequest, "invalid_client_metadata", "the body is not a JSON object")
		return
	}
	c := Client{ID: "dyn-" + rand.Text()[:16]}
	list, _ := doc["redirect_uris"].([]any)
	for _, v := range list {
		redirect, _ := v.(string)
		u, err := url.Parse(redirect)
		if err != nil || !u.IsAbs() || u.Fragment != "" {
			refuse(w, http.StatusBadRequest, "invalid_redirect_uri", "a redirect URI must be absolute and without a fragment")
			return
		}
		c.Redirects = append(c.Redirects, redirect)
	}
	method, _ := doc["token_endpoint_auth_method"].(string)
	switch method {
	case "", "client_secret_basic", "client_secret_post":
		if method == "" {
			doc["token_endpoint_auth_method"] = "client_secret_basic"
		}
		c.Secret = rand.Text()
		doc["client_secret"], doc["client_secret_expires_at"] = c.Secret, 0
	case "none":
	default:
		refuse(w, http.StatusBadRequest, "invalid_client_metadata", "token_endpoint_auth_method must be none, client_secret_basic or client_secret_post")
		return
	}
	i.AddClient(c)
	doc["client_id"], doc["client_id_issued_at"] = c.ID, i.opts.Now().Unix()
	writeJSON(w, http.StatusCreated, doc)
}
