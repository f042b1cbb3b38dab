package upstream

import (
	"context"
	"fmt"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// maxPages and maxItems bound one server's list.
const (
	maxPages = 1000
	maxItems = 50_000
)

// ListMethods are the methods of all lists that servers have.
var ListMethods = []string{wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates}

// ListKey is the member that holds the items of a list result.
func ListKey(method string) string {
	switch method {
	case wire.MethodListTools:
		return "tools"
	case wire.MethodListPrompts:
		return "prompts"
	case wire.MethodListTemplates:
		return "resourceTemplates"
	}
	return "resources"
}

// Lists reports whether the server declared that it has a list.
func (h *Hello) Lists(method string) bool {
	switch method {
	case wire.MethodListTools:
		return h.Can("tools")
	case wire.MethodListPrompts:
		return h.Can("prompts")
	}
	return h.Can("resources")
}

// ReadList reads all pages of one server's list, starting the server where it does
// not run. The request says which list, and for whom. From when the server runs it has
// listTime for it.
func (u *Upstream) ReadList(ctx context.Context, ask Request) (Hello, [][]byte, error) {
	conn, err := u.Conn(ctx)
	if err != nil {
		return Hello{}, nil, err
	}
	hello := conn.Hello()
	if !hello.Lists(ask.Method) {
		return hello, nil, nil
	}
	most := u.listTime()
	ctx, cancel := context.WithTimeoutCause(ctx, most.after, most)
	defer cancel()
	items, err := u.readPages(ctx, ask)
	var late *api.Error
	if err != nil && Kind(err) == api.KindTimeout {
		late = failure(api.KindTimeout, u.Server(), true, "%s: %s", ask.Method, Reason(asOurs(err)))
		err = late
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil || late != nil {
		u.hung[ask.Method] = late
	} else {
		delete(u.hung, ask.Method)
	}
	return hello, items, err
}

func (u *Upstream) readPages(ctx context.Context, ask Request) ([][]byte, error) {
	method := ask.Method
	bad := func(format string, args ...any) error {
		return &api.Error{Kind: api.KindInfrastructure, Server: u.Server(), Message: fmt.Sprintf("server %q: %s: ", u.Server(), method) + fmt.Sprintf(format, args...)}
	}
	var items [][]byte
	params := []byte("{}")
	for range maxPages {
		p, err := wire.ScanParams(method, params)
		if err != nil {
			return nil, err
		}
		page := ask
		page.Params = p
		res, err := u.Call(ctx, &page)
		if err != nil {
			return nil, err
		}
		if res.Error != nil {
			return nil, bad("%s", wire.ParseError(res.Error).Message)
		}
		at, err := wire.Find(res.Result, ListKey(method))
		if err != nil || !at.Ok() {
			return nil, bad("the answer has no %s", ListKey(method))
		}
		list := at.Of(res.Result)
		spans, err := wire.Items(list)
		if err != nil {
			return nil, bad("%v", err)
		}
		for _, sp := range spans {
			items = append(items, sp.Of(list))
		}
		if len(items) > maxItems {
			return nil, bad("more than %d entries", maxItems)
		}
		cursor, _ := wire.Find(res.Result, "nextCursor")
		if c := cursor.Of(res.Result); c == nil || string(c) == "null" || string(c) == `""` {
			return items, nil
		}
		params = append(append([]byte(`{"cursor":`), cursor.Of(res.Result)...), '}')
	}
	return nil, bad("more than %d pages", maxPages)
}
