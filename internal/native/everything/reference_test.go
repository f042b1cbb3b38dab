package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func unzip(t *testing.T, b []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// accepted fills in every field, as the two servers treat what is left out
// differently: the SDK adds defaults.
func accepted() mcp.ElicitResult {
	return mcp.ElicitResult{Action: "accept", Content: map[string]any{
		"name": "Bo <b>", "check": false, "firstLine": "Once.", "email": "bo@example.com", "homepage": "https://example.com", "birthdate": "2000-01-02",
		"integer": 7.0, "number": 0.5, "untitledSingleSelectEnum": "Joey", "untitledMultipleSelectEnum": []any{"Bass"},
		"titledSingleSelectEnum": "hero-2", "titledMultipleSelectEnum": []any{"fish-2", "fish-3"}, "legacyTitledEnum": "pet-3",
	}}
}

var clock = regexp.MustCompile(`\d{1,2}:\d\d:\d\d [AP]M`)

// shown is a result as it is compared: without times, ids of its own and
// pictures, and with files unpacked.
func shown(t *testing.T, res *mcp.CallToolResult) any {
	t.Helper()
	var out []any
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			out = append(out, map[string]any{"text": clock.ReplaceAllString(c.Text, "TIME"), "annotations": c.Annotations})
		case *mcp.ImageContent:
			out = append(out, map[string]any{"image": c.MIMEType, "annotations": c.Annotations})
		case *mcp.EmbeddedResource:
			out = append(out, contents(t, c.Resource))
		case *mcp.ResourceLink:
			out = append(out, map[string]any{"link": c.URI, "name": c.Name, "mime": c.MIMEType, "description": c.Description})
		default:
			t.Fatalf("content %T", c)
		}
	}
	return map[string]any{"content": out, "structured": res.StructuredContent, "isError": res.IsError}
}

func contents(t *testing.T, r *mcp.ResourceContents) any {
	blob := string(r.Blob)
	if r.MIMEType == "application/gzip" {
		blob = unzip(t, r.Blob)
	}
	return map[string]any{"uri": r.URI, "mime": r.MIMEType, "text": clock.ReplaceAllString(r.Text, "TIME"), "blob": clock.ReplaceAllString(blob, "TIME")}
}

// TestSameAsReference makes the same calls to server-everything. Compared are
// the lists, what both ask their client, and the results of calls with one
// right answer. Left out: prose (descriptions, instructions, documents, the
// texts of errors and of the toggles), the picture, titles, and what hangs on
// tasks, which the SDK has not.
func TestSameAsReference(t *testing.T) {
	rc := newCaller(accepted())
	ref := nativetest.ConnectReference(t, testkit.NPM(t, "mcp-server-everything"), rc.options())
	bareRef := nativetest.ConnectReference(t, testkit.NPM(t, "mcp-server-everything"), &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			s := build(t, nil)
			c := newCaller(accepted())
			cs := connect(t, s, era, c)
			t.Run("lists", func(t *testing.T) {
				nativetest.SameTools(t, cs, ref)
				nativetest.SameTools(t, nativetest.Connect(t, s.Server, era, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}), bareRef)
				nativetest.SamePrompts(t, cs, ref)
				nativetest.Same(t, "resources", resources(t, cs), resources(t, ref))
				nativetest.Same(t, "templates", templates(t, cs), templates(t, ref))
			})
			t.Run("calls", func(t *testing.T) {
				for _, call := range calls() {
					got, want := nativetest.Call(t, cs, call.tool, call.args), nativetest.Call(t, ref, call.tool, call.args)
					what := call.tool + " " + nativetest.Text(want)
					switch {
					case want.IsError:
						if !got.IsError {
							t.Errorf("%s %v succeeds; the reference says %s", call.tool, call.args, nativetest.Text(want))
						}
					case call.prose:
						g, w := shown(t, got).(map[string]any)["content"].([]any), shown(t, want).(map[string]any)["content"].([]any)
						if got.IsError || len(g) != len(w) {
							t.Errorf("%s: %v, want %v", what, g, w)
						}
					default:
						nativetest.Same(t, what, shown(t, got), shown(t, want))
					}
				}
			})
			t.Run("questions", func(t *testing.T) { sameQuestions(t, cs, ref, c, rc) })
			t.Run("prompts", func(t *testing.T) { samePromptAnswers(t, cs, ref) })
			t.Run("completions", func(t *testing.T) { sameCompletions(t, cs, ref) })
			t.Run("reads", func(t *testing.T) { sameReads(t, cs, ref) })
		})
	}
}

