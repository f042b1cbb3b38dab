package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// loginOptions are the flags of tine login.
type loginOptions struct {
	noBrowser bool
	logout    bool
	timeout   time.Duration
}

func newLoginCmd(c *cli) *cobra.Command {
	var o loginOptions
	cmd := &cobra.Command{
		Use:   "login SERVER",
		Short: "Log in to a server that needs a user login",
		Long: `Logs you in to a server whose config has auth.type: login. Tine prints a URL and
opens it in a browser, where you log in with the server's authorization server.
The gateway stores and refreshes the tokens and sends them only to that server.
With credential: shared all principals use one login; with per-principal the login
is for you only.

The browser is redirected to this program, which listens on loopback. A browser
on another machine can't reach it: open the URL there, then paste here the URL
of the page that fails to load.

BROWSER names a browser to use instead of the system's default. --logout deletes
the login.`,
		Example: `  tine login tracker
  tine login tracker --no-browser
  tine login tracker --logout`,
		Args:              oneArg("the id of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout <= 0 {
				return usagef("--timeout wants a time above 0, got %s", o.timeout)
			}
			g, err := c.connect()
			if err != nil {
				return err
			}
			if o.logout {
				return c.logout(cmd.Context(), g, args[0])
			}
			return c.login(cmd.Context(), g, args[0], o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.noBrowser, "no-browser", false, "print the URL and open no browser")
	f.BoolVar(&o.logout, "logout", false, "delete the login")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the login")
	return cmd
}

func (c *cli) logout(ctx context.Context, g *gateway, server string) error {
	before, err := askFor(ctx, g, g.Server, server)
	if err != nil {
		return c.unknownServer(ctx, g, server, err)
	}
	s, err := askFor(ctx, g, g.Logout, server)
	if err != nil {
		return err
	}
	if l := before.Login; l != nil && !l.LoggedIn && l.Reason == "" {
		return c.answer(s, server+": there was no login")
	}
	return c.answer(s, server+": logged out")
}

func (c *cli) login(ctx context.Context, g *gateway, server string, o loginOptions) error {
	cb, err := listenCallback(ctx, &url.URL{Scheme: "http", Host: "127.0.0.1:0", Path: callbackPath})
	if err != nil {
		return fmt.Errorf("listen for the browser to come back: %w", err)
	}
	defer func() { cb.close() }()
	start, err := ask(ctx, g, func(ctx context.Context) (*api.LoginStart, error) {
		return g.StartLogin(ctx, server, cb.redirect.String())
	})
	if err != nil {
		return c.unknownServer(ctx, g, server, err)
	}
	page, err := url.Parse(start.URL)
	if err != nil || page.Scheme != "https" && page.Scheme != "http" || page.Host == "" {
		// It came from the server's metadata, and not everything is for a browser.
		return fmt.Errorf("the login page of server %q is %q, which is no web address; check servers.%s.auth.auth_url", server, start.URL, server)
	}
	if start.Redirect != "" && start.Redirect != cb.redirect.String() {
		moved, err := c.registered(ctx, server, start.Redirect)
		if err != nil {
			return err
		}
		cb.close()
		cb = moved
	}
	state := page.Query().Get("state")
	cb.serve(state)

	fmt.Fprintf(c.stderr, "Log in to %s at this address:\n\n  %s\n\n", visible(server, c.errTerminal), visible(page.String(), c.errTerminal))
	if !o.noBrowser {
		if err := c.openBrowser(page.String()); err != nil {
			c.say("no browser was opened: %v; open the address yourself", err)
		}
	}
	query, err := c.awaitLogin(ctx, cb, state, o.timeout)
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, func(ctx context.Context) (*api.Server, error) {
		return g.FinishLogin(ctx, server, start.Flow, query)
	})
	if err != nil {
		return err
	}
	return c.answer(s, server+": "+loginText(s.Login))
}

// registered listens at the redirect that a client id was registered with. If this
// program can't listen there, a person can paste the address where the browser
// ended.
func (c *cli) registered(ctx context.Context, server, redirect string) (*callback, error) {
	u, err := url.Parse(redirect)
	if err != nil {
		return nil, fmt.Errorf("server %q: auth.redirect does not parse: %w", server, err)
	}
	cb, err := listenCallback(ctx, u)
	if err == nil {
		return cb, nil
	}
	if !c.inTerminal {
		return nil, fmt.Errorf("server %q wants the browser to come back to %s: %w; free that address, change servers.%s.auth.redirect, or log in from a terminal, where the address can be pasted", server, u.Redacted(), err, server)
	}
	c.say("the browser will come back to %s, where this program can't listen: %v", u.Redacted(), err)
	return &callback{redirect: u, got: make(chan string, 1)}, nil
}

// awaitLogin waits for the query of the redirect: from the browser, or pasted.
func (c *cli) awaitLogin(ctx context.Context, cb *callback, state string, timeout time.Duration) (string, error) {
	var pasted chan string
	if c.inTerminal {
		c.say("Waiting. If the browser is on another machine, paste the address that it ends at here:")
		pasted = make(chan string)
		done := make(chan struct{})
		defer close(done)
		// A read from a terminal can't be cancelled; it ends with the program.
		go func() {
			lines := bufio.NewScanner(c.stdin)
			lines.Buffer(nil, maxSecret)
			for lines.Scan() {
				select {
				case pasted <- lines.Text():
				case <-done:
					return
				}
			}
		}()
	} else {
		c.say("Waiting for the browser to come back.")
	}
	late := c.after(timeout)
	for {
		select {
		case query := <-cb.got:
			return query, nil
		case line := <-pasted:
			query, err := pastedQuery(line, state)
			if err == nil {
				return query, nil
			}
			if strings.TrimSpace(line) != "" {
				c.say("tine: %v", err)
			}
		case <-late:
			return "", fmt.Errorf("the login was not completed within %s; run it again, with a longer --timeout if needed", timeout)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// pastedQuery finds the query in a pasted text: an address, or the query alone.
func pastedQuery(line, state string) (string, error) {
	line = strings.TrimSpace(line)
	query := strings.TrimPrefix(line, "?")
	if u, err := url.Parse(line); err == nil && u.RawQuery != "" {
		query = u.RawQuery
	}
	q, err := url.ParseQuery(query)
	if err != nil || wrongAnswer(q, state) {
		return "", errors.New("that is not the address that this login ends at; paste all of it, with code= and state= in it")
	}
	return query, nil
}

// loginText is the state of a login.
func loginText(l *api.LoginState) string {
	if l == nil {
		return "logged in" // a server that was asked a moment ago and says no more
	}
	if !l.LoggedIn {
		text := "not logged in"
		if l.Reason != "" {
			text += ": " + l.Reason
		}
		return text
	}
	if l.Credential == config.CredentialPerPrincipal {
		return "logged in, for you alone"
	}
	return "logged in, for all users of it"
}
