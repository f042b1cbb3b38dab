package files

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *server) readText(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	asked, first, last := a.text("path"), a.number("head"), a.number("tail")
	if a.err != nil {
		return nil, a.err
	}
	if first != 0 && last != 0 {
		// The path is judged first, as the reference server does.
		if _, err := s.find(asked); err != nil {
			return nil, err
		}
		return nil, toolErrorf("Cannot specify both head and tail parameters simultaneously")
	}
	f, err := s.open(asked)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b []byte
	switch {
	case last != 0:
		b, err = tail(ctx, f, count(last, math.Trunc), s.maxRead)
	case first != 0:
		b, err = head(ctx, f, count(first, math.Ceil), s.maxRead)
	default:
		b, err = whole(ctx, f, s.maxRead)
	}
	if err != nil {
		return nil, err
	}
	return text(decode(b)), nil
}

// count makes a number of lines of what a caller gives.
func count(n float64, whole func(float64) float64) int64 {
	if n <= 0 {
		return 0
	}
	return int64(min(max(whole(n), 1), 1<<53))
}

func (s *server) readMultiple(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	paths := a.texts("paths")
	if a.err == nil && !a.has("paths") {
		a.fail(errors.New("paths is required"))
	} else if a.err == nil && len(paths) == 0 {
		a.fail(errors.New("paths must name one file at least"))
	}
	if a.err != nil {
		return nil, a.err
	}
	left := s.maxRead
	var out strings.Builder
	for i, p := range paths {
		if i > 0 {
			out.WriteString("\n---\n")
		}
		b, err := s.readWhole(ctx, p, left)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.As(err, new(tooLarge)) && left < s.maxRead {
			err = fmt.Errorf("with the files before it there are more than the %d bytes that one call returns (max_read); read it in a call of its own", s.maxRead)
		}
		if err != nil {
			fmt.Fprintf(&out, "%s: Error - %s", p, err)
			continue
		}
		left -= int64(len(b))
		fmt.Fprintf(&out, "%s:\n%s\n", p, decode(b))
	}
	return text(out.String()), nil
}

func (s *server) readWhole(ctx context.Context, asked string, limit int64) ([]byte, error) {
	f, err := s.open(asked)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return whole(ctx, f, limit)
}

// mediaTypes are those of the reference server.
var mediaTypes = map[string]string{
	".png":  "image/png",
	".jpg":  "image/jpeg",
	".jpeg": "image/jpeg",
	".gif":  "image/gif",
	".webp": "image/webp",
	".bmp":  "image/bmp",
	".svg":  "image/svg+xml",
	".mp3":  "audio/mpeg",
	".wav":  "audio/wav",
	".ogg":  "audio/ogg",
	".flac": "audio/flac",
}

// media is what read_media_file returns as structured content.
type media struct {
	Content [1]mediaItem `json:"content"`
}

type mediaItem struct {
	Type     string         `json:"type"`
	Data     *string        `json:"data,omitempty"`
	MIMEType string         `json:"mimeType,omitempty"`
	Resource *mediaResource `json:"resource,omitempty"`
}

type mediaResource struct {
	URI      string `json:"uri"`
	MIMEType string `json:"mimeType"`
	Blob     string `json:"blob"`
}

func (s *server) readMedia(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	asked := a.text("path")
	if a.err != nil {
		return nil, a.err
	}
	p, err := s.find(asked)
	if err != nil {
		return nil, err
	}
	f, err := s.openPlace(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := whole(ctx, f, s.maxRead)
	if err != nil {
		return nil, err
	}
	mime := mediaTypes[strings.ToLower(extension(p.name))]
	kind, _, _ := strings.Cut(mime, "/")
	data := base64.StdEncoding.EncodeToString(b)
	item := mediaItem{Type: kind, Data: &data, MIMEType: mime}
	var block mcp.Content
	switch kind {
	case "image":
		block = &mcp.ImageContent{Data: b, MIMEType: mime}
	case "audio":
		block = &mcp.AudioContent{Data: b, MIMEType: mime}
	default:
		mime = "application/octet-stream"
		uri := s.fileURL(p.name)
		block = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: mime, Blob: b}}
		item = mediaItem{Type: "resource", Resource: &mediaResource{URI: uri, MIMEType: mime, Blob: data}}
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{block},
		StructuredContent: media{[1]mediaItem{item}},
	}, nil
}

// extension is that of a file's name; a dot at its beginning begins none.
func extension(name string) string {
	base := path.Base(name)
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return base[i:]
	}
	return ""
}

// fileURL leaves the same characters alone that Node.js does.
func (s *server) fileURL(name string) string {
	p := s.shown(name)
	if s.windows() {
		p = "/" + strings.ReplaceAll(p, `\`, "/")
	}
	var b strings.Builder
	b.WriteString("file://")
	for i := range len(p) {
		c := p[i]
		if c <= ' ' || c >= 0x7F || strings.IndexByte("\"#%<>?[\\]^`{|}~", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