type call struct {
	tool  string
	args  map[string]any
	prose bool // each server words its own answer
}

func calls() []call {
	out := []call{
		{tool: "echo", args: map[string]any{"message": "hi\n<b>ü𝄞"}},
		{tool: "echo", args: map[string]any{"message": "hi", "unknown": 1}},
		{tool: "echo", args: map[string]any{}},
		{tool: "echo", args: map[string]any{"message": 5}},
		{tool: "get-tiny-image", args: map[string]any{}, prose: true},
		{tool: "get-resource-links", args: map[string]any{}},
		{tool: "trigger-long-running-operation", args: map[string]any{"duration": 0.02, "steps": 2}},
		{tool: "trigger-long-running-operation", args: map[string]any{"duration": "x"}},
		{tool: "toggle-simulated-logging", args: map[string]any{}, prose: true},
		{tool: "toggle-simulated-logging", args: map[string]any{}, prose: true},
		{tool: "toggle-subscriber-updates", args: map[string]any{}, prose: true},
		{tool: "toggle-subscriber-updates", args: map[string]any{}, prose: true},
		{tool: "trigger-sampling-request", args: map[string]any{}},
		{tool: "trigger-url-elicitation", args: map[string]any{"url": "nope"}},
		{tool: "trigger-url-elicitation", args: map[string]any{}},
	}
	for _, ab := range [][2]any{{1, 2}, {0.1, 0.2}, {-1.5, 1e21}, {1e-7, 0}, {123456789, 987654321}, {"1", 2}, {nil, 1}} {
		out = append(out, call{tool: "get-sum", args: map[string]any{"a": ab[0], "b": ab[1]}})
	}
	for _, kind := range []string{"error", "success", "debug", "other"} {
		out = append(out, call{tool: "get-annotated-message", args: map[string]any{"messageType": kind}},
			call{tool: "get-annotated-message", args: map[string]any{"messageType": kind, "includeImage": true}})
	}
	for _, city := range []string{"New York", "Chicago", "Los Angeles", "Paris"} {
		out = append(out, call{tool: "get-structured-content", args: map[string]any{"location": city}})
	}
	for _, n := range []any{1, 2, 10, 2.5, 0, 11, "3"} {
		out = append(out, call{tool: "get-resource-links", args: map[string]any{"count": n}})
	}
	for _, args := range []map[string]any{{}, {"resourceId": 7}, {"resourceType": "Blob", "resourceId": 2}, {"resourceId": 0}, {"resourceId": -1}, {"resourceId": 1.5}, {"resourceType": "Other"}} {
		out = append(out, call{tool: "get-resource-reference", args: args})
	}
	for _, data := range []string{"data:text/plain;base64,aGVsbG8=", "data:text/plain,hello%20w", "data:,", "ftp://example.com/x", "nope"} {
		out = append(out, call{tool: "gzip-file-as-resource", args: map[string]any{"name": "a.gz", "data": data}},
			call{tool: "gzip-file-as-resource", args: map[string]any{"name": "a.gz", "data": data, "outputType": "resource"}})
	}
	return out
}

