package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// twin is a server whose names another server has too. What it says names who
// it is.
func twin(who string) *mcp.Server {
	s := sdkServer(who, &mcp.ServerOptions{
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			ref := r.Params.Ref.Name + r.Params.Ref.URI
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{who + " " + ref}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: who + " has " + r.Params.URI}}}, nil
	}
	for _, uri := range []string{"file:///same", "x://odd?q=a%20b&c#d", "urn:isbn:1"} {
		s.AddResource(&mcp.Resource{URI: uri, Name: uri, Description: "of " + who}, read)
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "note://{id}/{+rest}", Name: "note"}, read)
	s.AddPrompt(&mcp.Prompt{Name: "greet", Description: "greets"}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: who + " greets " + r.Params.Arguments["name"]}, nil
	})
	s.AddTool(&mcp.Tool{Name: "links", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.ResourceLink{URI: "file:///same", Name: "linked"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "note://1/embedded/x", Text: "t"}},
		}}, nil
	})
	return s
}

// twins is a gateway before two of them, of the given eras.
func twins(t *testing.T, modernA, modernB bool) *world {
	return open(t, servers("a", serveSDK(t, twin("A"), modernA), "b", serveSDK(t, twin("B"), modernB)))
}

func eachPair(t *testing.T, f func(t *testing.T, w *world, modernClient bool)) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) { f(t, twins(t, era.upstream, !era.upstream), era.client) })
	}
}

func read(t *testing.T, cs *mcp.ClientSession, uri string) *mcp.ResourceContents {
	t.Helper()
	r, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		t.Fatalf("read %s: %v", uri, err)
	}
	if len(r.Contents) != 1 {
		t.Fatalf("read %s: %d contents", uri, len(r.Contents))
	}
	return r.Contents[0]
}

func TestResourcesOfTwoServers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, w *world, modernClient bool) {
		cs := w.connect(t, "/mcp", modernClient, nil)
		list, err := cs.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Resources) != 6 {
			t.Fatalf("%d resources, want 6", len(list.Resources))
		}
		seen := map[string]bool{}
		for i, r := range list.Resources {
			who, own := "A", list.Resources[i%3].Name
			if i >= 3 {
				who = "B"
			}
			if seen[r.URI] {
				t.Errorf("%s is listed twice", r.URI)
			}
			seen[r.URI] = true
			got := read(t, cs, r.URI)
			if want := who + " has " + own; got.Text != want {
				t.Errorf("%s: read %q, want %q", r.URI, got.Text, want)
			}
			if got.URI != r.URI {
				t.Errorf("%s: the contents say they are %s", r.URI, got.URI)
			}
		}
	})
}

func TestTemplatesOfTwoServers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, w *world, modernClient bool) {
		cs := w.connect(t, "/mcp", modernClient, nil)
		list, err := cs.ListResourceTemplates(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.ResourceTemplates) != 2 || list.ResourceTemplates[0].URITemplate == list.ResourceTemplates[1].URITemplate {
			t.Fatalf("got %v", list.ResourceTemplates)
		}
		for i, tmpl := range list.ResourceTemplates {
			// What a client makes of a template by filling it in must be readable.
			uri := strings.NewReplacer("{id}", "7%2F8", "{+rest}", "a/b").Replace(tmpl.URITemplate)
			got := read(t, cs, uri)
			if want := string(rune('A'+i)) + " has note://7%2F8/a/b"; got.Text != want {
				t.Errorf("%s: read %q, want %q", uri, got.Text, want)
			}
			c, err := cs.Complete(t.Context(), &mcp.CompleteParams{
				Ref: &mcp.CompleteReference{Type: "ref/resource", URI: tmpl.URITemplate}, Argument: mcp.CompleteParamsArgument{Name: "id", Value: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := c.Completion.Values, []string{string(rune('A'+i)) + " note://{id}/{+rest}"}; !slices.Equal(got, want) {
				t.Errorf("completed %q, want %q", got, want)
			}
		}
	})
}

func TestPromptsOfTwoServers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, w *world, modernClient bool) {
		cs := w.connect(t, "/mcp", modernClient, nil)
		list, err := cs.ListPrompts(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Prompts) != 2 || list.Prompts[0].Name != "a__greet" || list.Prompts[1].Name != "b__greet" {
			t.Fatalf("got %v", list.Prompts)
		}
		if got := list.Prompts[1].Description; got != "[b] greets" {
			t.Errorf("described as %q", got)
		}
		for i, p := range list.Prompts {
			who := string(rune('A' + i))
			got, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: p.Name, Arguments: map[string]string{"name": "you"}})
			if err != nil {
				t.Fatal(err)
			}
			if got.Description != who+" greets you" {
				t.Errorf("%s: %q", p.Name, got.Description)
			}
			c, err := cs.Complete(t.Context(), &mcp.CompleteParams{
				Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: p.Name}, Argument: mcp.CompleteParamsArgument{Name: "name", Value: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.Completion.Values, []string{who + " greet"}) {
				t.Errorf("%s completed to %q", p.Name, c.Completion.Values)
			}
		}
	})
}

