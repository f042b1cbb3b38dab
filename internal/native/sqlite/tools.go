package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

// tools are the calls of one server.
type tools struct {
	engine  *engine
	files   workspace.FS // nil without a workspace
	catalog *catalog
}

// receive answers what concerns tools from the catalog. Adding them to each server
// would have the SDK read every schema again, which takes a hundred times as long
// as all else that [New] does.
func (t *tools) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			return &mcp.ListToolsResult{Tools: t.catalog.list, Cacheable: mcp.Cacheable{CacheScope: "public"}}, nil
		case *mcp.CallToolRequest:
			if d, ok := t.catalog.byName[r.Params.Name]; ok {
				return t.call(ctx, d, r.Params.Arguments)
			}
		}
		return next(ctx, method, req)
	}
}

// call runs a tool. What goes wrong with a statement is the tool's answer; a call that
// was given up is not answered, nor one that the gateway's machine failed.
func (t *tools) call(ctx context.Context, d definition, args json.RawMessage) (*mcp.CallToolResult, error) {
	res, err := d.call(t, ctx, args)
	if err != nil && ctx.Err() == nil && !driver.HostFault(err) {
		res, err = &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
	}
	if err != nil {
		return nil, err // and no typed nil for a Result
	}
	return res, nil
}

// decode reads the arguments of a call, strictly.
func decode(args json.RawMessage, into any) error {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return fmt.Errorf("argument %q must be a %s, not a %s", te.Field, te.Type, te.Value)
	}
	if err != nil {
		return fmt.Errorf("arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// answer gives JSON as text, and as structured content.
func answer(data []byte) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(data)}},
		StructuredContent: json.RawMessage(data),
	}
}

func answerValue(v any) (*mcp.CallToolResult, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	return answer(bytes.TrimSpace(buf.Bytes())), nil
}

