package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// errAway reports that the engine does not answer.
var errAway = errors.New("the container engine does not answer")

// away reports whether an error says that the engine is not there, in contrast to
// one that the engine itself gave.
func away(err error) bool {
	var op *net.OpError
	return errors.Is(err, errAway) || client.IsErrConnectionFailed(err) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// gone reports whether the engine says that a thing is not there.
func gone(err error) bool { return errdefs.IsNotFound(err) }

// explain says what went wrong and what to do about it.
func (e *engine) explain(step string, err error) error {
	text := err.Error()
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", step, err)
	case has("permission denied") && client.IsErrConnectionFailed(err):
		return fmt.Errorf("%s: may not talk to the container engine at %s: %w; run Tine as a user who may (often one of the group docker), or set docker.host", step, e.host, err)
	case away(err):
		return fmt.Errorf("%s: %w at %s (%w); start it, or set docker.host", step, errAway, e.host, err)
	case has("no space left on device", "disk quota exceeded"):
		return fmt.Errorf("%s: the disk of the container engine at %s is full: %w; free some space, for example with docker system prune", step, e.host, err)
	case has("port is already allocated", "address already in use"):
		return fmt.Errorf("%s: the port is taken: %w; end what listens there", step, err)
	case has("could not find an available", "all predefined address pools"):
		return fmt.Errorf("%s: the engine has no addresses left for a network: %w; remove unused networks with docker network prune", step, err)
	case has("executable file not found", "no such file or directory") && has("exec", "OCI runtime", "runc"):
		return fmt.Errorf("%s: the image does not have the program: %w; mend docker.entrypoint or docker.command", step, err)
	case has("unknown or invalid runtime", "not found in engine's configuration", `OCI runtime "`):
		return fmt.Errorf("%s: the engine does not have that runtime: %w; install it, or mend docker.runtime", step, err)
	}
	return fmt.Errorf("%s: %w", step, err)
}
