package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
)

// CutOff is the cause a call's context ends with when the gateway stops before the
// answer arrives. To servers it is a cancellation like any other; the caller, who
// cancelled nothing, gets an answer.
type CutOff struct {
	Waited time.Duration // limits.drain; zero where the stop did not wait for calls
}

// Error implements error.
func (c *CutOff) Error() string { return "the gateway was stopped" }

// Is makes it a cancellation.
func (c *CutOff) Is(target error) bool { return target == context.Canceled }

// Cut is the error of a call, and says so if a stop of the gateway cut the call off.
// An error that the call had by itself stays.
func Cut(ctx context.Context, server string, err error) error {
	var cut *CutOff
	if err == nil || !errors.As(context.Cause(ctx), &cut) || Kind(err) != api.KindRefused {
		return err
	}
	if Unsent(err) {
		return NotSent(failure(api.KindInfrastructure, server, true, "%v before this call was made", cut))
	}
	waited := ""
	if cut.Waited > 0 {
		waited = fmt.Sprintf(" and took longer than limits.drain (%s)", cut.Waited)
	}
	return failure(api.KindInfrastructure, server, false, "%v while this call was running%s; it is not known whether it took effect", cut, waited)
}
