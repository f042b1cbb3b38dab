// Command consume uses the tools of MCP servers as nodes, for the end-to-end tests.
// Its argument is JSON: the servers and the calls to make at each. It prints what
// each server listed and answered.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

type target struct {
	Kind   string   `json:"kind"` // streamable, sse or stdio
	Era    string   `json:"era"`  // legacy, or auto for whatever both sides know
	Target []string `json:"target"`
}

type job struct {
	Servers []target `json:"servers"`
	Calls   []struct {
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"args"`
	} `json:"calls"`
}

type report struct {
	Protocol string      `json:"protocol"`
	Tools    []*mcp.Tool `json:"tools"`
	Results  []any       `json:"results"`
}

func main() {
	var j job
	if err := json.Unmarshal([]byte(os.Args[1]), &j); err != nil {
		log.Fatal("consume: ", err)
	}
	var all []report
	for _, t := range j.Servers {
		r, err := use(t, &j)
		if err != nil {
			log.Fatal("consume: ", err)
		}
		all = append(all, r)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		log.Fatal("consume: ", err)
	}
}

func use(t target, j *job) (r report, err error) {
	ctx := context.Background()
	dial := node.HTTP(t.Target[0])
	switch t.Kind {
	case "sse":
		dial = node.SSE(t.Target[0])
	case "stdio":
		dial = node.Command(t.Target[0], t.Target[1:]...)
	}
	var opts node.Options
	if t.Era == "legacy" {
		opts.ProtocolVersion = "2025-11-25"
	}
	s, err := node.Connect(ctx, dial, &opts)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	session, err := s.Session(ctx)
	if err != nil {
		return r, err
	}
	r.Protocol = session.InitializeResult().ProtocolVersion
	for _, n := range s.Nodes() {
		r.Tools = append(r.Tools, n.Tool())
	}
	for _, c := range j.Calls {
		n, err := s.Node(c.Tool)
		if err != nil {
			r.Results = append(r.Results, map[string]any{"error": err.Error()})
			continue
		}
		res, err := n.Call(ctx, c.Args)
		switch wire := (*jsonrpc.Error)(nil); {
		case errors.As(err, &wire):
			r.Results = append(r.Results, map[string]any{"error": wire.Message, "code": wire.Code})
		case err != nil:
			r.Results = append(r.Results, map[string]any{"error": err.Error()})
		default:
			r.Results = append(r.Results, res.Raw)
		}
	}
	return r, nil
}
