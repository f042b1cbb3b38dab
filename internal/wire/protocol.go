// Package wire handles MCP messages as bytes. A gateway passes on far more
// than it needs to understand, and every decode into Go types and back loses
// something: unknown fields, big integers, the order of keys. So this package
// scans a message once, finds the few places that matter, and replaces just
// those.
//
// It also holds the words of the protocol: revisions, methods, headers, _meta
// keys and error codes.
package wire

// Protocol revisions. They are dates, so they compare as strings.
const (
	V20241105 = "2024-11-05"
	V20250326 = "2025-03-26"
	V20250618 = "2025-06-18"
	V20251125 = "2025-11-25"
	V20260728 = "2026-07-28"

	// LatestLegacy is the newest revision with an initialize handshake.
	LatestLegacy = V20251125
	// Latest is the newest revision of all.
	Latest = V20260728
)

// Versions lists every revision Tine speaks, newest first.
var Versions = [...]string{V20260728, V20251125, V20250618, V20250326, V20241105}

// Modern reports whether a revision is of the stateless era.
func Modern(version string) bool { return version >= V20260728 }

// Known reports whether Tine speaks a revision.
func Known(version string) bool {
	for _, v := range Versions {
		if v == version {
			return true
		}
	}
	return false
}

// Methods that Tine treats in some way of its own. All others pass.
const (
	MethodInitialize        = "initialize"
	MethodDiscover          = "server/discover"
	MethodPing              = "ping"
	MethodSetLevel          = "logging/setLevel"
	MethodListTools         = "tools/list"
	MethodCallTool          = "tools/call"
	MethodListResources     = "resources/list"
	MethodListTemplates     = "resources/templates/list"
	MethodReadResource      = "resources/read"
	MethodSubscribe         = "resources/subscribe"
	MethodUnsubscribe       = "resources/unsubscribe"
	MethodListPrompts       = "prompts/list"
	MethodGetPrompt         = "prompts/get"
	MethodComplete          = "completion/complete"
	MethodListen            = "subscriptions/listen"
	MethodCreateMessage     = "sampling/createMessage"
	MethodElicit            = "elicitation/create"
	MethodListRoots         = "roots/list"
	NoteInitialized         = "notifications/initialized"
	NoteCancelled           = "notifications/cancelled"
	NoteProgress            = "notifications/progress"
	NoteMessage             = "notifications/message"
	NoteToolsChanged        = "notifications/tools/list_changed"
	NotePromptsChanged      = "notifications/prompts/list_changed"
	NoteResourcesChanged    = "notifications/resources/list_changed"
	NoteResourceUpdated     = "notifications/resources/updated"
	NoteRootsChanged        = "notifications/roots/list_changed"
	NoteAcknowledged        = "notifications/subscriptions/acknowledged"
	NoteElicitationComplete = "notifications/elicitation/complete"
)

// HTTP headers.
const (
	HeaderSession   = "Mcp-Session-Id"
	HeaderVersion   = "Mcp-Protocol-Version"
	HeaderMethod    = "Mcp-Method"
	HeaderName      = "Mcp-Name"
	HeaderParam     = "Mcp-Param-" // followed by a parameter's header name
	HeaderLastEvent = "Last-Event-Id"
	HeaderTineCall  = "Tine-Call" // MetaTineCall as a header; in an answer the call that failed
)

// Keys of _meta.
const (
	MetaVersion        = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo     = "io.modelcontextprotocol/clientInfo"
	MetaClientCaps     = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel       = "io.modelcontextprotocol/logLevel"
	MetaSubscription   = "io.modelcontextprotocol/subscriptionId"
	MetaServerInfo     = "io.modelcontextprotocol/serverInfo"
	MetaProgressToken  = "progressToken"
	MetaTraceparent    = "traceparent" // of W3C Trace Context, as the protocol reserves it
	MetaTracestate     = "tracestate"
	MetaTineError      = "tine/error"
	MetaTurn           = "tineworld/turn" // the turn of a model that a call is of, with its text
	MetaTineCaller     = "tine/caller"    // for whom a server inside the gateway acts
	MetaTineCall       = "tine/call"      // the call that a server answers, for what it asks the gateway meanwhile
	MetaTineMissing    = "tine/missing"
	ResultInput        = "input_required"
	ResultTypeComplete = "complete"
)

// logLevels from the most to the least verbose.
var logLevels = [...]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LevelRank orders log levels: 0 is the most verbose, -1 is no level.
func LevelRank(level string) int {
	for i, l := range logLevels {
		if l == level {
			return i
		}
	}
	return -1
}
