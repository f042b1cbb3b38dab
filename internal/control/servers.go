package control

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/credential"
	"github.com/tine-mcp/tine/internal/wire"
)

// Servers is what can be done to the servers of the config.
type Servers struct {
	*core
	wallet *credential.Wallet // nil for none
}

// List is the servers that a principal may know of.
func (c *Servers) List(who identity.Principal, cat *catalog.Catalog) []api.Server {
	out := make([]api.Server, 0, len(cat.Entries))
	for _, e := range cat.Entries {
		if e.Ordinal == 0 && access.Knows(who, e.ID) {
			out = append(out, shownServer(who, c.Describe(e)))
		}
	}
	return out
}

// ForSessions is the servers that a principal may have in a session, in the order of the
// config.
func (c *Servers) ForSessions(who identity.Principal) []api.Server {
	var out []api.Server
	for _, e := range c.reg.Catalog().Entries {
		if !e.Controls() && who.MaySee(e.ID) {
			out = append(out, shownServer(who, c.Describe(e)))
		}
	}
	return out
}

// shownServer leaves out of a description what is about others: their calls, and
// how the server is run and reached. An error may repeat what a call said.
func shownServer(who identity.Principal, s api.Server) api.Server {
	if s.LastError != nil && !who.Is(api.RoleOperator) {
		s.LastError = &api.LastError{At: s.LastError.At, Kind: s.LastError.Kind}
	}
	if !access.Hears(who, nil) { // they may be of another principal's instance
		s.Words = ""
	}
	if who.Is(api.RoleViewer) {
		return s
	}
	s.Target, s.Overridden, s.Overrides = "", false, nil
	if s.Fetch != nil {
		s.Fetch.Package = "" // which is part of the target
	}
	if s.State != api.StateDisabled {
		s.Reason = ""
	}
	return s
}

func (c *Servers) entry(who identity.Principal, id string) (*catalog.Entry, error) {
	return EntryIn(c.reg.Catalog(), who, id)
}

// EntryIn finds a server of a catalog that a principal may know of.
func EntryIn(cat *catalog.Catalog, who identity.Principal, id string) (*catalog.Entry, error) {
	if e := cat.Entry(id); e != nil && access.Knows(who, e.Base()) {
		return e, nil
	}
	return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Server: id, Message: NoServer(id).Error()}
}

// Get is one server, with its policy.
func (c *Servers) Get(ctx context.Context, who identity.Principal, id string) (s api.Server, err error) {
	e, err := c.entry(who, id)
	if err != nil {
		return s, err
	}
	s = shownServer(who, c.Describe(e))
	s.Policy = policyOf(e)
	if e.Auth.Type == config.AuthLogin && c.wallet != nil {
		state := c.wallet.State(ctx, e.Credentials(), who.Name)
		s.Login = &state
	}
	return s, nil
}

// rank orders states by how much they say about a server that several sessions
// use: one that answers anywhere answers.
func rank(st upstream.Status) int {
	switch {
	case st.State == api.StateReady:
		return 5
	case st.Unlisted && st.Instance: // it can be called
		return 4
	}
	return slices.Index([]string{api.StateIdle, api.StateFailed, api.StateFetching, api.StateStarting}, st.State)
}

// Describe is how a server is doing in all sessions.
func (c *Servers) Describe(e *catalog.Entry) api.Server {
	on, why := e.On()
	s := api.Server{
		ID: e.ID, Title: e.Title, Driver: e.Driver, Scope: e.Scope, Enabled: on, Overrides: e.Overrides(),
		State: api.StateIdle, Target: e.Target(), Transport: e.Speaks(),
	}
	s.Overridden = len(s.Overrides) > 0
	e.Describe(&s)
	if !on {
		s.State, s.Reason = api.StateDisabled, why
		return s
	}
	most := 0
	for _, up := range c.reg.UpstreamsOf(e) {
		st := up.Status()
		s.Restarts += st.Restarts
		if st.Instance {
			s.Instances++
		}
		much := rank(st)
		if much == 0 || much < most {
			continue
		}
		most = much
		s.State, s.Reason, s.Words, s.Since, s.Fetch = st.State, st.Reason, st.Words, st.Since, st.Fetch
		if st.Hello.Version != "" {
			s.Protocol = st.Hello.Version
			s.ServerName = wire.FindString(st.Hello.Info, "name")
			s.ServerVer = wire.FindString(st.Hello.Info, "version")
		}
	}
	if c.wallet != nil && slices.Contains([]string{api.StateIdle, api.StateReady, api.StateFailed}, s.State) {
		// A connection stays when the login ends, and answers no call. Logins are read
		// once, so there is nothing to wait for.
		if missing, since := c.wallet.Missing(context.Background(), e.Credentials()); missing != "" {
			s.State, s.Reason, s.Words = api.StateFailed, missing, ""
			if since.After(s.Since) {
				s.Since = since
			}
		}
	}
	s.Reason, s.Words = c.redact.Text(s.Reason), c.redact.Text(s.Words)
	return s
}

