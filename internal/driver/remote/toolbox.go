package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// toolbox is an orchestrator that is an MCP server: its tools make a session with
// one instance in it, call and list the tools of that, and clean the session up.
type toolbox struct {
	access *access
	limit  int
	mask   *mask
	talk   *talk

	mu    sync.Mutex
	tools map[string]tool // nil before they were asked for
}

var _ orchestrator = (*toolbox)(nil)

// tool is what must be known of a tool of the orchestrator.
type tool struct {
	wrapped bool // takes its arguments as {"args": {...}}
	keyed   bool // takes an idempotency key
}

// The arguments of the tool that makes.
type backends struct {
	Backends []backend `json:"backends"`
}

type backend struct {
	Name     string          `json:"backend_name_ref"`
	Count    int             `json:"num_instances"`
	Template json.RawMessage `json:"template_details,omitempty"`
}

// The arguments of the other tools.
type target struct {
	Session  string          `json:"rk_session_id"`
	Name     string          `json:"backend_name_ref,omitempty"`
	Instance string          `json:"instance_id,omitempty"`
	Tool     string          `json:"tool_name,omitempty"`
	Args     json.RawMessage `json:"tool_args,omitempty"`
}

// toolError is what a tool of the orchestrator says went wrong.
type toolError struct {
	tool, excerpt string
	kind          api.Kind // empty where it does not say whose failure it is
}

func (e *toolError) Error() string { return fmt.Sprintf("its tool %q says: %s", e.tool, e.excerpt) }

