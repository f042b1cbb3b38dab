package main

import (
	"net/http"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/remote"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream/credential"
)

// authorizer finds the function that adds a server's credentials to requests to its
// orchestrator: a driver that removes what an earlier gateway left there has no
// other source.
func authorizer(conf *config.Config, wallet *credential.Wallet) func(server string) func(http.RoundTripper) http.RoundTripper {
	return func(server string) func(http.RoundTripper) http.RoundTripper {
		for _, s := range conf.Servers {
			if s.ID == server {
				return authorizing(s, wallet)
			}
		}
		return nil
	}
}

// authorizing adds the credentials of a server to requests; nil if it has none but
// its headers.
func authorizing(s config.Server, wallet *credential.Wallet) func(http.RoundTripper) http.RoundTripper {
	if s.Auth.Type == "" || s.Driver != "remote" {
		return nil
	}
	settings := (&catalog.Entry{Server: s, Runner: &remote.Driver{}}).Credentials() // which starts nothing
	return func(next http.RoundTripper) http.RoundTripper { return wallet.Wrap(settings, "", next) }
}
