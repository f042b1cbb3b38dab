package client

import (
	"context"
	"net/http"

	"github.com/tine-mcp/tine/api"
)

// Tokens lists the bearer tokens that the gateway knows, never the tokens
// themselves.
func (c *Client) Tokens(ctx context.Context) (*api.TokenList, error) {
	return get[api.TokenList](ctx, c, nil, "v1", "tokens")
}

// NewToken makes a bearer token. The answer is the only place where it is ever
// shown.
func (c *Client) NewToken(ctx context.Context, t api.NewToken) (*api.CreatedToken, error) {
	var out api.CreatedToken
	if err := c.do(ctx, http.MethodPost, nil, t, &out, "v1", "tokens"); err != nil {
		return nil, err
	}
	return &out, nil
}

// RotateToken replaces the token of a principal; the old one is refused from now
// on. Its sessions stay.
func (c *Client) RotateToken(ctx context.Context, name string) (*api.CreatedToken, error) {
	var out api.CreatedToken
	if err := c.do(ctx, http.MethodPost, nil, nil, &out, "v1", "tokens", name, "rotate"); err != nil {
		return nil, err
	}
	return &out, nil
}

// ConfirmToken confirms a token that came back with a backup of the gateway's
// database.
func (c *Client) ConfirmToken(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, nil, nil, nil, "v1", "tokens", name, "confirm")
}

// ConfirmLost admits all callers on the gateway's machine again after a restore of
// its database that found no tokens although there were some.
func (c *Client) ConfirmLost(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, nil, nil, nil, "v1", "tokens", "confirm")
}

// RevokeToken revokes a token.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "tokens", name)
}

// StartLogin begins a person's login at a server that needs one. Redirect is the
// loopback address where the caller listens for the redirect.
func (c *Client) StartLogin(ctx context.Context, server, redirect string) (*api.LoginStart, error) {
	var out api.LoginStart
	if err := c.do(ctx, http.MethodPost, nil, api.LoginRequest{Redirect: redirect}, &out, "v1", "servers", server, "login"); err != nil {
		return nil, err
	}
	return &out, nil
}

// FinishLogin sends the query of the redirect and returns the server as it is then.
func (c *Client) FinishLogin(ctx context.Context, server, flow, query string) (*api.Server, error) {
	var out api.Server
	if err := c.do(ctx, http.MethodPost, nil, api.LoginFinish{Query: query}, &out, "v1", "servers", server, "login", flow); err != nil {
		return nil, err
	}
	return &out, nil
}

// Logout forgets the login at a server and returns the server as it is then.
func (c *Client) Logout(ctx context.Context, server string) (*api.Server, error) {
	var out api.Server
	if err := c.do(ctx, http.MethodDelete, nil, nil, &out, "v1", "servers", server, "login"); err != nil {
		return nil, err
	}
	return &out, nil
}