// forgotten reports whether what it says is that it does not know the session.
func (e *toolError) forgotten() bool {
	text := strings.ToLower(e.excerpt)
	if !strings.Contains(text, "session") {
		return false
	}
	for _, word := range []string{"not found", "not_found", "no session", "unknown", "no such", "does not exist", "doesn't exist", "expired", "already cleaned", "was closed", "was removed"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// maxPages bounds how many pages of tools are read.
const maxPages = 20

// known asks once what tools there are. It is bounded, as others wait for it.
func (t *toolbox) known(ctx context.Context) (map[string]tool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tools != nil {
		return t.tools, nil
	}
	ctx, cancel := t.talk.web.within(ctx)
	defer cancel()
	tools := make(map[string]tool)
	params := []byte("{}")
	for range maxPages {
		result, err := t.talk.request(ctx, wire.MethodListTools, params, "")
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools []struct {
				Name   string          `json:"name"`
				Schema json.RawMessage `json:"inputSchema"`
			} `json:"tools"`
			Next string `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, fmt.Errorf("its list of tools can't be read: %w", err)
		}
		for _, in := range page.Tools {
			var schema struct {
				Properties map[string]json.RawMessage `json:"properties"`
			}
			_ = json.Unmarshal(in.Schema, &schema) // without properties it is not wrapped
			_, args := schema.Properties["args"]
			tools[in.Name] = tool{
				wrapped: args && len(schema.Properties) == 1,
				keyed:   bytes.Contains(in.Schema, []byte(`"idempotency_key"`)),
			}
		}
		if page.Next == "" {
			break
		}
		params = append(wire.AppendQuote([]byte(`{"cursor":`), page.Next), '}')
	}
	t.tools = tools
	return tools, nil
}

// use calls a tool of the orchestrator and returns the JSON that it answers.
func (t *toolbox) use(ctx context.Context, name string, args any, key string) ([]byte, error) {
	tools, err := t.known(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	in := tools[name]
	if key != "" && in.keyed {
		raw = wire.AppendSpliced(nil, raw, []wire.Edit{wire.InsertMember(raw, 0, "idempotency_key", wire.Quote(key))})
	}
	if in.wrapped {
		raw = append(append([]byte(`{"args":`), raw...), '}')
	}
	params := wire.AppendQuote([]byte(`{"name":`), name)
	params = append(append(append(params, `,"arguments":`...), raw...), '}')
	result, err := t.talk.request(ctx, wire.MethodCallTool, params, key)
	if err != nil {
		return nil, err
	}
	text, isError := textOf(result)
	if isError && !isResult(text) {
		return nil, &toolError{name, t.mask.excerpt(text), kindIn(result)}
	}
	return text, nil
}

// make implements orchestrator. What goes wrong within a tool is rolled back
// there.
func (t *toolbox) make(ctx context.Context, e *entry, m *making) (got made, doubt bool, err error) {
	if e.Asked > 0 {
		tools, err := t.known(ctx)
		if err != nil {
			return made{}, true, err
		}
		if !tools[e.Path].keyed {
			return made{}, true, errKeyless
		}
	}
	var text []byte
	_, err = t.talk.web.again(ctx, func(ctx context.Context) (answer, error) {
		ctx, done := m.attempt(ctx, t.talk.web.timeout)
		defer done()
		var err error
		text, err = t.use(ctx, e.Path, e.Body, e.Key)
		var f *fault
		doubt = doubt && err != nil || errors.As(err, &f) && !f.harmless(e.Asked > 0)
		return answer{}, m.wanted(err)
	})
	if err != nil {
		return made{}, doubt, err
	}
	var s struct {
		ID       string `json:"rk_session_id"`
		Same     string `json:"session_id"`
		Backends []struct {
			Instances []struct {
				ID json.RawMessage `json:"instance_id"`
			} `json:"instances"`
		} `json:"initialized_backends"`
	}
	err = json.Unmarshal(text, &s)
	if s.ID == "" {
		s.ID = s.Same
	}
	if err != nil || checkID(s.ID) != nil {
		return made{}, true, &fault{what: "POST " + shown(t.talk.url), status: http.StatusOK, excerpt: t.mask.excerpt(text), err: fmt.Errorf("which is not what the tool %q makes", e.Path)}
	}
	got.id = s.ID
	if len(s.Backends) > 0 && len(s.Backends[0].Instances) > 0 {
		got.instance = idText(s.Backends[0].Instances[0].ID)
	}
	return got, false, nil
}

// remove implements orchestrator.
func (t *toolbox) remove(ctx context.Context, e *entry) error {
	_, err := t.talk.web.again(ctx, func(ctx context.Context) (answer, error) {
		ctx, cancel := t.talk.web.within(ctx)
		defer cancel()
		_, err := t.use(ctx, t.access.Remote.DeleteTool, target{Session: e.ID}, "")
		return answer{}, err
	})
	var failed *toolError
	if errors.As(err, &failed) && failed.forgotten() {
		return nil
	}
	return err
}

// call implements orchestrator.
func (t *toolbox) call(ctx context.Context, e *entry, tool string, arguments []byte) ([]byte, error) {
	text, err := t.use(ctx, t.access.Remote.CallTool, target{e.ID, t.access.Remote.Resource, e.Instance, tool, arguments}, "")
	if err != nil {
		return nil, t.lostBy(e, err)
	}
	result, err := readResult(text)
	if err != nil {
		return nil, &toolError{tool: t.access.Remote.CallTool, excerpt: t.mask.excerpt(text)}
	}
	return result, nil
}

// list implements orchestrator.
func (t *toolbox) list(ctx context.Context, e *entry, _ []byte) ([]byte, error) {
	text, err := t.use(ctx, t.access.Remote.ListTool, target{Session: e.ID, Name: t.access.Remote.Resource, Instance: e.Instance}, "")
	if err != nil {
		return nil, t.lostBy(e, err)
	}
	if at, err := wire.Find(text, "tools"); err != nil || !at.Ok() || !json.Valid(text) {
		return nil, &toolError{tool: t.access.Remote.ListTool, excerpt: t.mask.excerpt(text)}
	}
	return wire.OneLine(text), nil
}

func (t *toolbox) lostBy(e *entry, err error) error {
	var failed *toolError
	if errors.As(err, &failed) && failed.forgotten() {
		return lost(e, err)
	}
	return err
}

// check implements orchestrator.
func (t *toolbox) check(ctx context.Context) error {
	ctx, cancel := t.talk.web.within(ctx)
	defer cancel()
	tools, err := t.known(ctx)
	if err != nil {
		return err
	}
	r := t.access.Remote
	for _, name := range []string{r.CreateTool, r.CallTool, r.ListTool, r.DeleteTool} {
		if _, ok := tools[name]; !ok {
			return fmt.Errorf("POST %s: it has no tool %q; set the names of its tools in servers.%s.remote", shown(t.talk.url), name, t.access.Server)
		}
	}
	return nil
}

// health implements orchestrator: there is none to ask for.
func (t *toolbox) health(context.Context) error { return nil }
