package rollout

import (
	"bytes"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// own are the members of one of the protocol's objects that are such objects
// themselves, or lists of them. All others are the server's own business.
type own map[string]own

var (
	content    = own{"annotations": nil, "icons": nil, "resource": {"annotations": nil}}
	callResult = own{"content": content}
	listResult = own{"tools": {"annotations": nil, "icons": nil, "execution": nil}}
)

// tidy leaves out what is null in the objects of the protocol, where some servers
// write down what they have nothing to say about. Everything else stays as the
// server wrote it, to the digit.
func tidy(raw []byte, o own) ([]byte, error) {
	out, _, err := tidied(raw, o)
	return out, err
}

func tidied(raw []byte, o own) (out []byte, changed bool, err error) {
	switch {
	case len(raw) == 0:
		return raw, false, nil
	case raw[0] == '[':
		items, err := wire.Items(raw)
		if err != nil {
			return nil, false, err
		}
		out = append(out, '[')
		for i, at := range items {
			item, other, err := tidied(at.Of(raw), o)
			if err != nil {
				return nil, false, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, item...)
			changed = changed || other
		}
		out = append(out, ']')
	case raw[0] == '{':
		out = append(out, '{')
		err = wire.Members(raw, func(key string, at wire.Span) error {
			val := at.Of(raw)
			if string(val) == "null" {
				changed = true
				return nil
			}
			if within, ok := o[key]; ok {
				tidy, other, err := tidied(val, within)
				if err != nil {
					return err
				}
				val, changed = tidy, changed || other
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(wire.AppendQuote(out, key), ':'), val...)
			return nil
		})
		out = append(out, '}')
	}
	if err != nil || !changed {
		return raw, false, err
	}
	return out, true, nil
}

// saysError is a tool's result that says whether it is an error, as RewardKit's
// server shows every one: the whole of it goes into a prompt.
func saysError(raw relayed) relayed {
	if at, err := wire.Find(raw, "isError"); err != nil || at.Ok() {
		return raw
	}
	end := bytes.LastIndexByte(raw, '}')
	out := append(relayed{}, bytes.TrimRight(raw[:end], " \t\r\n")...)
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, `"isError":false}`...)
}

// relay makes an answer of a server's own result.
func relay(raw []byte, o own, backend string) (relayed, error) {
	out, err := tidy(raw, o)
	if err != nil || len(out) == 0 || out[0] != '{' {
		return nil, &api.Error{Kind: api.KindInfrastructure, Server: backend, Message: "backend " + quote(backend) + " answered with what is no result of MCP"}
	}
	return out, nil
}
