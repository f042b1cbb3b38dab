package upstream

import (
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// mends say what to do about a server, and of one that is reached over HTTP by who
// says where it is.
type mends struct {
	at     string // where its keys are in the config
	gone   string // it does not answer
	locked string // it wants to be shown something else
	moved  string // it redirects
}

func mendsOf(spec driver.Spec) mends {
	at := "servers." + spec.Server + "."
	switch {
	case driver.Options[config.Remote](spec) != nil:
		return mends{
			at:     at,
			gone:   "check that the orchestrator at " + at + "remote.url names an mcp_endpoint_url that can be reached from here",
			locked: "the orchestrator at " + at + "remote.url must give an access_token that it takes",
			moved:  "have the orchestrator at " + at + "remote.url name that if it is right",
		}
	case driver.Options[config.Docker](spec) != nil:
		return mends{
			at:     at,
			gone:   "check that it listens at " + at + "docker.port on every address of the container",
			locked: "a server in a container is shown no credentials; have it want none",
			moved:  "set " + at + "docker.path to that if it is right",
		}
	case driver.Options[config.Sandbox](spec) != nil:
		return mends{
			at:     at,
			gone:   "check that it listens at " + at + "sandbox.port",
			locked: "a server in a sandbox is shown no credentials; have it want none",
			moved:  "set " + at + "sandbox.path to that if it is right",
		}
	}
	return mends{
		at:     at,
		gone:   "check that it runs, and " + at + "url",
		locked: at + "headers or " + at + "auth must hold what it wants",
		moved:  "set " + at + "url to that if it is right",
	}
}
