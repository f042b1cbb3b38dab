package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/driver"
)

// checkGateway checks the gateway that the other commands would use: whether it
// answers and accepts this program, whether both have one version and one config,
// and how its servers are. config is the file of the other checks.
func (c *cli) checkGateway(ctx context.Context, config string) []driver.Finding {
	const name = "gateway"
	ctx, cancel := context.WithTimeout(ctx, driver.CheckTime)
	defer cancel()
	file, err := c.runningGateway()
	if err != nil {
		return []driver.Finding{driver.Found(name, driver.FoundWarn, err.Error(), "restart the gateway, which writes it anew")}
	}
	named := c.flags.url != "" || c.getenv("TINE_URL") != ""
	if file == nil && !named {
		return []driver.Finding{driver.Found(name, driver.FoundOK, "none runs on this state folder; "+c.own("tine serve")+" starts one", "")}
	}
	g, err := c.connect()
	if err != nil {
		return []driver.Finding{driver.Found(name, driver.FoundMissing, describe(err), "mend --url, --token or --token-file")}
	}
	s, err := g.Status(ctx)
	var ae *api.Error
	switch {
	case errors.As(err, &ae) && ae.Status == http.StatusUnauthorized:
		return []driver.Finding{driver.Found(name, driver.FoundMissing, g.URL()+" runs and refuses this program: "+oneLine(ae.Message), "give a token of it with --token-file or TINE_TOKEN")}
	case errors.Is(err, client.ErrNoGateway) && !named:
		return []driver.Finding{driver.Found(name, driver.FoundWarn, fmt.Sprintf("process %d wrote the address %s to the state folder, but does not answer there", file.PID, g.URL()), "start it again: "+c.own("tine serve"))}
	case err != nil:
		return []driver.Finding{driver.Found(name, driver.FoundMissing, oneLine(err.Error()), "start it, or mend --url")}
	}
	found := driver.Found(name, driver.FoundOK, fmt.Sprintf("tine %s at %s, %s", s.Version, g.URL(), c.admission(ctx, g)), "")
	var doubts, mends []string
	if s.Version != c.version {
		doubts = append(doubts, "this program is tine "+c.version)
		mends = append(mends, "restart the gateway with this program")
	}
	if s.Draining {
		doubts = append(doubts, "it is stopping and takes no more calls")
		mends = append(mends, "wait, then start it again")
	}
	if file != nil && sameURL(g.URL(), file.URL) && (file.Config != "" || config != "") && !sameFile(config, file.Config) {
		doubts = append(doubts, "it has another config than this check: "+orDefaults(file.Config))
		if file.Config != "" {
			mends = append(mends, c.own("tine doctor --config "+shellWord(file.Config)))
		} else {
			mends = append(mends, "restart it, or run tine doctor in its folder")
		}
	}
	if len(doubts) > 0 {
		found.Status, found.Detail, found.Mend = driver.FoundWarn, found.Detail+"\n"+strings.Join(doubts, "\n"), strings.Join(mends, "; ")
	}
	return []driver.Finding{found, c.checkServers(ctx, g)}
}

func orDefaults(config string) string {
	if config == "" {
		return "the built-in defaults"
	}
	return config
}

// admission says which callers a gateway admits, by a request without a token.
func (c *cli) admission(ctx context.Context, g *gateway) string {
	stranger, err := g.As("")
	if err == nil {
		_, err = stranger.Status(ctx)
	}
	var ae *api.Error
	switch {
	case err == nil:
		return "open to callers without a token"
	case errors.As(err, &ae) && ae.Status == http.StatusUnauthorized:
		return "callers need a token, and this program has one"
	}
	return "whether callers need a token is not known: " + oneLine(err.Error())
}

// checkServers says how the servers of a running gateway are.
func (c *cli) checkServers(ctx context.Context, g *gateway) driver.Finding {
	const name = "servers"
	list, err := g.Servers(ctx)
	if err != nil {
		return driver.Found(name, driver.FoundWarn, oneLine(err.Error()), "see "+c.own("tine servers"))
	}
	states := map[string]int{}
	var wrong, ids []string
	for _, s := range list.Servers {
		states[s.State]++
		switch {
		case s.State == api.StateFailed:
			wrong = append(wrong, fmt.Sprintf("%s: %s", s.ID, oneLine(s.Reason)))
			ids = append(ids, s.ID)
		case s.Breaker == api.BreakerOpen:
			wrong = append(wrong, s.ID+": its circuit breaker is open")
			ids = append(ids, s.ID)
		}
	}
	var parts []string
	for _, state := range []string{api.StateReady, api.StateIdle, api.StateFetching, api.StateStarting, api.StateFailed, api.StateDisabled} {
		if states[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
		}
	}
	detail := strings.Join(append([]string{count(len(list.Servers), "server")}, parts...), ", ")
	if len(wrong) == 0 {
		return driver.Found(name, driver.FoundOK, detail, "")
	}
	if len(wrong) > mostNamed {
		wrong = append(wrong[:mostNamed:mostNamed], fmt.Sprintf("and %d more", len(ids)-mostNamed))
	}
	which, of := ids[0], ""
	if len(ids) > 1 {
		which, of = "NAME", " of each"
	}
	return driver.Found(name, driver.FoundWarn, detail+"\n"+strings.Join(wrong, "\n"), "see "+c.own("tine servers show "+which)+" and "+c.own("tine logs "+which)+of)
}