// TestLinksCanBeFollowed checks that a resource a tool result points to can be
// read in the view the result was seen in.
func TestLinksCanBeFollowed(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, w *world, modernClient bool) {
		for _, view := range []struct{ path, tool string }{{"/mcp", "b__links"}, {"/mcp/b", "links"}} {
			cs := w.connect(t, view.path, modernClient, nil)
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: view.tool})
			if err != nil {
				t.Fatal(err)
			}
			link := res.Content[0].(*mcp.ResourceLink)
			if got := read(t, cs, link.URI); got.Text != "B has file:///same" {
				t.Errorf("%s: the link %s leads to %q", view.path, link.URI, got.Text)
			}
			embedded := res.Content[1].(*mcp.EmbeddedResource)
			if got := read(t, cs, embedded.Resource.URI); got.Text != "B has note://1/embedded/x" {
				t.Errorf("%s: the embedded %s leads to %q", view.path, embedded.Resource.URI, got.Text)
			}
		}
	})
}

// TestRewrittenResultsKeepTheRest checks that a result whose links were changed
// is otherwise the server's own bytes.
func TestRewrittenResultsKeepTheRest(t *testing.T) {
	t.Parallel()
	result := `{"z":12345678901234567890,"content":[{"x":1.0,"uri":"file:///\u0061","type":"resource_link","name":"uri","_meta":{"uri":"file:///a"}},{"type":"text","text":"file:///a"},` +
		`{"resource":{"mimeType":"t","uri":"file:///b","text":"\u0041","n":1.0},"type":"resource"},{"type":"hologram","uri":"file:///c"}],"structuredContent":{"uri":"file:///a"},"resultType":"complete"}`
	contents := `{"contents":[{"n":12345678901234567890,"uri":"%s","text":"\u0041 <b>"}], "resultType":"complete","ttlMs":1,"cacheScope":"public","k":1.0}`
	up := script(t, true, map[string]string{"tools/list": plainTools, "tools/call": result,
		"resources/read": fmt.Sprintf(contents, "file:///a")})
	w := open(t, servers("a", up.URL))
	got := string(w.dial(t, "/mcp", `{}`).get("tools/call", `{"name":"a__echo","arguments":{}}`))
	var seen struct {
		Content []struct {
			URI      string
			Resource struct{ URI string }
		}
	}
	decode(t, []byte(got), &seen)
	link, embedded := seen.Content[0].URI, seen.Content[2].Resource.URI
	want := strings.Replace(result, `"uri":"file:///\u0061"`, `"uri":"`+link+`"`, 1)
	want = strings.Replace(want, `"uri":"file:///b"`, `"uri":"`+embedded+`"`, 1)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	uri, _ := json.Marshal(link)
	gotRead := string(w.dial(t, "/mcp", `{}`).get("resources/read", `{"uri":`+string(uri)+`}`))
	if want := fmt.Sprintf(contents, link); gotRead != want {
		t.Errorf("got\n%s\nwant\n%s", gotRead, want)
	}
	if in := up.last(t, "resources/read"); !strings.Contains(string(in.Params), `"uri":"file:///a"`) {
		t.Errorf("the server was asked for %s", in.Params)
	}
	if in := up.last(t, "resources/read"); in.header.Get("Mcp-Name") != "file:///a" {
		t.Errorf("the server was sent Mcp-Name %q", in.header.Get("Mcp-Name"))
	}
}
