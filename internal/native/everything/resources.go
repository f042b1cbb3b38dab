package everything

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The resources that are made up when they are read, by kind.
const (
	kindText = "Text"
	kindBlob = "Blob"

	textBase = "demo://resource/dynamic/text/"
	blobBase = "demo://resource/dynamic/blob/"
)

func dynamicURI(kind, id string) string {
	if kind == kindBlob {
		return blobBase + id
	}
	return textBase + id
}

func dynamic(kind, id string) *mcp.ResourceContents {
	r := &mcp.ResourceContents{URI: dynamicURI(kind, id), MIMEType: "text/plain"}
	now := time.Now().Format("3:04:05 PM")
	if kind == kindBlob {
		r.Blob = fmt.Appendf(nil, "Resource %s: This is a base64 blob created at %s", id, now)
	} else {
		r.Text = fmt.Sprintf("Resource %s: This is a plaintext resource created at %s", id, now)
	}
	return r
}

// isID reports whether a string is a positive whole number.
func isID(s string) bool {
	n, err := strconv.ParseUint(s, 10, 53)
	return err == nil && n > 0
}

// addResources adds the documents, which are fixed, and the templates of the
// dynamic resources. The resources that gzip-file-as-resource makes come and go.
func (s *server) addResources() error {
	entries, err := docs.ReadDir("docs")
	if err != nil {
		return fmt.Errorf("read the documents: %w", err)
	}
	for _, e := range entries {
		text, err := docs.ReadFile(path.Join("docs", e.Name()))
		if err != nil {
			return fmt.Errorf("read the documents: %w", err)
		}
		r := &mcp.Resource{
			URI:         "demo://resource/static/document/" + e.Name(),
			Name:        e.Name(),
			MIMEType:    "text/markdown",
			Description: "About this server: " + strings.TrimSuffix(e.Name(), ".md"),
		}
		s.AddResource(r, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.URI, MIMEType: r.MIMEType, Text: string(text)}}}, nil
		})
	}
	for _, t := range []struct{ kind, base, mime, description string }{
		{kindText, textBase, "text/plain", "Text that is made up for any positive whole number"},
		{kindBlob, blobBase, "application/octet-stream", "Bytes that are made up for any positive whole number"},
	} {
		s.AddResourceTemplate(&mcp.ResourceTemplate{
			Name:        "Dynamic " + t.kind + " Resource",
			URITemplate: t.base + "{resourceId}",
			MIMEType:    t.mime,
			Description: t.description,
		}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimPrefix(req.Params.URI, t.base)
			if !isID(id) {
				return nil, mcp.ResourceNotFoundError(req.Params.URI)
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{dynamic(t.kind, id)}}, nil
		})
	}
	return nil
}

// zipped holds the resources that gzip-file-as-resource made, oldest first. A
// client could make them without end, so only the newest are kept.
type zipped struct {
	mu    sync.Mutex
	made  []madeResource
	bytes int
}

type madeResource struct {
	uri  string
	size int
}

const (
	maxZipped      = 64
	maxZippedBytes = 64 << 20
)

// keep makes content readable at demo://resource/session/NAME, in place of
// what was there.
func (s *server) keep(name string, content []byte) (*mcp.Resource, error) {
	r := &mcp.Resource{URI: "demo://resource/session/" + name, Name: name, MIMEType: "application/gzip"}
	if _, err := url.Parse(r.URI); err != nil || name == "" {
		return nil, fmt.Errorf("%q can't be the name of a resource", name)
	}
	s.zipped.mu.Lock()
	defer s.zipped.mu.Unlock()
	kept := s.zipped.made[:0]
	for _, m := range s.zipped.made {
		if m.uri == r.URI {
			s.zipped.bytes -= m.size
			continue
		}
		kept = append(kept, m)
	}
	s.zipped.made = append(kept, madeResource{r.URI, len(content)})
	s.zipped.bytes += len(content)
	for len(s.zipped.made) > maxZipped || s.zipped.bytes > maxZippedBytes && len(s.zipped.made) > 1 {
		oldest := s.zipped.made[0]
		s.RemoveResources(oldest.uri)
		s.zipped.bytes -= oldest.size
		s.zipped.made = s.zipped.made[1:]
	}
	s.AddResource(r, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.URI, MIMEType: r.MIMEType, Blob: content}}}, nil
	})
	return r, nil
}
