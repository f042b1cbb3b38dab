package everything

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/publicnet"
)

// What gzip-file-as-resource may take in.
const (
	maxFile     = 10 << 20
	maxFileTime = 30 * time.Second
)

// addResourceTools adds the tools that return or make resources.
func (s *server) addResourceTools() {
	add(s, tool{
		name: "get-resource-links", title: "Resource links", description: "Returns links to dynamic resources", hints: pureHints,
		properties: map[string]any{"count": prop("number", "How many links, 1 to 10", "default", 3, "minimum", 1, "maximum", 10)},
	}, resourceLinks)
	add(s, tool{
		name: "get-resource-reference", title: "Resource reference", description: "Returns a dynamic resource inside the result", hints: pureHints,
		properties: map[string]any{
			"resourceType": prop("string", "Which kind", "enum", []string{kindText, kindBlob}, "default", kindText),
			"resourceId":   prop("number", "Which number", "default", 1),
		},
	}, resourceReference)
	add(s, tool{
		name: "gzip-file-as-resource", title: "Compress a file", hints: hints{idempotent: true, openWorld: true},
		description: "Compresses a file with gzip and returns it, or a link under which it can be read later in the session",
		properties: map[string]any{
			"name": prop("string", "Name of the compressed file", "default", "README.md.gz"),
			"data": prop("string", "An http, https or data URL of the file", "format", "uri",
				"default", "https://raw.githubusercontent.com/modelcontextprotocol/servers/refs/heads/main/README.md"),
			"outputType": prop("string", "resourceLink for a link, resource for the file itself",
				"enum", []string{"resourceLink", "resource"}, "default", "resourceLink"),
		},
	}, s.gzipFile)
}

func resourceLinks(_ context.Context, _ *mcp.CallToolRequest, in struct {
	Count float64 `json:"count"`
}) (*mcp.CallToolResult, error) {
	res := texts(fmt.Sprintf("Here are %s resource links to resources available in this server:", number(in.Count)))
	for i := 1; float64(i) <= in.Count; i++ {
		kind := kindBlob
		if i%2 == 0 {
			kind = kindText
		}
		res.Content = append(res.Content, &mcp.ResourceLink{
			URI:         dynamicURI(kind, fmt.Sprint(i)),
			Name:        fmt.Sprintf("%s Resource %d", kind, i),
			Description: fmt.Sprintf("Resource %d: plaintext resource", i),
			MIMEType:    "text/plain",
		})
	}
	return res, nil
}

func resourceReference(_ context.Context, _ *mcp.CallToolRequest, in struct {
	ResourceType string  `json:"resourceType"`
	ResourceID   float64 `json:"resourceId"`
}) (*mcp.CallToolResult, error) {
	id := number(in.ResourceID)
	if !isID(id) {
		return nil, fmt.Errorf("resourceId %s is not a positive whole number", id)
	}
	r := dynamic(in.ResourceType, id)
	return &mcp.CallToolResult{Content: []mcp.Content{
		&mcp.TextContent{Text: fmt.Sprintf("Returning resource reference for Resource %s:", id)},
		&mcp.EmbeddedResource{Resource: r},
		&mcp.TextContent{Text: "You can access this resource using the URI: " + r.URI},
	}}, nil
}

func (s *server) gzipFile(ctx context.Context, _ *mcp.CallToolRequest, in struct {
	Name       string `json:"name"`
	Data       string `json:"data"`
	OutputType string `json:"outputType"`
}) (*mcp.CallToolResult, error) {
	file, err := s.load(ctx, in.Data)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(file); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	r, err := s.keep(in.Name, b.Bytes())
	if err != nil {
		return nil, err
	}
	if in.OutputType == "resource" {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: r.URI, MIMEType: r.MIMEType, Blob: b.Bytes()}},
		}}, nil
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ResourceLink{URI: r.URI, Name: r.Name, MIMEType: r.MIMEType}}}, nil
}

// load gets a file of at most maxFile bytes.
func (s *server) load(ctx context.Context, from string) ([]byte, error) {
	scheme, rest, _ := strings.Cut(from, ":")
	switch strings.ToLower(scheme) {
	case "data":
		return dataURL(rest)
	case "http", "https":
	default:
		return nil, fmt.Errorf("%q is not an http, https or data URL", from)
	}
	ctx, cancel := context.WithTimeout(ctx, maxFileTime)
	defer cancel()
	client := publicnet.NewClient(s.net)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", from, err)
	}
	resp, err := client.Do(req)
	var blocked *publicnet.Blocked
	if errors.As(err, &blocked) {
		return nil, fmt.Errorf("get %s: %w; settings.allow_private of the everything server would allow it", from, blocked)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(resp.Body, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	if n > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", from, maxFile)
	}
	return b.Bytes(), nil
}

// dataURL decodes what follows "data:".
func dataURL(rest string) ([]byte, error) {
	kind, data, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, errors.New("the data URL has no comma before its data")
	}
	if len(data) > 4*maxFile {
		return nil, fmt.Errorf("the data URL holds more than %d bytes", maxFile)
	}
	text, err := url.PathUnescape(data)
	if err != nil {
		return nil, fmt.Errorf("decode the data URL: %w", err)
	}
	out := []byte(text)
	if strings.HasSuffix(strings.ToLower(strings.ReplaceAll(kind, " ", "")), ";base64") {
		// Padding is optional in URLs, and spaces mean nothing.
		text = strings.TrimRight(strings.Join(strings.Fields(text), ""), "=")
		if out, err = base64.RawStdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("decode the data URL: %w", err)
		}
	}
	if len(out) > maxFile {
		return nil, fmt.Errorf("the data URL holds more than %d bytes", maxFile)
	}
	return out, nil
}
