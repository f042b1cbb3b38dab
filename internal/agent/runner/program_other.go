//go:build !linux && !darwin

package runner

import (
	"context"
	"errors"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

// hosting is empty where programs can't outlive the gateway.
type hosting struct{}

// program is never made here.
type program struct{}

var errSystem = errors.New("executors run on Linux and macOS; run the gateway that does runs there")

func (h *programs) start(string, pass, executor.Plan) (*program, error) { return nil, errSystem }
func (h *programs) adopt(string) (*program, error)                      { return nil, errNever }
func (h *programs) sweep(func(string) bool) ([]string, error)           { return nil, nil }
func (h *programs) discard(string) error                                { return nil }

func (p *program) follow(context.Context, executor.Reader, int, func([]executor.Event) error) (ending, error) {
	return ending{}, errSystem
}
func (p *program) next(string, []byte) error          { return errSystem }
func (p *program) stop(context.Context, []byte) error { return errSystem }
func (p *program) deaf() bool                         { return false }
func (p *program) takes() *posts                      { return nil }
func (p *program) over() <-chan struct{}              { return nil }
func (p *program) pass() pass                         { return pass{} }
func (p *program) leave()                             {}
func (p *program) remove() error                      { return errSystem }
