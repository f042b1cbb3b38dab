package record

import (
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A request may be refused before it reaches a server's policies: a rule hides the
// server from its principal, there is no such server, or the principal makes too
// many requests. Such requests are in the journal in every journal mode. The journal
// must not differ between a hidden server and a missing one, since the caller sees
// in the ids of its other calls whether something was written.

// ModeDenied is the mode of a journal entry for a call that was not made, because
// its principal may not see the target. Its error says why, and is not for the caller;
// its result is the answer, where that and the arguments are kept.
const ModeDenied = "denied"

// Denied counts a request to the server that its principal may not make.
func (s *Server) Denied() { s.metrics.Refused(telemetry.RefusedAccess) }

// Denied records a request that was refused, and why. The server is as the request
// names it. The outcome is the caller's mistake, as in the answer, which says that
// there is no such thing.
func (o *Options) Denied(server string, req *upstream.Request, why, answer string) {
	e := &journal.Entry{Params: req.Params.Raw, Mode: ModeDenied}
	if answer != "" {
		e.Result = fmt.Appendf(nil, `{"code":%d,"message":%s}`, wire.CodeInvalidParams, wire.Quote(answer))
	}
	o.turnedAway(e, server, req, api.KindInvalid, why)
}

// Limited is Denied for a principal that makes too many requests.
func (o *Options) Limited(server string, req *upstream.Request, why string) {
	o.turnedAway(&journal.Entry{Mode: config.JournalMeta}, server, req, api.KindRefused, why)
}

// NotMade records a request to an unknown server, which was not made.
func (o *Options) NotMade(server string, req *upstream.Request, why *api.Error) {
	if journalled(req.Method) {
		o.turnedAway(&journal.Entry{Mode: config.JournalMeta}, server, req, why.Kind, o.Redact.Text(why.Message))
	}
}

func (o *Options) turnedAway(e *journal.Entry, server string, req *upstream.Request, kind api.Kind, why string) {
	if o.Journal == nil {
		return
	}
	e.At, e.Principal, e.Session, e.Run, e.Server = time.Now(), req.Who, req.Session, req.Run, clip(server)
	e.Method, e.Name, e.Outcome, e.Error = clip(req.Method), clip(req.Name), string(kind), clip(why)
	err := o.Journal.Append(e)
	if req.Call = e.ID; err != nil {
		o.Metrics.JournalError()
	}
	o.Trouble.note(o.Log, err)
}
