package wire

import (
	"encoding/json"
	"strconv"
)

// JSON-RPC and MCP error codes.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
	CodeURLElicitation     = -32042
	// CodeTine is the code of failures that are Tine's to report: a server that
	// can't be reached, a limit, a time-out. Its data says which kind.
	CodeTine = -31000
)

// Error is a JSON-RPC error.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message + " (" + strconv.Itoa(e.Code) + ")" }

// Mistake reports whether the error is the caller's: there is no such thing, or
// not with these params.
func (e *Error) Mistake() bool { return e.Code == CodeInvalidParams || e.Code == CodeMethodNotFound }

// AppendError appends the error as JSON.
func AppendError(dst []byte, e *Error) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendQuote(dst, e.Message)
	if len(e.Data) > 0 {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, '}')
}

// ParseError decodes an error object that came from a peer. What it can't
// read it keeps as the message.
func ParseError(raw []byte) *Error {
	var e Error
	if err := json.Unmarshal(raw, &e); err != nil {
		return &Error{Code: CodeInternal, Message: "unreadable error from the server"}
	}
	return &e
}
