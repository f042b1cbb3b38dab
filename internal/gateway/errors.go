package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// This file is the one map from errors to the wire.

// asError makes any error one of the API's.
func asError(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
}

// failed is the function below for what servers and their connections say:
// that may hold what is none of the client's business.
func (g *Gateway) failed(who identity.Principal, method string, err error) *upstream.Result {
	return failed(method, g.clean(who, err))
}

// clean is an error as somebody is told it, with secrets masked.
func (g *Gateway) clean(who identity.Principal, err error) error {
	var rpc *wire.Error
	if errors.As(err, &rpc) {
		return err
	}
	return g.masked(access.Told(who, asError(err)))
}

func (g *Gateway) masked(err *api.Error) *api.Error {
	e := *err
	e.Message = g.o.Redact.Text(e.Message)
	if e.Causes != nil {
		e.Causes = make([]*api.Error, len(err.Causes))
		for i, cause := range err.Causes {
			e.Causes[i] = g.masked(cause)
		}
	}
	return &e
}

// failed is the answer to a request that got none from a server. A tool call
// fails as a tool's result, so that a model can read why and go on; its _meta
// says that the failure is not the tool's. Everything else fails as a JSON-RPC
// error.
func failed(method string, err error) *upstream.Result {
	var rpc *wire.Error
	if errors.As(err, &rpc) {
		return &upstream.Result{Error: wire.AppendError(nil, rpc)}
	}
	e := asError(err)
	detail, jerr := json.Marshal(e)
	if jerr != nil {
		detail = []byte("{}")
	}
	if method == wire.MethodCallTool {
		out := append([]byte(`{"_meta":{"`+wire.MetaTineError+`":`), detail...)
		out = append(out, `},"content":[{"type":"text","text":`...)
		out = wire.AppendQuote(out, e.Message)
		return &upstream.Result{Result: append(out, `}],"isError":true}`...), RetryAfter: e.RetryAfter}
	}
	code := wire.CodeTine
	if e.Kind == api.KindInvalid {
		code = wire.CodeInvalidParams
	}
	data := append(append([]byte(`{"`+wire.MetaTineError+`":`), detail...), '}')
	return &upstream.Result{Error: wire.AppendError(nil, &wire.Error{Code: code, Message: e.Message, Data: data}), RetryAfter: e.RetryAfter}
}

// httpStatus is the status of a control API error.
func httpStatus(e *api.Error) int {
	if e.Status != 0 && e.Kind != api.KindInfrastructure {
		return e.Status
	}
	switch e.Kind {
	case api.KindInvalid:
		return http.StatusBadRequest
	case api.KindRefused:
		return http.StatusForbidden
	case api.KindTimeout:
		return http.StatusGatewayTimeout
	case api.KindLost:
		return http.StatusGone
	case api.KindTool:
		return http.StatusUnprocessableEntity
	}
	return http.StatusBadGateway
}

// modernStatus is the HTTP status that a JSON-RPC error has in the stateless
// era; zero for 200.
func modernStatus(rawError []byte) int {
	at, _ := wire.Find(rawError, "code")
	switch string(at.Of(rawError)) {
	case "-32601":
		return http.StatusNotFound
	case "-32602", "-32020", "-32021", "-32022", "-32700", "-32600":
		return http.StatusBadRequest
	}
	return 0
}

func methodNotFound(method string) *wire.Error {
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found: " + method}
}

func invalidParams(message string) *wire.Error {
	return &wire.Error{Code: wire.CodeInvalidParams, Message: message}
}
