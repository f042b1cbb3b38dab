package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

type phrase struct {
	Text   string `json:"text" jsonschema:"what to translate"`
	Target string `json:"target" enum:"es,de" default:"es"`
}

func translate(_ context.Context, in phrase) (string, error) {
	words := map[string]string{"es": "Hola mundo", "de": "Hallo Welt"}
	if in.Text != "Hello world" {
		return "", errors.New("I know only one phrase")
	}
	return words[in.Target], nil
}

// exampleURL is a server with the tool translate.
func exampleURL() (url string, stop func()) {
	ts := httptest.NewServer(node.Handler(node.Func("translate", "Translates a phrase.", translate)))
	return ts.URL, func() {
		ts.CloseClientConnections()
		ts.Close()
	}
}

// must is for examples; programs handle their errors.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Use the tools of a server.
func Example() {
	url, stop := exampleURL()
	defer stop()
	ctx := context.Background()

	server, err := node.Connect(ctx, node.HTTP(url+"/streamable-http"), nil) // or .../sse
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	for _, n := range server.Nodes() {
		fmt.Println(n.Tool().Name)
	}
	translator, err := server.Node("translate")
	if err != nil {
		log.Fatal(err)
	}
	result, err := translator.Call(ctx, map[string]any{"text": "Hello world", "target": "es"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Text())
	// Output:
	// translate
	// Hola mundo
}

// Serve a function as a tool.
func Example_expose() {
	type numbers struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	add := node.Func("add", "Return a + b.", func(_ context.Context, in numbers) (int, error) {
		return in.A + in.B, nil
	})
	// A program would end here with
	//	log.Fatal(node.Serve(ctx, "0.0.0.0:8080", add))
	ts := httptest.NewServer(node.Handler(add))
	defer ts.Close()

	server := must(node.Connect(context.Background(), node.HTTP(ts.URL+"/streamable-http"), nil))
	defer server.Close()
	n := must(server.Node("add"))
	fmt.Println(must(node.Call[numbers, int](context.Background(), n, numbers{2, 3})))
	// Output: 5
}

// A proxy serves the tools of another server as they are.
func Example_proxy() {
	url, stop := exampleURL()
	defer stop()

	upstream := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), nil))
	defer upstream.Close()
	proxy := httptest.NewServer(node.Handler(upstream))
	defer proxy.Close()

	server := must(node.Connect(context.Background(), node.HTTP(proxy.URL+"/mcp"), nil))
	defer server.Close()
	n := must(server.Node("translate"))
	fmt.Println(must(node.Call[phrase, string](context.Background(), n, phrase{"Hello world", "de"})))
	// Output: Hallo Welt
}

// Send headers of your own.
func ExampleConnect() {
	url, stop := exampleURL()
	defer stop()

	client := &http.Client{Transport: withHeader{"Authorization", "Bearer " + os.Getenv("TRANSLATOR_TOKEN")}}
	server, err := node.Connect(context.Background(), func() (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: client}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	fmt.Println(len(server.Nodes()))
	// Output: 1
}

type withHeader struct{ name, value string }

func (h withHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(h.name, h.value)
	return http.DefaultTransport.RoundTrip(req)
}

func ExampleOptions() {
	url, stop := exampleURL()
	defer stop()
	server := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), &node.Options{
		CallTimeout:    10 * time.Second,
		Implementation: &mcp.Implementation{Name: "my agent", Version: "1.0"},
		Client: &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				log.Println(r.Params.Message)
			},
		},
	}))
	defer server.Close()
	// Output:
}

func ExampleHTTP() {
	url, stop := exampleURL()
	defer stop()
	server := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), nil))
	fmt.Println(server.Close())
	// Output: <nil>
}

func ExampleSSE() {
	url, stop := exampleURL()
	defer stop()
	server := must(node.Connect(context.Background(), node.SSE(url+"/sse"), nil))
	fmt.Println(server.Close())
	// Output: <nil>
}

func ExampleCommand() {
	_, err := node.Connect(context.Background(), node.Command("no-such-server", "--stdio"), nil)
	fmt.Println(err)
	// Output: connecting to command "no-such-server": exec: "no-such-server": executable file not found in $PATH
}

func ExampleServer() {
	url, stop := exampleURL()
	defer stop()
	server := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), nil))
	defer server.Close()
	_, err := server.Node("sing")
	fmt.Println(strings.ReplaceAll(err.Error(), url, "http://host"))
	// Output: http://host/mcp has no tool "sing"; it has: translate
}

func ExampleServer_Session() {
	url, stop := exampleURL()
	defer stop()
	server := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), nil))
	defer server.Close()
	session := must(server.Session(context.Background()))
	fmt.Println(session.InitializeResult().ProtocolVersion)
	// Output: 2026-07-28
}

