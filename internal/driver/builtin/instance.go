package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/gate"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// instance is one server. It ends by Stop only.
type instance struct {
	handle driver.Handle
	server *mcp.Server
	closer io.Closer // nil where there is nothing to close
	gate   gate.Gate
	grace  time.Duration
	log    *slog.Logger

	mu       sync.Mutex
	link     *link // the newest one, open or not; nil before the first Dial
	stopped  bool
	sessions sync.WaitGroup // goroutines that serve links, closing ones too

	done   chan struct{} // closed when stopped and no session is left
	endErr error         // written before done is closed
}

var _ driver.Instance = (*instance)(nil)

func (i *instance) Handle() driver.Handle { return i.handle }

// Dial implements [driver.Instance]. Each link is a new MCP session.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := ctx.Err(); err != nil {
		return driver.Link{}, fmt.Errorf("server %q: connect: %w", i.handle.Server, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return driver.Link{}, fmt.Errorf("server %q: connect: %w", i.handle.Server, driver.ErrGone)
	}
	if i.link != nil && !i.link.isClosed() {
		return driver.Link{}, fmt.Errorf("server %q: it has a link already; close that first", i.handle.Server)
	}
	l := newLink()
	// The session lives as long as its link and not as long as this call.
	ss, err := i.server.Connect(context.WithoutCancel(ctx), l, nil)
	if err != nil {
		return driver.Link{}, fmt.Errorf("server %q: connect: %w", i.handle.Server, err)
	}
	i.link = l
	i.sessions.Go(func() {
		if err := ss.Wait(); err != nil && !errors.Is(err, errLinkClosed) {
			i.log.Debug("session of a built-in server ended", "server", i.handle.Server, "err", err)
		}
	})
	return driver.Link{Stream: (*stream)(l), Own: true}, nil
}

// Hold implements [driver.Instance]: no request is running when it returns, and new
// ones wait in their link.
func (i *instance) Hold(ctx context.Context) (func(), error) {
	release, err := i.gate.Hold(ctx)
	if err != nil {
		return nil, fmt.Errorf("server %q can't be held: %w", i.handle.Server, err)
	}
	return release, nil
}

func (i *instance) Done() <-chan struct{} { return i.done }

func (i *instance) Err() error { return nil }

// Logs implements [driver.Instance]: a server in this process has no standard
// error of its own.
func (i *instance) Logs(int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// Stop implements [driver.Instance]. Running calls are cancelled, which is all that can
// be done within one process: one that does not heed it keeps Stop waiting until ctx
// has ended and the grace has passed, and is reported.
func (i *instance) Stop(ctx context.Context) error {
	i.mu.Lock()
	if !i.stopped {
		i.stopped = true
		if i.link != nil {
			i.link.close()
		}
		go func() {
			i.endErr = i.end()
			close(i.done)
		}()
	}
	i.mu.Unlock()

	select {
	case <-i.done:
	case <-ctx.Done():
		grace := time.NewTimer(i.grace)
		defer grace.Stop()
		select {
		case <-i.done:
		case <-grace.C:
			return fmt.Errorf("server %q: stop: calls still run %s after they were cancelled: %w", i.handle.Server, i.grace, ctx.Err())
		}
	}
	if i.endErr != nil {
		return fmt.Errorf("server %q: stop: %w", i.handle.Server, i.endErr)
	}
	return nil
}

// end waits for the sessions and lets go of what the instance has.
func (i *instance) end() error {
	i.sessions.Wait()
	var errs []error
	if i.closer != nil {
		errs = append(errs, i.closer.Close())
	}
	if i.handle.Dir != "" {
		errs = append(errs, os.RemoveAll(i.handle.Dir))
	}
	return errors.Join(errs...)
}

// Leave implements [driver.Instance]: it stops, and the next gateway starts
// another one on the same state.
func (i *instance) Leave() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no call is waited for longer than the grace
	return i.Stop(ctx)
}

// containPanics turns a panic in a server's handler into an error of that one
// call: a bug in one built-in server must not end the gateway.
func containPanics(server string, log *slog.Logger) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
			defer func() {
				if v := recover(); v != nil {
					_ = telemetry.Panicked(log, telemetry.InBuiltin, server+" "+method, v)
					res, err = nil, &jsonrpc.Error{
						Code:    jsonrpc.CodeInternalError,
						Message: fmt.Sprintf("built-in server %q failed on %s; the gateway's log says where", server, method),
					}
				}
			}()
			return next(ctx, method, req)
		}
	}
}
