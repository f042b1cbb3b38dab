package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// At ?view=search two tools stand for all of a view, so that a model's context holds
// two definitions and not hundreds. One finds tools, the other calls them: its call
// becomes the call of the tool itself before anything looks at it, and so does
// everything that a call of that tool does.

const (
	viewKey    = "view"
	viewSearch = "search"

	searchName = "search_tools"
	callName   = "call_tool"
)

// Bounds of what is asked for, and of what is found: the answer is for a model to read.
const (
	maxQueryText   = 1000
	foundByDefault = 5
	foundAtMost    = 50
	maxFound       = 64 << 10
	maxFoundText   = 4 << 10  // of one description
	maxFoundSchema = 24 << 10 // of one schema
)

var searchTools = []byte(`{"tools":[` +
	`{"name":"` + searchName + `","title":"Search tools","description":"Find the tools that do what you need. There are many more tools than the two that are listed; this gives you the names, descriptions and input schemas of those that fit best. Describe what you want to do in a few words, such as \"create issue\" or \"read file\", and try other words when nothing fits. Then call what you found with ` + callName + `.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"query":{"type":"string","maxLength":1000,"description":"Words that a tool's name, description or parameters have."},` +
	`"limit":{"type":"integer","minimum":1,"maximum":50,"default":5,"description":"How many tools to give at most."}},"required":["query"]},` +
	`"annotations":{"readOnlyHint":true,"openWorldHint":false}},` +
	`{"name":"` + callName + `","title":"Call a tool","description":"Call a tool that ` + searchName + ` found. The result is that of the tool.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","description":"The tool's name as ` + searchName + ` gave it."},` +
	`"arguments":{"type":"object","description":"The tool's arguments, as its inputSchema says."}},"required":["name"]}}]}`)

var searchInstructions = wire.Quote("Find tools with " + searchName + ", and call them with " + callName + ".")

// choose reads which view a URL asks for.
func (v *view) choose(query url.Values) *api.Error {
	switch given := query[viewKey]; {
	case len(given) == 0:
	case len(given) == 1 && given[0] == viewSearch:
		v.search = true
	default:
		return invalid("%s in the URL must be %s", viewKey, viewSearch)
	}
	return nil
}

const keptSearch = "?" + viewSearch

// kept is the view as the store has it, and keptView reads that.
func (v view) kept() string {
	if v.search {
		return v.server + keptSearch
	}
	return v.server
}

func keptView(text string) view {
	server, search := strings.CutSuffix(text, keptSearch)
	return view{server, search}
}

// tells reports whether those who look at the view care for a notification. Where two
// tools stand for all, their list never changes.
func (v view) tells(method string) bool { return !v.search || method != wire.NoteToolsChanged }

// unwrap makes the call of a tool of a request to call_tool. One that can't be read
// stays, and is refused as a call.
func (x *exchange) unwrap() {
	if !x.view.search || x.method != wire.MethodCallTool || x.params.Name() != callName {
		return
	}
	if p, err := unwrapped(x.params); err == nil {
		// The caller's headers are those of another tool's arguments.
		x.params, x.header, x.view.search = p, nil, false
	}
}

// unwrapped are the params of the call that a call_tool asks for.
func unwrapped(p wire.Params) (wire.Params, error) {
	at, err := wire.Find(p.Raw, "arguments")
	if err != nil {
		return p, invalidParams(err.Error())
	}
	given := at.Of(p.Raw)
	name, err := wire.Find(given, "name")
	if err != nil {
		return p, invalidParams("arguments of " + callName + ": " + err.Error())
	}
	args, err := wire.Find(given, "arguments")
	if err != nil {
		return p, invalidParams("arguments of " + callName + ": " + err.Error())
	}
	if !name.Ok() || given[name.Start] != '"' {
		return p, invalidParams(callName + " needs a name, that of a tool which " + searchName + " found")
	}
	with := args.Of(given)
	switch {
	case with == nil || string(with) == "null":
		with = []byte("{}")
	case with[0] != '{':
		return p, invalidParams("arguments of " + callName + " must be an object, the arguments of the tool")
	}
	raw := wire.AppendSpliced(nil, p.Raw, []wire.Edit{{At: p.Target, With: name.Of(given)}, {At: at, With: with}})
	return wire.ScanParams(wire.MethodCallTool, raw)
}

