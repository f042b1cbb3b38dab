package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// lost says so, here and to the session, when a state can't be read any more.
func (d *Driver) lost(spec driver.Spec, err error) error {
	if d.kinds[spec.Builtin].Remembers {
		err = driver.DamagedState(spec.Whose(), err)
	}
	if spec.OnDamage != nil && errors.As(err, new(*driver.DamageError)) {
		spec.OnDamage(err)
	}
	return err
}

// verified fails a call during which something damaged was met in the server's state or
// in the workspace, whatever the server made of it: an error of a database, an empty
// list, a file that is left out. An error that is due fails the first call. A disk that is
// full fails a call likewise, and is not the tool's own answer.
func (d *Driver) verified(spec driver.Spec, due *atomic.Pointer[error]) mcp.Middleware {
	remembers := d.kinds[spec.Builtin].Remembers
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch method {
			case wire.MethodCallTool, wire.MethodReadResource, wire.MethodGetPrompt:
				if err := due.Swap(nil); err != nil {
					return nil, ownError(*err)
				}
			}
			state, space := uint64(0), uint64(0)
			if remembers {
				state = d.layers.Damages()
			}
			if spec.Workspace != nil {
				space = spec.Workspace.Damages()
			}
			res, err := next(ctx, method, req)
			if remembers && d.layers.Damages() != state {
				if met := d.layers.DamageSince(spec.State, state); met != nil {
					return nil, ownError(d.lost(spec, met))
				}
			}
			if spec.Workspace != nil && spec.Workspace.Damages() != space {
				if met := spec.Workspace.DamageSince(space); met != nil {
					met = driver.Damaged(spec.Whose(), met)
					if spec.OnDamage != nil {
						spec.OnDamage(met)
					}
					return nil, ownError(met)
				}
			}
			if driver.HostFault(err) {
				return nil, ownError(&api.Error{Kind: api.KindInfrastructure, Server: spec.Server, Message: fmt.Sprintf("the gateway's machine failed: %v; look at its disk, and at how many files may be open", err)})
			}
			return res, err
		}
	}
}

// ownError is how an error of the API goes over a link of Tine's own.
func ownError(err error) error {
	var ours *api.Error
	if !errors.As(err, &ours) {
		return err
	}
	data, jerr := json.Marshal(map[string]*api.Error{wire.MetaTineError: ours})
	if jerr != nil {
		return err
	}
	return &jsonrpc.Error{Code: wire.CodeTine, Message: ours.Message, Data: data}
}
