// Command toolbox is a server of Go functions that the end-to-end tests have the
// clients of others use.
//
//	toolbox             over standard input and output
//	toolbox ADDRESS     over HTTP
//	toolbox list        prints its tools as this side has them, and ends
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

type place struct {
	Name     string   `json:"name" jsonschema:"as people there write it: 東京, São Paulo"`
	Altitude *float64 `json:"altitude,omitempty"`
}

type query struct {
	Place place    `json:"place"`
	Unit  string   `json:"unit" enum:"celsius,fahrenheit,開氏" default:"celsius" jsonschema:"of the temperatures"`
	Days  int      `json:"days" default:"3" enum:"1,3,7"`
	Near  []place  `json:"near,omitempty"`
	Tags  []string `json:"tags,omitempty" enum:"wind,rain"`
}

type forecast struct {
	Of    string    `json:"of"`
	Unit  string    `json:"unit"`
	Temps []float64 `json:"temps"`
	Near  int       `json:"near"`
	Note  string    `json:"note,omitempty"`
}

func predict(_ context.Context, q query) (forecast, error) {
	f := forecast{Of: q.Place.Name, Unit: q.Unit, Near: len(q.Near), Note: strings.Join(q.Tags, " ")}
	for day := range q.Days {
		f.Temps = append(f.Temps, 20.5+float64(day))
	}
	return f, nil
}

type pair struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

type sum struct {
	Sum int64 `json:"sum"`
}

var tools = []node.Source{
	node.Func("forecast", "Predicts the weather. ☔", predict, func(t *mcp.Tool) {
		t.Title = "Weather"
		t.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
	}),
	node.Func("add", "Adds two integers.", func(_ context.Context, p pair) (sum, error) { return sum{p.A + p.B}, nil }),
	node.Func("big", "Has an integer that no float64 has.", func(context.Context, struct{}) (sum, error) { return sum{9007199254740993}, nil }),
	node.Func("greet", "Answers with text.", func(_ context.Context, in map[string]string) (string, error) {
		return "Grüße, " + in["name"] + " 👋\n\u2028", nil
	}),
	node.Func("fail", "Fails.", func(context.Context, struct{}) (string, error) { return "", errors.New("out of paper: Größe A4") }),
	node.Func("refuse", "Answers with an error of the protocol.", func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: -32042, Message: "not today", Data: json.RawMessage(`{"n":9007199254740993}`)}
	}),
	node.Func("picture", "Draws a pixel.", func(context.Context, struct{}) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a pixel"}, &mcp.ImageContent{MIMEType: "image/png", Data: pixel}}}, nil
	}),
	node.New(&mcp.Tool{Name: "odd", Description: "Has fields that no SDK knows.", InputSchema: json.RawMessage(`{"type":"object","x-digits":12345678901234567890,"x-float":1.10}`)},
		func(_ context.Context, args json.RawMessage) (*node.Result, error) {
			return &node.Result{Raw: json.RawMessage(fmt.Sprintf(
				`{"content":[{"type":"text","text":"odd","x-mark":{"n":12345678901234567890}}],"x-more":[9007199254740993,1.10],"structuredContent":{"args":%s}}`, args))}, nil
		}),
}

var pixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\b\x06\x00\x00\x00\x1f\x15\xc4\x89" +
	"\x00\x00\x00\nIDATx\x9cc\x00\x01\x00\x00\x05\x00\x01\r\n-\xb4\x00\x00\x00\x00IEND\xaeB`\x82")

func main() {
	var err error
	switch ctx := context.Background(); {
	case len(os.Args) == 1:
		err = node.ServeStdio(ctx, tools...)
	case os.Args[1] == "list":
		var all []*mcp.Tool
		for _, s := range tools {
			all = append(all, s.Nodes()[0].Tool())
		}
		err = json.NewEncoder(os.Stdout).Encode(all)
	default:
		err = node.Serve(ctx, os.Args[1], tools...)
	}
	if err != nil {
		log.Fatal("toolbox: ", err)
	}
}
