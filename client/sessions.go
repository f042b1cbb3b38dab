package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tine-mcp/tine/api"
)

// A CreateOption is an option of a request that creates something.
type CreateOption func(*request)

// Once makes a creation safe to repeat: the same request with the same key gives
// the same answer for a day, tokens included, and creates nothing twice, unless the
// gateway was killed between creating it and recording that. A key is 1 to 256
// visible ASCII characters and must not be guessable.
func Once(key string) CreateOption { return func(r *request) { r.key = key } }

func create[T any](ctx context.Context, c *Client, in any, options []CreateOption, path ...string) (*T, error) {
	r := request{method: http.MethodPost, in: in, path: path}
	for _, o := range options {
		o(&r)
	}
	var out T
	if err := c.exchange(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// SessionQuery chooses sessions. Zero fields choose all that the caller may see.
type SessionQuery struct {
	Owner  string
	Parent string
	Labels map[string]string
	Closed bool   // closed ones too
	Limit  int    // of one page; zero leaves it to the gateway
	After  string // the Next of the page before
}

func (q SessionQuery) values() url.Values {
	v := page(q.Limit, q.After)
	set(v, "owner", q.Owner)
	set(v, "parent", q.Parent)
	setLabels(v, q.Labels)
	if q.Closed {
		v.Set("closed", "true")
	}
	return v
}

func page(limit int, after string) url.Values {
	v := url.Values{}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	set(v, "after", after)
	return v
}

func set(v url.Values, key, value string) {
	if value != "" {
		v.Set(key, value)
	}
}

func setLabels(v url.Values, labels map[string]string) {
	for key, value := range labels {
		v.Add("label", key+"="+value)
	}
	slices.Sort(v["label"])
}

// OpenSession opens a session. Its token is shown this once.
func (c *Client) OpenSession(ctx context.Context, in api.NewSession, options ...CreateOption) (*api.OpenedSession, error) {
	return create[api.OpenedSession](ctx, c, in, options, "v1", "sessions")
}

// Sessions returns a page of sessions, newest first.
func (c *Client) Sessions(ctx context.Context, q SessionQuery) (*api.SessionList, error) {
	return get[api.SessionList](ctx, c, q.values(), "v1", "sessions")
}

// AllSessions goes through the sessions of all pages. It ends after the first
// error.
func (c *Client) AllSessions(ctx context.Context, q SessionQuery) iter.Seq2[api.Session, error] {
	return pages(q.After, func(after string) ([]api.Session, string, error) {
		q.After = after
		list, err := c.Sessions(ctx, q)
		if err != nil {
			return nil, "", err
		}
		return list.Sessions, list.Next, nil
	})
}

// pages goes through a list that comes in pages.
func pages[T any](after string, read func(after string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var nothing T
		for at := after; ; {
			items, next, err := read(at)
			if err == nil && next != "" && next == at {
				err = fmt.Errorf("the gateway's pages don't end: after %s comes the same again", at)
			}
			if err != nil {
				yield(nothing, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if at = next; at == "" {
				return
			}
		}
	}
}

// Session returns one session, open or closed, with its members.
func (c *Client) Session(ctx context.Context, id string) (*api.Session, error) {
	return get[api.Session](ctx, c, nil, "v1", "sessions", id)
}

// PatchSession changes the labels and the lifetime of a session, and returns it as
// it is then.
func (c *Client) PatchSession(ctx context.Context, id string, p api.SessionPatch) (*api.Session, error) {
	var out api.Session
	if err := c.do(ctx, http.MethodPatch, nil, p, &out, "v1", "sessions", id); err != nil {
		return nil, err
	}
	return &out, nil
}

// CloseSession closes a session and what it owns. It may be called twice.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "sessions", id)
}

// NewSessionToken replaces the token of a session. The answer is the only place
// where it is ever shown.
func (c *Client) NewSessionToken(ctx context.Context, id string, options ...CreateOption) (*api.OpenedSession, error) {
	return create[api.OpenedSession](ctx, c, nil, options, "v1", "sessions", id, "token")
}

// MintSessionToken makes a further token of a session. The answer is the only place where
// it is ever shown.
func (c *Client) MintSessionToken(ctx context.Context, id string, in api.NewSessionToken, options ...CreateOption) (*api.MintedToken, error) {
	return create[api.MintedToken](ctx, c, in, options, "v1", "sessions", id, "tokens")
}

// SessionTokens lists the further tokens of a session, the oldest first.
func (c *Client) SessionTokens(ctx context.Context, id string) (*api.SessionTokenList, error) {
	return get[api.SessionTokenList](ctx, c, nil, "v1", "sessions", id, "tokens")
}

// RevokeSessionToken makes one further token of a session worthless.
func (c *Client) RevokeSessionToken(ctx context.Context, id, token string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "sessions", id, "tokens", token)
}

// RevokeRunTokens makes all further tokens of a run worthless, and returns how many there
// were.
func (c *Client) RevokeRunTokens(ctx context.Context, id, run string) (int, error) {
	var out api.RevokedTokens
	err := c.do(ctx, http.MethodDelete, url.Values{"run": {run}}, nil, &out, "v1", "sessions", id, "tokens")
	return out.Revoked, err
}

// Fork makes sessions that begin with the state of another one, all or none.
func (c *Client) Fork(ctx context.Context, id string, in api.ForkRequest, options ...CreateOption) (*api.Forks, error) {
	return create[api.Forks](ctx, c, in, options, "v1", "sessions", id, "forks")
}

// Forks returns a page of the sessions that were forked from one, newest first.
// Only Closed, Limit and After of the query count.
func (c *Client) Forks(ctx context.Context, id string, q SessionQuery) (*api.SessionList, error) {
	q = SessionQuery{Closed: q.Closed, Limit: q.Limit, After: q.After}
	return get[api.SessionList](ctx, c, q.values(), "v1", "sessions", id, "forks")
}

// Rewind brings a session back to a snapshot and returns it as it is then.
func (c *Client) Rewind(ctx context.Context, id string, in api.RewindRequest) (*api.Session, error) {
	return create[api.Session](ctx, c, in, nil, "v1", "sessions", id, "rewind")
}

// SessionTree returns the family of a session from its first ancestor on.
func (c *Client) SessionTree(ctx context.Context, id string) (*api.Tree, error) {
	return get[api.Tree](ctx, c, nil, "v1", "sessions", id, "tree")
}

// SessionCalls returns a page of the calls of one session, newest first, with
// secrets masked and without results. Session, Principal and Since of the query
// don't count.
func (c *Client) SessionCalls(ctx context.Context, id string, q CallQuery) (*api.CallList, error) {
	q = CallQuery{Run: q.Run, Server: q.Server, Failed: q.Failed, Before: q.Before, Limit: q.Limit}
	return get[api.CallList](ctx, c, q.values(), "v1", "sessions", id, "calls")
}
