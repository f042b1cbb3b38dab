package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// serverInfo is how the gateway introduces itself.
type serverInfo struct{ raw []byte }

func newServerInfo(version string) serverInfo {
	raw, err := json.Marshal(map[string]string{"name": "tine", "title": "Tine", "version": version})
	if err != nil {
		raw = []byte(`{"name":"tine"}`)
	}
	return serverInfo{raw}
}

// mergedCapabilities is what the merged view can do, whatever its servers can:
// it must be said before they are asked.
var mergedCapabilities = []byte(`{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`)

// greeting is what a view says of itself.
type greeting struct {
	info, caps, instructions []byte
}

// greet asks the one server of a view, or speaks for all of them.
func (x *exchange) greet(ctx context.Context) (greeting, error) {
	if x.view.merged() {
		return greeting{info: x.g.info.raw, caps: mergedCapabilities, instructions: x.instructions(ctx)}, nil
	}
	up, e, err := x.upstream(x.view.server)
	if err != nil {
		return greeting{}, err
	}
	h, err := x.helloOf(ctx, up, e)
	if err != nil {
		return greeting{}, err
	}
	gr := greeting{info: h.Info, caps: givenCaps(x.who, e.Base(), h.Capabilities), instructions: h.Instructions}
	if gr.info == nil {
		gr.info = append(wire.AppendQuote([]byte(`{"name":`), e.ID), `,"version":"0"}`...)
	}
	if gr.caps == nil {
		gr.caps = []byte("{}")
	}
	return gr, nil
}

// helloOf is what a server says of itself, or said when it last ran.
func (x *exchange) helloOf(ctx context.Context, up *upstream.Upstream, e *catalog.Entry) (upstream.Hello, error) {
	if e.URL == "" && !up.Runs() {
		if k := x.sess.Known(e, x.who.Name); k != nil {
			return k.Hello, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.ConnectTimeout+time.Second)
	defer cancel()
	conn, err := up.Conn(ctx)
	if err != nil {
		return upstream.Hello{}, err
	}
	return conn.Hello(), nil
}

// givenCaps are the capabilities of a server without those for what is hidden from
// a principal.
func givenCaps(who identity.Principal, server string, caps []byte) []byte {
	prompts, _ := who.Prompts(server)
	resources := who.MayRead(server)
	if prompts && resources {
		return caps
	}
	out := []byte{'{'}
	err := wire.Members(caps, func(key string, val wire.Span) error {
		if key == "prompts" && !prompts || key == "resources" && !resources || key == "completions" && !prompts && !resources {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(wire.AppendQuote(out, key), ':'), val.Of(caps)...)
		return nil
	})
	if err != nil {
		return nil
	}
	return append(out, '}')
}

// instructions joins what the servers that run, or are known, said on how to use
// them.
func (x *exchange) instructions(ctx context.Context) []byte {
	if x.view.search {
		return searchInstructions // those of all servers would fill what the view keeps empty
	}
	var b bytes.Buffer
	t := x.table()
	for _, e := range t.cat.Entries {
		s := t.shapes[e.ID]
		if on, _ := e.On(); !on || s == nil || !s.listed || !x.who.MaySee(e.Base()) {
			continue
		}
		var raw []byte
		if conn := x.connTo(e.ID); conn != nil {
			raw = conn.Hello().Instructions
		} else if k := x.sess.Known(e, x.who.Name); k != nil {
			raw = k.Hello.Instructions
		} else if e.Fronter != nil { // which is asked in no time, as nothing is started
			if k, err := x.sess.Learn(ctx, e, t.cat.Config.Limits.ListWait); err == nil {
				raw = k.Hello.Instructions
			}
		}
		if text, ok := wire.Unquote(raw); ok && text != "" {
			if b.Len() > 0 {
				b.WriteString("\n\n")
			}
			if !s.bare {
				b.WriteString("[" + e.Title + "] ")
			}
			b.WriteString(text)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return wire.Quote(b.String())
}

// connTo is the connection to a server that runs in the session; nil for none.
func (x *exchange) connTo(server string) *upstream.Conn {
	if up := x.sess.Peek(server); up != nil {
		return up.Peek()
	}
	return nil
}

// initialized is the result of a handshake.
func (x *exchange) initialized(ctx context.Context, version string) (*upstream.Result, error) {
	gr, err := x.greet(ctx)
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"protocolVersion":`), wire.Quote(version)...)
	out = append(append(out, `,"capabilities":`...), gr.caps...)
	out = append(append(out, `,"serverInfo":`...), gr.info...)
	if gr.instructions != nil {
		out = append(append(out, `,"instructions":`...), gr.instructions...)
	}
	return &upstream.Result{Result: append(out, '}')}, nil
}

// discover is the same for the era without a handshake.
func (x *exchange) discover(ctx context.Context) (*upstream.Result, error) {
	gr, err := x.greet(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := json.Marshal(wire.Versions)
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":`), versions...)
	out = append(append(out, `,"capabilities":`...), gr.caps...)
	if gr.instructions != nil {
		out = append(append(out, `,"instructions":`...), gr.instructions...)
	}
	out = append(append(out, `,"_meta":{"`+wire.MetaServerInfo+`":`...), gr.info...)
	return &upstream.Result{Result: append(out, "}}"...)}, nil
}

// negotiate picks the version for a client that has a handshake.
func negotiate(asked string) string {
	if wire.Known(asked) && !wire.Modern(asked) {
		return asked
	}
	return wire.LatestLegacy
}

// setLevel notes how much a client wants to be told, and asks for that much.
func (x *exchange) setLevel() (*upstream.Result, error) {
	level := wire.FindString(x.params.Raw, "level")
	if wire.LevelRank(level) < 0 {
		return nil, invalidParams("params.level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	if x.conn != nil {
		x.conn.mu.Lock()
		x.conn.level = level
		x.conn.mu.Unlock()
	}
	for _, e := range x.sess.Catalog().Entries {
		if !x.view.merged() && x.view.server != e.ID || !x.who.MaySee(e.Base()) {
			continue
		}
		if up := x.sess.Peek(e.ID); up != nil {
			up.SetLevel(level)
		}
	}
	return emptyResult(), nil
}
