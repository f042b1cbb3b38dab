package everything

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"regexp"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// hints are the annotations of a tool. No tool here destroys anything.
type hints struct{ readOnly, idempotent, openWorld bool }

func (h hints) annotations() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{
		ReadOnlyHint:    h.readOnly,
		DestructiveHint: new(bool),
		IdempotentHint:  h.idempotent,
		OpenWorldHint:   &h.openWorld,
	}
}

// pureHints are those of a tool that only answers.
var pureHints = hints{readOnly: true, idempotent: true}

// tool is what a tool's listing says. Schema holds the properties and required
// names of its input.
type tool struct {
	name, title, description string
	hints                    hints
	properties               map[string]any
	required                 []string
}

func prop(typ, description string, more ...any) map[string]any {
	p := map[string]any{"type": typ, "description": description}
	for i := 0; i < len(more); i += 2 {
		p[more[i].(string)] = more[i+1]
	}
	return p
}

func (t tool) listing() *mcp.Tool {
	schema := map[string]any{"type": "object", "properties": t.properties}
	if t.properties == nil {
		schema["properties"] = map[string]any{}
	}
	if len(t.required) > 0 {
		schema["required"] = t.required
	}
	return &mcp.Tool{Name: t.name, Title: t.title, Description: t.description, Annotations: t.hints.annotations(), InputSchema: schema}
}

// add registers a tool whose arguments are validated and have their defaults.
func add[In any](s *server, t tool, h func(context.Context, *mcp.CallToolRequest, In) (*mcp.CallToolResult, error)) {
	mcp.AddTool(s.Server, t.listing(), func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		res, err := h(ctx, req, in)
		return res, nil, err
	})
}

type none struct{}

func texts(lines ...string) *mcp.CallToolResult {
	res := &mcp.CallToolResult{}
	for _, l := range lines {
		res.Content = append(res.Content, &mcp.TextContent{Text: l})
	}
	return res
}

// number writes a number as JavaScript does, which is JSON's way too.
func number(f float64) string {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Sprint(f)
	}
	return string(b)
}

// indented is a value as JSON for people, with nothing escaped for HTML. An encoder
// has an option for that, but the SDK's content types escape by themselves.
func indented(v any) string {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return escapes.ReplaceAllStringFunc(string(data), func(e string) string {
		switch e {
		case `\u0026`:
			return "&"
		case `\u003c`:
			return "<"
		case `\u003e`:
			return ">"
		}
		return e
	})
}

// escapes matches every escape of a JSON string whole, so that an escaped
// backslash before "u0026" is not taken for one.
var escapes = regexp.MustCompile(`\\(?:u[0-9a-f]{4}|.)`)

// addPlainTools adds the tools that answer from their arguments alone.
func (s *server) addPlainTools() {
	add(s, tool{
		name: "echo", title: "Echo", description: "Says back what it is told", hints: pureHints,
		properties: map[string]any{"message": prop("string", "What to say")}, required: []string{"message"},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Message string `json:"message"`
	}) (*mcp.CallToolResult, error) {
		return texts("Echo: " + in.Message), nil
	})

	add(s, tool{
		name: "get-sum", title: "Sum", description: "Adds two numbers", hints: pureHints,
		properties: map[string]any{"a": prop("number", "One number"), "b": prop("number", "The other")}, required: []string{"a", "b"},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}) (*mcp.CallToolResult, error) {
		return texts(fmt.Sprintf("The sum of %s and %s is %s.", number(in.A), number(in.B), number(in.A+in.B))), nil
	})

	add(s, tool{
		name: "get-env", title: "Environment", hints: pureHints,
		description: "Shows the environment variables that the server's settings give it",
	}, func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, error) {
		return texts(indented(s.env)), nil
	})

	add(s, tool{
		name: "get-tiny-image", title: "Tiny image", description: "Returns a very small picture of a fork", hints: pureHints,
	}, func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "Here is the picture:"},
			&mcp.ImageContent{Data: s.image, MIMEType: "image/png"},
			&mcp.TextContent{Text: "It shows a fork."},
		}}, nil
	})

	add(s, tool{
		name: "get-annotated-message", title: "Annotated message", hints: pureHints,
		description: "Shows how annotations say whom content is for and how much it matters",
		properties: map[string]any{
			"messageType":  prop("string", "Which kind of message", "enum", []string{"error", "success", "debug"}),
			"includeImage": prop("boolean", "Add a picture with annotations of its own", "default", false),
		},
		required: []string{"messageType"},
	}, s.annotatedMessage)

	listing := tool{
		name: "get-structured-content", title: "Structured content", hints: pureHints,
		description: "Returns made-up weather as structured content that fits the tool's output schema",
		properties:  map[string]any{"location": prop("string", "A city", "enum", []string{"New York", "Chicago", "Los Angeles"})},
		required:    []string{"location"},
	}.listing()
	listing.OutputSchema = map[string]any{
		"type": "object",
		"properties": map[string]any{
			"temperature": prop("number", "Degrees"),
			"conditions":  prop("string", "What the sky looks like"),
			"humidity":    prop("number", "Percent"),
		},
		"required": []string{"temperature", "conditions", "humidity"},
	}
	mcp.AddTool(s.Server, listing, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Location string `json:"location"`
	}) (*mcp.CallToolResult, weather, error) {
		w := map[string]weather{
			"New York":    {33, "Cloudy", 82},
			"Chicago":     {36, "Light rain / drizzle", 82},
			"Los Angeles": {73, "Sunny / Clear", 48},
		}[in.Location]
		text, err := json.Marshal(w) // the SDK's own would be in another order
		return texts(string(text)), w, err
	})
}

type weather struct {
	Temperature float64 `json:"temperature"`
	Conditions  string  `json:"conditions"`
	Humidity    float64 `json:"humidity"`
}

func (s *server) annotatedMessage(_ context.Context, _ *mcp.CallToolRequest, in struct {
	MessageType  string `json:"messageType"`
	IncludeImage bool   `json:"includeImage"`
}) (*mcp.CallToolResult, error) {
	message := map[string]*mcp.TextContent{
		"error":   {Text: "Error: Operation failed", Annotations: &mcp.Annotations{Priority: 1, Audience: []mcp.Role{"user", "assistant"}}},
		"success": {Text: "Operation completed successfully", Annotations: &mcp.Annotations{Priority: 0.7, Audience: []mcp.Role{"user"}}},
		"debug":   {Text: "Debug: Cache hit ratio 0.95, latency 150ms", Annotations: &mcp.Annotations{Priority: 0.3, Audience: []mcp.Role{"assistant"}}},
	}[in.MessageType]
	res := &mcp.CallToolResult{Content: []mcp.Content{message}}
	if in.IncludeImage {
		res.Content = append(res.Content, &mcp.ImageContent{
			Data: s.image, MIMEType: "image/png",
			Annotations: &mcp.Annotations{Priority: 0.5, Audience: []mcp.Role{"user"}},
		})
	}
	return res, nil
}

// drawImage draws a fork with four tines, 20 pixels square.
func drawImage() ([]byte, error) {
	img := image.NewNRGBA(image.Rect(0, 0, 20, 20))
	fill := func(x0, y0, x1, y1 int) {
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				img.Set(x, y, color.NRGBA{0x2f, 0x4f, 0x7f, 0xff})
			}
		}
	}
	for x := 3; x < 17; x += 4 {
		fill(x, 1, x+2, 8)
	}
	fill(3, 8, 17, 10)
	fill(9, 10, 11, 19)
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, fmt.Errorf("draw the tiny image: %w", err)
	}
	return b.Bytes(), nil
}