// searchCall answers a call in a view of two tools.
func (x *exchange) searchCall(ctx context.Context, name string) (*upstream.Result, error) {
	switch name {
	case searchName:
		return x.search(ctx)
	case callName:
		_, err := unwrapped(x.params) // there is one, or it would not have come here
		return nil, err
	}
	return nil, x.unknown(x.table(), name, invalidParams("Unknown tool: "+name+"; call it with "+callName+" if "+searchName+" finds it"))
}

// A foundTool is what is told of a tool.
type foundTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	Omitted     string          `json:"omitted,omitempty"` // what is too large to be told
}

// search answers search_tools.
func (x *exchange) search(ctx context.Context) (*upstream.Result, error) {
	var in struct {
		Query *string `json:"query"`
		Limit *int    `json:"limit"`
	}
	at, err := wire.Find(x.params.Raw, "arguments")
	if err == nil {
		err = json.Unmarshal(orEmpty(at.Of(x.params.Raw)), &in)
	}
	switch {
	case err != nil || in.Query == nil || len(*in.Query) > maxQueryText:
		return nil, invalidParams(fmt.Sprintf("%s needs a query, a text of at most %d bytes, and takes a limit, a number", searchName, maxQueryText))
	case in.Limit == nil:
		in.Limit = new(foundByDefault)
	case *in.Limit < 1 || *in.Limit > foundAtMost:
		return nil, invalidParams(fmt.Sprintf("limit must be a number from 1 to %d", foundAtMost))
	}
	tools, missing := x.allTools(ctx)
	order := rankTools(strings.TrimSpace(*in.Query), tools)
	out := struct {
		Tools   []foundTool   `json:"tools"`
		Found   int           `json:"found"`    // that fit
		Of      int           `json:"searched"` // that there are
		Missing []api.Missing `json:"missing,omitempty"`
	}{Tools: []foundTool{}, Found: len(order), Of: len(tools), Missing: missing}
	size := 0
	for _, i := range order[:min(len(order), *in.Limit)] {
		f := found(tools[i])
		if size += len(f.Name) + len(f.Description) + len(f.InputSchema); size > maxFound {
			break
		}
		out.Tools = append(out.Tools, f)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(b.Bytes())
	res := append([]byte(`{"content":[{"type":"text","text":`), wire.Quote(string(text))...)
	res = append(append(res, `}],"structuredContent":`...), text...)
	return &upstream.Result{Result: append(res, '}')}, nil
}

// allTools are the tools of the view as the principal sees them, and the servers that
// could not be asked.
func (x *exchange) allTools(ctx context.Context) (tools [][]byte, missing []api.Missing) {
	list, t := *x, x.table()
	list.method = wire.MethodListTools
	merged := x.view.merged()
	parts, missing := list.listSome(ctx, t, list.method, t.cat.Config.Limits.ListWait, func(s *shape) bool {
		return merged && s.listed || s.entry.ID == x.view.server
	})
	for _, p := range parts {
		if merged {
			missing = append(missing, list.shadowed(t, p)...)
		}
		for _, item := range p.items {
			if item = p.shape.editTool(item, t, merged, x.who); item != nil && len(wire.FindString(item, "name")) <= maxToolName {
				tools = append(tools, item)
			}
		}
	}
	return tools, missing
}

func found(tool []byte) foundTool {
	f := foundTool{Name: wire.FindString(tool, "name"), Description: wire.FindString(tool, "description")}
	if len(f.Description) > maxFoundText {
		f.Description = strings.ToValidUTF8(f.Description[:maxFoundText], "") + "..."
	}
	if at, err := wire.Find(tool, "inputSchema"); err == nil && at.Ok() {
		if f.InputSchema = at.Of(tool); len(f.InputSchema) > maxFoundSchema {
			f.Omitted = fmt.Sprintf("its inputSchema has %d bytes, too many for a search; tools/list has it at this URL without ?%s=%s", len(f.InputSchema), viewKey, viewSearch)
			f.InputSchema = nil
		}
	}
	return f
}
