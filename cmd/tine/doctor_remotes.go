package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream/credential"
)

// A checker is a driver that can ask whoever runs the instances of a server
// whether it answers and lets us in. Nothing is made by that.
type checker interface {
	Check(ctx context.Context, spec driver.Spec) error
}

// remoteProbes are the checks of the servers that somebody else runs.
func (c *cli) remoteProbes(ctx context.Context, conf *config.Config) []func() check {
	var probes []func() check
	if conf == nil {
		return nil
	}
	for _, s := range conf.Servers {
		if s.Enabled && s.Disabled == "" && s.Remote != nil {
			probes = append(probes, func() check { return c.checkRemote(ctx, s) })
		}
	}
	return probes
}

func (c *cli) checkRemote(ctx context.Context, s config.Server) check {
	name := "server " + s.ID
	ask, end := newChecker()
	defer end()
	wallet := credential.New(credential.Options{})
	defer wallet.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := ask.Check(ctx, remoteSpec(s, wallet)); err != nil {
		mend := "see whether it runs and servers." + s.ID + ".remote.url is right"
		if turnedAway(err) {
			mend = "mend servers." + s.ID + ".headers or auth"
		}
		// The check has a name and a mend of its own.
		detail := strings.TrimPrefix(oneLine(err.Error()), fmt.Sprintf("server %q: ", s.ID))
		return check{name, checkMissing, strings.TrimSuffix(detail, "; "+mend), mend}
	}
	detail := "its orchestrator answers"
	if len(s.Headers) > 0 || s.Auth.Type != "" {
		detail += " and takes the credentials"
	}
	return check{name, checkOK, detail + ", at " + config.RedactURL(s.Remote.URL), ""}
}

// turnedAway reports whether it is the credentials that are not right.
func turnedAway(err error) bool {
	var e *api.Error
	if errors.As(err, &e) && e.Kind == api.KindRefused {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "401 Unauthorized") || strings.Contains(text, "403 Forbidden")
}

// remoteSpec is as much of a server as its orchestrator is asked with.
func remoteSpec(s config.Server, wallet *credential.Wallet) driver.Spec {
	spec := driver.Spec{Server: s.ID, Header: make(http.Header), CAFile: s.CAFile, Remote: s.Remote}
	for k, v := range s.Headers {
		spec.Header.Set(k, v)
	}
	spec.Authorize = authorizing(s, wallet)
	return spec
}