func sameQuestions(t *testing.T, cs, ref *mcp.ClientSession, c, rc *caller) {
	for _, action := range []string{"accept", "decline", "cancel"} {
		for _, caller := range []*caller{c, rc} {
			caller.mu.Lock()
			caller.elicited, caller.sampled = nil, nil
			caller.answer = accepted()
			if caller.answer.Action = action; action != "accept" {
				caller.answer.Content = nil
			}
			caller.mu.Unlock()
		}
		nativetest.Same(t, "form "+action, shown(t, nativetest.Call(t, cs, "trigger-elicitation-request", nil)), shown(t, nativetest.Call(t, ref, "trigger-elicitation-request", map[string]any{})))
		args := map[string]any{"url": "https://example.com/x", "elicitationId": "e1"}
		nativetest.Same(t, "url "+action, shown(t, nativetest.Call(t, cs, "trigger-url-elicitation", args)), shown(t, nativetest.Call(t, ref, "trigger-url-elicitation", args)))
		args = map[string]any{"prompt": "p", "maxTokens": 9}
		nativetest.Same(t, "sampling", shown(t, nativetest.Call(t, cs, "trigger-sampling-request", args)), shown(t, nativetest.Call(t, ref, "trigger-sampling-request", args)))

		asked := func(c *caller) any {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.elicited) != 2 || len(c.sampled) != 1 {
				t.Fatalf("asked %d and %d times", len(c.elicited), len(c.sampled))
			}
			u := *c.elicited[1]
			u.Meta = nil
			m := *c.sampled[0]
			m.Meta = nil
			return []any{c.elicited[0].Message, nativetest.Schema(c.elicited[0].RequestedSchema), u, m}
		}
		nativetest.Same(t, "questions", asked(c), asked(rc))
	}
	// Of the error path the code and the form of its data count.
	bare := newCaller(mcp.ElicitResult{}).options()
	bare.ElicitationHandler = nil
	refBare := nativetest.ConnectReference(t, testkit.NPM(t, "mcp-server-everything"), bare)
	_, err := refBare.CallTool(t.Context(), &mcp.CallToolParams{Name: "trigger-url-elicitation", Arguments: map[string]any{"url": "https://example.com/x", "errorPath": true}})
	var we *jsonrpc.Error
	if !errors.As(err, &we) || we.Code != mcp.CodeURLElicitationRequired || !strings.Contains(string(we.Data), `"elicitations"`) {
		t.Errorf("the reference answers the error path with %v", err)
	}
}

func samePromptAnswers(t *testing.T, cs, ref *mcp.ClientSession) {
	for _, p := range []*mcp.GetPromptParams{
		{Name: "simple-prompt"},
		{Name: "args-prompt", Arguments: map[string]string{"city": "Oslo"}},
		{Name: "args-prompt", Arguments: map[string]string{"city": "Austin", "state": "Texas"}},
		{Name: "args-prompt", Arguments: map[string]string{"state": "Texas"}},
		{Name: "completable-prompt", Arguments: map[string]string{"department": "Sales", "name": "Eve"}},
		{Name: "completable-prompt", Arguments: map[string]string{"department": "Sales"}},
		{Name: "resource-prompt", Arguments: map[string]string{"resourceType": "Text", "resourceId": "3"}},
		{Name: "resource-prompt", Arguments: map[string]string{"resourceType": "Blob", "resourceId": "4"}},
		{Name: "resource-prompt", Arguments: map[string]string{"resourceType": "Other", "resourceId": "4"}},
		{Name: "resource-prompt", Arguments: map[string]string{"resourceType": "Text", "resourceId": "x"}},
		{Name: "resource-prompt", Arguments: map[string]string{"resourceType": "Text", "resourceId": "0"}},
		{Name: "nope"},
	} {
		got, err := cs.GetPrompt(t.Context(), p)
		want, wantErr := ref.GetPrompt(t.Context(), p)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s %v: err = %v, reference %v", p.Name, p.Arguments, err, wantErr)
			continue
		}
		if err != nil {
			continue
		}
		messages := func(r *mcp.GetPromptResult) any {
			var out []any
			for _, m := range r.Messages {
				switch c := m.Content.(type) {
				case *mcp.TextContent:
					out = append(out, []any{m.Role, c.Text})
				case *mcp.EmbeddedResource:
					out = append(out, []any{m.Role, contents(t, c.Resource)})
				default:
					t.Fatalf("content %T", c)
				}
			}
			return out
		}
		nativetest.Same(t, "prompt "+p.Name, messages(got), messages(want))
	}
}