func (t *tools) query(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	var in struct {
		SQL    string  `json:"sql"`
		Params *params `json:"params"`
		Limit  *int    `json:"limit"`
	}
	if err := decode(args, &in); err != nil {
		return nil, err
	}
	limit := t.engine.set.maxRows
	if in.Limit != nil {
		if *in.Limit < 1 {
			return nil, fmt.Errorf("limit must be at least 1, not %d", *in.Limit)
		}
		limit = min(limit, *in.Limit)
	}
	var r *rows
	err := t.engine.call(ctx, func(ctx context.Context, c *conn) (err error) {
		r, err = c.query(ctx, in.SQL, in.Params, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer(append(r.append([]byte("{")), '}')), nil
}

// append writes the fields of a result.
func (r *rows) append(b []byte) []byte {
	b = append(b, `"columns":[`...)
	for i, c := range r.columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, c)
	}
	b = append(b, `],"rows":[`...)
	if r.n > 0 {
		b = append(b, '\n')
		b = append(b, r.data...)
		b = append(b, '\n')
	}
	b = append(b, `],"row_count":`...)
	b = strconv.AppendInt(b, int64(r.n), 10)
	if r.leftOut > 0 {
		b = append(b, `,"left_out":`...)
		b = strconv.AppendInt(b, int64(r.leftOut), 10)
	}
	if r.atLeast {
		b = append(b, `,"left_out_at_least":true`...)
	}
	return b
}

func (t *tools) execute(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	var in struct {
		SQL    string  `json:"sql"`
		Params *params `json:"params"`
	}
	if err := decode(args, &in); err != nil {
		return nil, err
	}
	var x *script
	var lastID int64
	err := t.engine.call(ctx, func(ctx context.Context, c *conn) (err error) {
		x, err = c.execute(ctx, strings.NewReader(in.SQL), in.Params, t.engine.set.maxRows)
		lastID = c.LastInsertRowID()
		return err
	})
	if err != nil {
		return nil, err
	}
	b := fmt.Appendf(nil, `{"statements":%d,"rows_changed":%d`, x.statements, x.changes)
	if lastID != 0 {
		b = fmt.Appendf(b, `,"last_insert_id":%d`, lastID)
	}
	if x.rows != nil {
		b = x.rows.append(append(b, ','))
	}
	return answer(append(b, '}')), nil
}

func (t *tools) list(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	if err := decode(args, &struct{}{}); err != nil {
		return nil, err
	}
	var l *tableList
	err := t.engine.call(ctx, func(_ context.Context, c *conn) (err error) {
		l, err = c.tables(t.engine.set.maxRows)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answerValue(l)
}

func (t *tools) describe(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	var in struct {
		Table string `json:"table"`
	}
	if err := decode(args, &in); err != nil {
		return nil, err
	}
	var d *description
	err := t.engine.call(ctx, func(ctx context.Context, c *conn) (err error) {
		d, err = c.describe(ctx, in.Table)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answerValue(d)
}

func (t *tools) importCSV(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	in := struct {
		Table  string  `json:"table"`
		CSV    *string `json:"csv"`
		Path   string  `json:"path"`
		Header bool    `json:"header"`
		Create bool    `json:"create"`
	}{Header: true, Create: true}
	if err := decode(args, &in); err != nil {
		return nil, err
	}
	if in.Table == "" {
		return nil, errors.New("table is missing")
	}
	if (in.CSV != nil) == (in.Path != "") {
		return nil, errors.New("give the rows as csv, or a path of the workspace")
	}
	var src io.ReaderAt
	var size int64
	if in.CSV != nil {
		src, size = strings.NewReader(*in.CSV), int64(len(*in.CSV))
	} else {
		name, err := inWorkspace(t.files, in.Path)
		if err != nil {
			return nil, err
		}
		f, err := t.files.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", in.Path, err)
		}
		defer f.Close()
		if !f.Info().Mode.IsRegular() {
			return nil, fmt.Errorf("%s is not a file", in.Path)
		}
		src, size = f, f.Info().Size
	}
	var x *imported
	err := t.engine.call(ctx, func(ctx context.Context, c *conn) (err error) {
		x, err = c.importCSV(ctx, in.Table, src, size, in.Header, in.Create)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answerValue(map[string]any{"table": x.table, "columns": x.columns, "rows_imported": x.rows, "created": x.created})
}

func (t *tools) exportCSV(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	var in struct {
		SQL   string `json:"sql"`
		Table string `json:"table"`
		Path  string `json:"path"`
	}
	if err := decode(args, &in); err != nil {
		return nil, err
	}
	if (in.SQL != "") == (in.Table != "") {
		return nil, errors.New("give sql, or the name of a table")
	}
	var x *exported
	err := t.engine.call(ctx, func(ctx context.Context, c *conn) (err error) {
		if in.Table != "" {
			if cols, err := c.insertable(in.Table); err != nil {
				return err
			} else if cols == nil {
				return c.noTable(in.Table)
			}
			in.SQL = "SELECT * FROM main." + quote(in.Table)
		}
		x, err = c.export(ctx, in.SQL, nil, t.engine.set.maxRows, t.files, in.Path)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := map[string]any{"row_count": x.rows}
	if x.leftOut > 0 {
		out["left_out"] = x.leftOut
	}
	if x.atLeast {
		out["left_out_at_least"] = true
	}
	if x.path != "" {
		out["path"], out["bytes"] = x.path, x.size
		return answerValue(out)
	}
	out["csv"] = strings.ToValidUTF8(string(x.csv), "\uFFFD")
	res, err := answerValue(out)
	if err != nil {
		return nil, err
	}
	// CSV reads better as it is than inside of JSON.
	res.Content = []mcp.Content{&mcp.TextContent{Text: out["csv"].(string)}}
	if x.leftOut > 0 {
		more := ""
		if x.atLeast {
			more = "at least "
		}
		res.Content = append(res.Content, &mcp.TextContent{Text: fmt.Sprintf("%s%d more rows were left out.", more, x.leftOut)})
	}
	return res, nil
}

// inWorkspace returns the name of a path in the workspace, which may be given with
// the root before it.
func inWorkspace(files workspace.FS, path string) (string, error) {
	if files == nil {
		return "", errors.New("there is no workspace here, so no path can be given; leave it out")
	}
	name := filepath.ToSlash(path)
	if rest, ok := workspace.Inside(files, name); ok && rest != "" {
		name = rest
	}
	return name, nil
}
