package issuertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/goleak"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// web is a client that keeps no connection and follows no redirect.
func web() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func withWeb(t *testing.T) context.Context { return oidc.ClientContext(t.Context(), web()) }

// approve walks through the authorization endpoint and returns what came to the
// redirect.
func approve(t *testing.T, authURL string) url.Values {
	t.Helper()
	resp, err := web().Get(authURL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		body, _ := io.ReadAll(resp.Body)
		return url.Values{"page": {string(body)}}
	}
	u, err := resp.Location()
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}

func config(iss *issuertest.Issuer, c issuertest.Client, redirect string, scopes ...string) *oauth2.Config {
	return &oauth2.Config{ClientID: c.ID, ClientSecret: c.Secret, RedirectURL: redirect, Scopes: scopes,
		Endpoint: oauth2.Endpoint{AuthURL: iss.AuthorizeURL(), TokenURL: iss.TokenURL()}}
}

func TestCodeFlow(t *testing.T) {
	public := issuertest.Client{ID: "cli", Redirects: []string{"http://127.0.0.1/callback"}}
	secret := issuertest.Client{ID: "web", Secret: "p&ss:w%rd", Redirects: []string{"https://app.example/cb"}}
	iss := issuertest.New(t, issuertest.Options{Path: "/realms/acme", Clients: []issuertest.Client{public, secret},
		Scopes: []string{"tools", "more"}, Claims: map[string]any{"groups": []string{"dev"}}})
	ctx := withWeb(t)
	provider, err := oidc.NewProvider(ctx, iss.URL())
	if err != nil {
		t.Fatal(err)
	}
	if got := provider.Endpoint().TokenURL; got != iss.TokenURL() {
		t.Errorf("the token endpoint is %s", got)
	}
	for _, tt := range []struct {
		client   issuertest.Client
		redirect string
		style    oauth2.AuthStyle
	}{
		{public, "http://127.0.0.1:49152/callback", oauth2.AuthStyleInParams},
		{secret, "https://app.example/cb", oauth2.AuthStyleInHeader},
		{secret, "https://app.example/cb", oauth2.AuthStyleInParams},
	} {
		cfg := config(iss, tt.client, tt.redirect, "openid", "tools", "unheard-of")
		cfg.Endpoint.AuthStyle = tt.style
		verifier := oauth2.GenerateVerifier()
		resource := oauth2.SetAuthURLParam("resource", "https://tine.example/mcp")
		back := approve(t, cfg.AuthCodeURL("s1", oauth2.S256ChallengeOption(verifier), resource))
		if back.Get("state") != "s1" || back.Get("iss") != iss.URL() || back.Get("code") == "" {
			t.Fatalf("%s came back with %v", tt.client.ID, back)
		}
		if _, err := cfg.Exchange(ctx, back.Get("code"), oauth2.VerifierOption(oauth2.GenerateVerifier())); err == nil {
			t.Error("a wrong verifier got a token")
		}
		if _, err := cfg.Exchange(ctx, back.Get("code"), oauth2.VerifierOption(verifier)); err == nil {
			t.Error("a code was good for a second try")
		}
		back = approve(t, cfg.AuthCodeURL("s1", oauth2.S256ChallengeOption(verifier), resource))
		tok, err := cfg.Exchange(ctx, back.Get("code"), oauth2.VerifierOption(verifier), resource)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := iss.Check(tok.AccessToken, "https://tine.example/mcp")
		if err != nil || claims["sub"] != "ada" || claims["scope"] != "openid tools" || claims["client_id"] != tt.client.ID {
			t.Errorf("claims %v: %v", claims, err)
		}
		raw, _ := tok.Extra("id_token").(string)
		if _, err := provider.Verifier(&oidc.Config{ClientID: tt.client.ID}).Verify(ctx, raw); err != nil {
			t.Errorf("id token: %v", err)
		}
		iss.Revoke(tok.AccessToken)
		if _, err := iss.Check(tok.AccessToken, ""); err == nil {
			t.Error("a revoked token passes")
		}
	}
}