func sameCompletions(t *testing.T, cs, ref *mcp.ClientSession) {
	prompt := func(name, arg, value string, ctx map[string]string) *mcp.CompleteParams {
		p := &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: name}, Argument: mcp.CompleteParamsArgument{Name: arg, Value: value}}
		if ctx != nil {
			p.Context = &mcp.CompleteContext{Arguments: ctx}
		}
		return p
	}
	resource := func(uri, arg, value string) *mcp.CompleteParams {
		return &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: uri}, Argument: mcp.CompleteParamsArgument{Name: arg, Value: value}}
	}
	for _, p := range []*mcp.CompleteParams{
		prompt("completable-prompt", "department", "", nil),
		prompt("completable-prompt", "department", "S", nil),
		prompt("completable-prompt", "department", "s", nil),
		prompt("completable-prompt", "name", "", nil),
		prompt("completable-prompt", "name", "", map[string]string{"department": "Engineering"}),
		prompt("completable-prompt", "name", "D", map[string]string{"department": "Sales"}),
		prompt("completable-prompt", "name", "", map[string]string{"department": "Marketing"}),
		prompt("completable-prompt", "name", "K", map[string]string{"department": "Support"}),
		prompt("completable-prompt", "name", "K", map[string]string{"department": "None"}),
		prompt("resource-prompt", "resourceType", "", nil),
		prompt("resource-prompt", "resourceType", "B", nil),
		prompt("resource-prompt", "resourceId", "12", nil),
		prompt("resource-prompt", "resourceId", "x", nil),
		prompt("args-prompt", "city", "O", nil),
		prompt("nope", "city", "O", nil),
		resource("demo://resource/dynamic/text/{resourceId}", "resourceId", "5"),
		resource("demo://resource/dynamic/blob/{resourceId}", "resourceId", "0"),
		resource("demo://resource/dynamic/blob/{resourceId}", "other", "1"),
		resource("demo://nope", "resourceId", "5"),
	} {
		got, err := cs.Complete(t.Context(), p)
		want, wantErr := ref.Complete(t.Context(), p)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%+v: err = %v, reference %v", p, err, wantErr)
			continue
		}
		if err == nil {
			nativetest.Same(t, "completion of "+p.Argument.Name+" "+p.Argument.Value, got.Completion, want.Completion)
		}
	}
}

func sameReads(t *testing.T, cs, ref *mcp.ClientSession) {
	for _, uri := range []string{"demo://resource/dynamic/text/7", "demo://resource/dynamic/blob/8", "demo://resource/session/a.gz", "demo://resource/dynamic/text/x", "demo://resource/dynamic/text/0", "demo://nope"} {
		got, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		want, wantErr := ref.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: err = %v, reference %v", uri, err, wantErr)
			continue
		}
		if err == nil {
			nativetest.Same(t, uri, contents(t, got.Contents[0]), contents(t, want.Contents[0]))
		}
	}
}

func resources(t *testing.T, cs *mcp.ClientSession) any {
	out := map[string]any{}
	for r, err := range cs.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		// What calls have made is not there from the start.
		if !strings.HasPrefix(r.URI, "demo://resource/session/") {
			out[r.URI] = []string{r.Name, r.MIMEType}
		}
	}
	return out
}

func templates(t *testing.T, cs *mcp.ClientSession) any {
	out := map[string]any{}
	for r, err := range cs.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		out[r.URITemplate] = []string{r.Name, r.MIMEType}
	}
	return out
}