func ExampleServer_Close() {
	server, err := node.Connect(context.Background(), node.Command("no-such-server"), nil)
	fmt.Println(err != nil, server.Close(), server.Close())
	// Output: true <nil> <nil>
}

func ExampleFunc() {
	type query struct {
		City string `json:"city" jsonschema:"the name of a city"`
		Unit string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
	}
	type weather struct {
		Degrees float64 `json:"degrees"`
		Unit    string  `json:"unit"`
	}
	n := node.Func("weather", "The weather of a city.", func(_ context.Context, q query) (weather, error) {
		return weather{21.5, q.Unit}, nil
	}, func(t *mcp.Tool) {
		t.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
	})
	result := must(n.Call(context.Background(), map[string]string{"city": "Vienna"}))
	fmt.Println(result.Text())
	// Output: {"degrees":21.5,"unit":"celsius"}
}

func ExampleCall() {
	n := node.Func("translate", "Translates a phrase.", translate)
	ctx := context.Background()
	fmt.Println(node.Call[phrase, string](ctx, n, phrase{"Hello world", "es"}))
	_, err := node.Call[phrase, string](ctx, n, phrase{"Good night", "es"})
	fmt.Println(err)
	_, err = node.Call[struct{ Words []string }, string](ctx, n, struct{ Words []string }{})
	fmt.Println(errors.Is(err, node.ErrNotSent))
	// Output:
	// Hola mundo <nil>
	// tool "translate": the tool failed: I know only one phrase
	// true
}

func ExampleNew() {
	n := node.New(&mcp.Tool{
		Name:        "echo",
		InputSchema: json.RawMessage(`{"type": "object", "properties": {"n": {"type": "integer"}}}`),
	}, func(_ context.Context, args json.RawMessage) (*node.Result, error) {
		return node.NewResult(&mcp.CallToolResult{StructuredContent: args})
	})
	result := must(n.Call(context.Background(), json.RawMessage(`{"n": 9007199254740993}`)))
	fmt.Println(string(result.Raw))
	// Output: {"content":[],"structuredContent":{"n":9007199254740993}}
}

// Middleware is a function around a node.
func ExampleNode_Wrap() {
	logged := func(n *node.Node) *node.Node {
		return n.Wrap(func(ctx context.Context, args json.RawMessage) (*node.Result, error) {
			fmt.Println("calling", n.Tool().Name, string(args))
			return n.Call(ctx, args)
		})
	}
	n := logged(node.Func("translate", "Translates a phrase.", translate))
	fmt.Println(must(n.Call(context.Background(), phrase{"Hello world", "es"})).Text())
	// Output:
	// calling translate {"text":"Hello world","target":"es"}
	// Hola mundo
}

func ExampleNode() {
	n := node.Func("translate", "Translates a phrase.", translate)
	fmt.Println(n.Tool().Description)
	fmt.Println(must(n.Call(context.Background(), phrase{Text: "Hello world", Target: "de"})).Text())
	// Output:
	// Translates a phrase.
	// Hallo Welt
}

func ExampleResult() {
	result := must(node.NewResult(&mcp.CallToolResult{StructuredContent: map[string]any{"id": json.Number("12345678901234567890")}}))
	var v struct{ ID json.Number }
	fmt.Println(result.Decode(&v), v.ID, result.Err())
	// Output: <nil> 12345678901234567890 <nil>
}

func ExampleResult_Err() {
	n := node.Func("translate", "Translates a phrase.", translate)
	result, err := n.Call(context.Background(), phrase{"Good night", "es"})
	fmt.Println(err, errors.Is(result.Err(), node.ErrTool), result.Text())
	// Output: <nil> true I know only one phrase
}

func ExampleResult_MCP() {
	result := &node.Result{Raw: json.RawMessage(`{"content": [{"type": "text", "text": "hi"}], "unknown": 1}`)}
	fmt.Println(len(must(result.MCP()).Content), result.Text())
	// Output: 1 hi
}

func ExampleNewResult() {
	result := must(node.NewResult(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hi"}}}))
	fmt.Println(result.Text())
	// Output: hi
}

func ExampleMerge() {
	here := node.Func("translate", "Translates a phrase.", translate)
	url, stop := exampleURL()
	defer stop()
	there := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), nil))
	defer there.Close()

	both := must(node.Merge(map[string]node.Source{"here": here, "there": there}))
	for _, n := range both.Nodes() {
		fmt.Println(n.Tool().Name, n.Tool().Description)
	}
	// Output:
	// here__translate [here] Translates a phrase.
	// there__translate [there] Translates a phrase.
}

// readOnly has the tools of a server that change nothing.
type readOnly struct{ *node.Server }