func TestAuthorizeRefuses(t *testing.T) {
	client := issuertest.Client{ID: "cli", Redirects: []string{"http://127.0.0.1/cb", "https://app.example/cb"}}
	iss := issuertest.New(t, issuertest.Options{Clients: []issuertest.Client{client}})
	good := url.Values{"client_id": {"cli"}, "redirect_uri": {"https://app.example/cb"}, "response_type": {"code"},
		"code_challenge": {"x"}, "code_challenge_method": {"S256"}, "state": {"s"}}
	for _, tt := range []struct {
		key, value string
		page       bool   // told to the person
		code       string // told to the client
	}{
		{"state", "s", false, ""},
		{"client_id", "other", true, ""},
		{"redirect_uri", "https://app.example/cb/", true, ""},
		{"redirect_uri", "https://app.example:444/cb", true, ""},
		{"redirect_uri", "http://127.0.0.1:1234/cb", false, ""},
		{"redirect_uri", "http://127.0.0.2:1234/cb", true, ""},
		{"redirect_uri", "http://127.0.0.1:1234/cb2", true, ""},
		{"redirect_uri", "", true, ""},
		{"response_type", "token", false, "unsupported_response_type"},
		{"code_challenge", "", false, "invalid_request"},
		{"code_challenge_method", "plain", false, "invalid_request"},
		{"resource", "no-url", false, "invalid_target"},
	} {
		q := url.Values{}
		for k, v := range good {
			q[k] = v
		}
		q.Set(tt.key, tt.value)
		back := approve(t, iss.AuthorizeURL()+"?"+q.Encode())
		if back.Has("page") != tt.page || back.Get("error") != tt.code || !tt.page && back.Get("state") != "s" {
			t.Errorf("%s=%s: %v", tt.key, tt.value, back)
		}
	}
	iss.Deny(true)
	if back := approve(t, iss.AuthorizeURL()+"?"+good.Encode()); back.Get("error") != "access_denied" {
		t.Errorf("a no is %v", back)
	}
}

