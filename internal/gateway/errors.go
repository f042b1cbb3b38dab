package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session/catalog"
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

// checkErrors refuses a URL whose errors parameter is none of the forms.
func checkErrors(query url.Values) *api.Error {
	given := query[errorsKey]
	if len(given) == 0 || len(given) == 1 && (given[0] == config.ErrorsResults || given[0] == config.ErrorsProtocol) {
		return nil
	}
	return invalid("%s in the URL must be one of %s and %s", errorsKey, config.ErrorsResults, config.ErrorsProtocol)
}

// errorsKey is the parameter of an endpoint's URL that names a form.
const errorsKey = "errors"

// inForm gives the failure of a tool call the form that the endpoint has for it: by
// its URL, else by the config of the view, else by that of the gateway. The failure
// may come from further in, such as the call that a control tool makes.
func inForm(from *http.Request, cat *catalog.Catalog, v view, method string, res *upstream.Result) *upstream.Result {
	if method != wire.MethodCallTool || res == nil || formOf(from, cat, v) != config.ErrorsProtocol || !bytes.Contains(res.Result, tineError) {
		return res
	}
	at, err := wire.Find(res.Result, "_meta", wire.MetaTineError)
	failed, ferr := wire.Find(res.Result, "isError")
	var e api.Error
	if err != nil || ferr != nil || string(failed.Of(res.Result)) != "true" || json.Unmarshal(at.Of(res.Result), &e) != nil {
		return res
	}
	switch e.Kind {
	case api.KindInfrastructure, api.KindTimeout, api.KindLost, api.KindRefused:
		out := *res
		out.Result, out.Error = nil, wire.AppendError(nil, rpcFailure(&e))
		return &out
	}
	return res
}

var tineError = []byte(`"` + wire.MetaTineError + `"`)

func formOf(from *http.Request, cat *catalog.Catalog, v view) string {
	if from != nil && from.URL.RawQuery != "" {
		if form := from.URL.Query().Get(errorsKey); form != "" {
			return form
		}
	}
	if e := cat.Entry(v.server); e != nil && e.Errors != "" {
		return e.Errors
	}
	return cat.Config.Errors
}

// clean is an error as a principal is told it, with secrets masked.
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
	if method == wire.MethodCallTool {
		out := append([]byte(`{"_meta":{"`+wire.MetaTineError+`":`), detailOf(e)...)
		out = append(out, `},"content":[{"type":"text","text":`...)
		out = wire.AppendQuote(out, e.Message)
		return &upstream.Result{Result: append(out, `}],"isError":true}`...), RetryAfter: e.RetryAfter}
	}
	return &upstream.Result{Error: wire.AppendError(nil, rpcFailure(e)), RetryAfter: e.RetryAfter}
}

func detailOf(e *api.Error) []byte {
	detail, err := json.Marshal(e)
	if err != nil {
		return []byte("{}")
	}
	return detail
}

// Failure is the message that a gateway answers a request with that failed, for a client
// that takes the failures of tool calls as results, or as errors of the protocol.
func Failure(id []byte, method string, e *api.Error, protocol bool) []byte {
	if protocol {
		method = ""
	}
	return frameOf(id, failed(method, e))
}

// rpcFailure is an error of ours as one of JSON-RPC. Its data has the kind once
// more by itself, for clients that read no more than that.
func rpcFailure(e *api.Error) *wire.Error {
	code := wire.CodeTine
	if e.Kind == api.KindInvalid {
		code = wire.CodeInvalidParams
	}
	return &wire.Error{Code: code, Message: e.Message, Data: append(append([]byte{'{'}, kindData(e)...), '}')}
}

// kindData are the members of an error's data that say whose failure it is.
func kindData(e *api.Error) []byte {
	out := append([]byte(`"kind":"`), e.Kind...)
	return append(append(out, `","`+wire.MetaTineError+`":`...), detailOf(e)...)
}

// blamed is a server's JSON-RPC error that says whose failure it is: the
// caller's, who called what is not there, or called it wrong. The server's own
// text stays.
func blamed(server string, raw []byte) []byte {
	e := wire.ParseError(raw)
	if !e.Mistake() {
		return raw
	}
	own := kindData(&api.Error{Kind: api.KindInvalid, Server: server, Message: e.Message})
	at, err := wire.Find(raw, "data")
	if err != nil {
		return raw
	}
	data := bytes.TrimSpace(at.Of(raw))
	switch {
	case data == nil || string(data) == "null":
		return wire.AppendError(nil, &wire.Error{Code: e.Code, Message: e.Message, Data: append(append([]byte{'{'}, own...), '}')})
	case data[0] != '{':
		return raw
	}
	for _, key := range []string{"kind", wire.MetaTineError} {
		if has, err := wire.Find(data, key); err != nil || has.Ok() {
			return raw
		}
	}
	if len(bytes.TrimSpace(data[1:])) > 1 {
		own = append(own, ',')
	}
	return wire.AppendSpliced(nil, raw, []wire.Edit{{At: wire.Span{Start: at.Start + 1, End: at.Start + 1}, With: own}})
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
	return rpcFailure(&api.Error{Kind: api.KindInvalid, Message: message})
}