// Patch changes a server at run time.
func (c *Servers) Patch(ctx context.Context, who identity.Principal, id string, p api.ServerPatch) (api.Server, error) {
	if _, err := c.entry(who, id); err != nil {
		return api.Server{}, err
	}
	changed := p.Enabled != nil || len(p.Set) > 0 || len(p.Unset) > 0
	if p.Reset && changed {
		return api.Server{}, Invalid("reset goes back to the config in everything: nothing else can stand beside it")
	}
	if p.Reset || changed {
		change := session.Change{Enabled: p.Enabled, Set: p.Set, Unset: p.Unset, Reset: p.Reset}
		if err := c.reg.Change(ctx, id, change); err != nil {
			return api.Server{}, err
		}
		c.host.Secrets()
		c.reg.Retry(id)
	}
	return c.Get(ctx, who, id)
}

// Logs is the end of what the instances of a server wrote to standard error, so many bytes
// of each.
func (c *Servers) Logs(who identity.Principal, id string, bytes int64) (api.LogList, error) {
	if _, err := c.entry(who, id); err != nil {
		return api.LogList{}, err
	}
	out := api.LogList{Instances: []api.LogEntry{}}
	for _, e := range c.reg.Ended(id) {
		out.Instances = append(out.Instances, api.LogEntry{Instance: e.Instance, Session: e.Session, Ended: e.At.UTC(), Text: c.logEnd(e.Text, bytes)})
	}
	for _, up := range c.reg.Upstreams(id) {
		text, err := c.logOf(up, bytes)
		if err != nil {
			return api.LogList{}, err
		}
		if text == nil {
			continue
		}
		out.Instances = append(out.Instances, api.LogEntry{Instance: up.Name(), Session: up.Session(), Text: *text})
	}
	return out, nil
}

// logMargin is read before what is asked for of a log, since what begins within
// a secret does not show that it is one.
const logMargin = 64 << 10

// logOf is the end of an instance's log without secrets; nil without an instance.
func (c *Servers) logOf(up *upstream.Upstream, max int64) (*string, error) {
	rd, err := up.Logs(max + logMargin)
	if rd == nil || err != nil {
		return nil, err
	}
	defer rd.Close()
	b, err := io.ReadAll(io.LimitReader(rd, max+logMargin))
	if err != nil {
		return nil, err
	}
	text := c.logEnd(string(b), max)
	return &text, nil
}

// logEnd is the end of a log without secrets.
func (c *Servers) logEnd(text string, max int64) string {
	text = c.redact.Text(text)
	if over := len(text) - int(max); over > 0 {
		text = strings.ToValidUTF8(text[over:], "")
	}
	return text
}

// policyOf is what a server's calls are subject to.
func policyOf(e *catalog.Entry) *api.Policy {
	p := e.Policy
	out := &api.Policy{
		Timeout: e.Timeout.String(), ConnectTimeout: e.ConnectTimeout.String(), MaxTimeout: p.MaxTimeout.String(),
		Retry: p.Retry.Attempts, Breaker: p.Breaker.Failures, Rate: p.Rate.Calls, Burst: p.Rate.Burst,
		Concurrency: p.Concurrency.Calls, CacheLists: unlessZero(p.Cache.Lists), CacheResults: unlessZero(p.Cache.Results),
		CacheTools: p.Cache.Tools, Journal: e.Journal,
	}
	if p.Breaker.Failures > 0 {
		out.BreakerOpen = p.Breaker.Open.String()
	}
	if p.Concurrency.Calls > 0 || p.Rate.Calls > 0 {
		out.Queue, out.QueueWait = p.Concurrency.Queue, p.Concurrency.Wait.String()
	}
	return out
}

func unlessZero(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// loginEntry finds a server that wants a person, which the principal may log
// in to: for itself, or, where all share one login, with the role for it.
func (c *Servers) loginEntry(who identity.Principal, id string) (*catalog.Entry, error) {
	e, err := c.entry(who, id)
	if err != nil {
		return nil, err
	}
	if e.Auth.Type != config.AuthLogin || c.wallet == nil {
		return nil, &api.Error{
			Kind: api.KindInvalid, Server: id,
			Message: "server " + strconv.Quote(id) + " wants no login; servers." + id + ".auth.type: login would say that it does",
		}
	}
	if e.Credential != config.CredentialPerPrincipal {
		if err := access.Need(who, api.RoleOperator); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// BeginLogin begins a person's login at a server that wants one.
func (c *Servers) BeginLogin(ctx context.Context, who identity.Principal, id string, in api.LoginRequest) (out api.LoginStart, err error) {
	e, err := c.loginEntry(who, id)
	if err != nil {
		return out, err
	}
	return c.wallet.Begin(ctx, e.Credentials(), who.Name, in.Redirect)
}

// FinishLogin finishes a login with what came to the redirect.
func (c *Servers) FinishLogin(ctx context.Context, who identity.Principal, id, flow string, in api.LoginFinish) (api.Server, error) {
	e, err := c.loginEntry(who, id)
	if err != nil {
		return api.Server{}, err
	}
	if err := c.wallet.Finish(ctx, e.Credentials(), flow, who.Name, in.Query); err != nil {
		return api.Server{}, err
	}
	c.reg.Forget(id)
	c.reg.Retry(id)
	return c.Get(ctx, who, id)
}

// Logout forgets the login at a server.
func (c *Servers) Logout(ctx context.Context, who identity.Principal, id string) (api.Server, error) {
	e, err := c.loginEntry(who, id)
	if err != nil {
		return api.Server{}, err
	}
	if err := c.wallet.Logout(ctx, e.Credentials(), who.Name); err != nil {
		return api.Server{}, err
	}
	c.reg.Forget(id)
	return c.Get(ctx, who, id)
}