func TestRefresh(t *testing.T) {
	client := issuertest.Client{ID: "cli", Redirects: []string{"http://localhost/cb"}}
	iss := issuertest.New(t, issuertest.Options{Clients: []issuertest.Client{client}, Lifetime: time.Minute})
	cfg := config(iss, client, "http://localhost:7777/cb")
	cfg.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	ctx := withWeb(t)
	login := func() *oauth2.Token {
		t.Helper()
		verifier := oauth2.GenerateVerifier()
		back := approve(t, cfg.AuthCodeURL("s", oauth2.S256ChallengeOption(verifier)))
		tok, err := cfg.Exchange(ctx, back.Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	renew := func(token string) (*oauth2.Token, error) {
		return cfg.TokenSource(ctx, &oauth2.Token{RefreshToken: token}).Token()
	}
	first := login()
	second, err := renew(first.RefreshToken)
	if err != nil || second.RefreshToken == first.RefreshToken {
		t.Fatalf("refresh: %v", err)
	}
	var refused *oauth2.RetrieveError
	if _, err := renew(first.RefreshToken); !errors.As(err, &refused) || refused.ErrorCode != "invalid_grant" {
		t.Errorf("a refresh token was good twice: %v", err)
	}
	if _, err := renew(second.RefreshToken); err == nil {
		t.Error("the family of a refresh token that was used twice lives on")
	}
	third := login()
	iss.RefuseRefresh(true)
	if _, err := renew(third.RefreshToken); err == nil {
		t.Error("refused refresh tokens work")
	}
	if n := iss.Count(issuertest.Token + ":refresh_token"); n != 4 {
		t.Errorf("%d refreshes were counted", n)
	}
}

func TestClientCredentials(t *testing.T) {
	client := issuertest.Client{ID: "robot", Secret: "beep"}
	iss := issuertest.New(t, issuertest.Options{Clients: []issuertest.Client{client, {ID: "public"}}})
	ctx := withWeb(t)
	cfg := clientcredentials.Config{ClientID: "robot", ClientSecret: "beep", TokenURL: iss.TokenURL(), Scopes: []string{"a", "b"},
		EndpointParams: url.Values{"audience": {"https://up.example"}}}
	tok, err := cfg.Token(ctx)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := iss.Check(tok.AccessToken, "https://up.example")
	if err != nil || claims["sub"] != "robot" || claims["scope"] != "a b" || tok.RefreshToken != "" {
		t.Errorf("%v %v", claims, err)
	}
	if _, err := iss.Check(tok.AccessToken, "https://other.example"); err == nil {
		t.Error("a token for one audience passes for another")
	}
	for _, wrong := range []clientcredentials.Config{
		{ClientID: "robot", ClientSecret: "boop", TokenURL: iss.TokenURL()},
		{ClientID: "robot", TokenURL: iss.TokenURL()},
		{ClientID: "nobody", ClientSecret: "beep", TokenURL: iss.TokenURL()},
		{ClientID: "public", TokenURL: iss.TokenURL(), AuthStyle: oauth2.AuthStyleInParams},
	} {
		if _, err := wrong.Token(ctx); err == nil {
			t.Errorf("%s with %q got a token", wrong.ClientID, wrong.ClientSecret)
		}
	}
}

func TestRegistration(t *testing.T) {
	register := func(iss *issuertest.Issuer, body string) (int, map[string]any) {
		t.Helper()
		resp, err := web().Post(iss.URL()+"/register", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var doc map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, doc
	}
	iss := issuertest.New(t, issuertest.Options{Registration: true})
	status, doc := register(iss, `{"redirect_uris":["http://127.0.0.1:1/cb"],"token_endpoint_auth_method":"none"}`)
	if status != http.StatusCreated || doc["client_secret"] != nil {
		t.Fatalf("%d %v", status, doc)
	}
	id, _ := doc["client_id"].(string)
	q := url.Values{"client_id": {id}, "redirect_uri": {"http://127.0.0.1:2/cb"}, "response_type": {"code"}, "code_challenge": {"x"}, "code_challenge_method": {"S256"}}
	if back := approve(t, iss.AuthorizeURL()+"?"+q.Encode()); back.Get("code") == "" {
		t.Errorf("a registered client gets %v", back)
	}
	if status, doc := register(iss, `{}`); status != http.StatusCreated || doc["client_secret"] == nil {
		t.Errorf("%d %v", status, doc)
	}
	for _, wrong := range []string{`[]`, `{"redirect_uris":["/cb"]}`, `{"redirect_uris":[7]}`, `{"token_endpoint_auth_method":"private_key_jwt"}`} {
		if status, doc := register(iss, wrong); status != http.StatusBadRequest || doc["error"] == nil {
			t.Errorf("%s: %d %v", wrong, status, doc)
		}
	}
	if status, _ := register(issuertest.New(t, issuertest.Options{}), `{}`); status != http.StatusForbidden {
		t.Errorf("an issuer without registration answers %d", status)
	}
}

func TestSwitches(t *testing.T) {
	iss := issuertest.New(t, issuertest.Options{})
	get := func() (int, error) {
		resp, err := web().Get(iss.URL() + "/jwks")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	arrived := func(n int) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("request %d comes", n), func() bool { return iss.Count(issuertest.JWKS) >= n })
	}
	if status, err := get(); status != http.StatusOK {
		t.Fatal(status, err)
	}
	iss.Down(true)
	if status, err := get(); err == nil {
		t.Errorf("an issuer that is down answers %d", status)
	}
	iss.Down(false)
	iss.Fail(issuertest.JWKS, http.StatusInternalServerError)
	if status, _ := get(); status != http.StatusInternalServerError {
		t.Errorf("a failing one answers %d", status)
	}
	iss.Fail(issuertest.JWKS, 0)
	release := iss.Hold(issuertest.JWKS)
	done := make(chan error)
	go func() {
		_, err := get()
		done <- err
	}()
	arrived(4)
	select {
	case <-done:
		t.Error("a held request was answered")
	default:
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	iss.Hold(issuertest.JWKS)
	go func() {
		_, err := get()
		done <- err
	}()
	arrived(5)
	iss.Close()
	if err := <-done; err == nil {
		t.Error("a closed issuer answered")
	}
}
