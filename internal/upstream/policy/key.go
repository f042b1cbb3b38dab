package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A signature is a hash of what a server's answer to a request may depend on, other
// than the principal: the params as the server will see them, and the client's
// capabilities. Two requests with the same signature, method and principal may have
// the same answer.
type signature [sha256.Size]byte

// sign makes the signature of a request. It reports false for params that can't
// be read.
func sign(req *upstream.Request) (signature, bool) {
	b := make([]byte, 0, 512)
	if c := req.Client; c != nil {
		if c.Modern {
			b = append(b, 'm')
		}
		b = appendPart(b, c.Caps)
	}
	skip := ""
	if req.Method == wire.MethodCallTool {
		b = appendPart(b, []byte(req.Name)) // in place of the name that the client knows
		skip = "name"
		b = appendHeader(b, req)
	}
	raw := req.Params.Raw
	if !onlyName(req) {
		raw = wire.AppendSpliced(nil, raw, slices.Clone(req.Edits))
	}
	if len(raw) == 0 {
		return sha256.Sum256(b), true
	}
	err := wire.Members(raw, func(key string, val wire.Span) error {
		switch key {
		case skip:
			return nil
		case "_meta":
			var err error
			b, err = appendMeta(b, val.Of(raw))
			return err
		}
		b = append(b, 'p')
		b = appendPart(b, []byte(key))
		b = appendPart(b, val.Of(raw))
		return nil
	})
	return sha256.Sum256(b), err == nil
}

// onlyName reports whether the edits of a request put in nothing but the tool's
// own name.
func onlyName(req *upstream.Request) bool {
	for _, e := range req.Edits {
		if req.Method != wire.MethodCallTool || e.At != req.Params.Target {
			return false
		}
	}
	return true
}

// appendMeta adds the members of _meta that are not the protocol's and may mean
// anything. Those of the protocol say how to answer, and not what.
func appendMeta(b, meta []byte) ([]byte, error) {
	if len(meta) == 0 || meta[0] != '{' {
		return b, nil
	}
	err := wire.Members(meta, func(key string, val wire.Span) error {
		switch key {
		case wire.MetaProgressToken, wire.MetaClientInfo, wire.MetaClientCaps, wire.MetaLogLevel,
			wire.MetaTraceparent, wire.MetaTracestate, "baggage":
			return nil
		}
		b = append(b, '_')
		b = appendPart(b, []byte(key))
		b = appendPart(b, val.Of(meta))
		return nil
	})
	return b, err
}

// appendHeader adds the Mcp-Param-* headers: a server refuses a call whose headers
// don't match its arguments, so an answer holds only for calls with the same
// headers.
func appendHeader(b []byte, req *upstream.Request) []byte {
	if req.Header == nil {
		return b
	}
	b = append(b, 'h')
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		b = appendPart(b, []byte(name))
		b = binary.AppendUvarint(b, uint64(len(req.Header[name])))
		for _, v := range req.Header[name] {
			b = appendPart(b, []byte(v))
		}
	}
	return b
}

// appendPart adds bytes so that no two lists of parts look the same.
func appendPart(b, part []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}