func (r readOnly) Nodes() (safe []*node.Node) {
	for _, n := range r.Server.Nodes() {
		if a := n.Tool().Annotations; a != nil && a.ReadOnlyHint {
			safe = append(safe, n)
		}
	}
	return safe
}

// A source of your own can choose among the tools of a server, or wrap each of them.
// It follows changes of the list, as it embeds the server.
func ExampleSource() {
	url, stop := exampleURL()
	defer stop()
	server := must(node.Connect(context.Background(), node.HTTP(url+"/mcp"), nil))
	defer server.Close()
	var source node.Source = readOnly{server}
	fmt.Println(len(server.Nodes()), len(source.Nodes()))
	// Output: 1 0
}

func ExampleExpose() {
	server := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1.0"}, &mcp.ServerOptions{Instructions: "Be quiet."})
	server.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "a greeting"}, nil
	})
	fmt.Println(node.Expose(server, node.Func("translate", "Translates a phrase.", translate)))
	// Output: <nil>
}

func ExampleHandler() {
	mux := http.NewServeMux()
	mux.Handle("/", node.Handler(node.Func("translate", "Translates a phrase.", translate)))
	ts := httptest.NewServer(mux)
	defer ts.Close()
	server := must(node.Connect(context.Background(), node.HTTP(ts.URL+"/mcp"), nil))
	defer server.Close()
	fmt.Println(len(server.Nodes()))
	// Output: 1
}

func ExampleServe() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a program would end with Ctrl-C: signal.NotifyContext
	fmt.Println(node.Serve(ctx, "127.0.0.1:0", node.Func("translate", "Translates a phrase.", translate)))
	// Output: <nil>
}

func ExampleServeStdio() {
	// The whole of a server that another program starts.
	main := func() {
		err := node.ServeStdio(context.Background(), node.Func("translate", "Translates a phrase.", translate))
		if err != nil {
			log.Fatal(err)
		}
	}
	_ = main
	// Output:
}

func ExampleRequest() {
	n := node.Func("count", "Counts, and says how far it is.", func(ctx context.Context, _ struct{}) (string, error) {
		if req := node.Request(ctx); req != nil && req.Params.GetProgressToken() != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1})
		}
		return "done", nil
	})
	fmt.Println(must(n.Call(context.Background(), nil)).Text())
	// Output: done
}

// A function that needs input of the client's user returns what it asks, and is called
// again with the answer.
func ExampleRequest_input() {
	greet := node.Func("greet", "Greets the user.", func(ctx context.Context, _ struct{}) (*mcp.CallToolResult, error) {
		if answer, ok := node.Request(ctx).Params.InputResponses["name"].(*mcp.ElicitResult); ok {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("Hello ", answer.Content["name"])}}}, nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
			Message:         "What is your name?",
			RequestedSchema: json.RawMessage(`{"type": "object", "properties": {"name": {"type": "string"}}}`),
		}}}, nil
	})
	ts := httptest.NewServer(node.Handler(greet))
	defer ts.Close()

	// The client asks its user in the handler, and calls again by itself.
	server := must(node.Connect(context.Background(), node.HTTP(ts.URL+"/mcp"), &node.Options{Client: &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			fmt.Println(r.Params.Message)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
	}}))
	defer server.Close()
	n := must(server.Node("greet"))
	fmt.Println(must(n.Call(context.Background(), nil)).Text())
	// Output:
	// What is your name?
	// Hello Ada
}

func ExampleWithProgress() {
	load := node.Func("load", "Loads, and says how far it is.", func(ctx context.Context, _ struct{}) (string, error) {
		req := node.Request(ctx)
		for step := range 3 {
			p := &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(step + 1), Total: 3}
			if err := req.Session.NotifyProgress(ctx, p); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	ts := httptest.NewServer(node.Handler(load))
	defer ts.Close()
	server := must(node.Connect(context.Background(), node.HTTP(ts.URL+"/mcp"), nil))
	defer server.Close()

	ctx := node.WithProgress(context.Background(), func(p *mcp.ProgressNotificationParams) {
		fmt.Println(p.Progress, "of", p.Total)
	})
	n := must(server.Node("load"))
	fmt.Println(must(n.Call(ctx, nil)).Text())
	// Output:
	// 1 of 3
	// 2 of 3
	// 3 of 3
	// done
}

// The kinds of errors.
func ExampleErrNotSent() {
	locked := node.Func("open", "Opens the door.", func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: -32001, Message: "locked"}
	})
	_, err := locked.Call(context.Background(), nil)
	switch {
	case errors.Is(err, node.ErrNotSent):
		fmt.Println("try again")
	case errors.Is(err, node.ErrOutcomeUnknown):
		fmt.Println("look whether the door is open")
	case errors.Is(err, node.ErrTool):
		fmt.Println(err)
	}
	// Output: tool "open": the tool failed: locked
}
